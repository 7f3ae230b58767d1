"""Mistakes planted on purpose, in memory: what the simulation must find, and how many seeds it takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import ledger.bind
import ledger.budgets
import ledger.moves
import ledger.placement
import ledger.preempt
import ledger.sharing
import ledger.waiting
import qos.cluster.reservation
from extender.binder import Binder
from extender.waking import Waker
from ledger.budgets import Budgets
from ledger.claims import Claims
from ledger.demands import NO_DEMAND, Demands
from ledger.flights import Flight, Flights
from ledger.holds import Holds
from ledger.judge import Verdict
from ledger.ledger import Ledger
from ledger.nominations import Nominations
from ledger.spread import Spreads
from ledger.state import State
from qos.cluster.budget import Budget
from simulation.generator import EXTENDER, history
from simulation.play import play


@dataclass(frozen=True, slots=True)
class Mutation:
    """An attribute of `where` is replaced by what `wrong` makes of the right one."""

    about: str
    where: Any
    name: str
    wrong: Callable[[Any], Any]
    keeper: str = EXTENDER

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The mistake is there within."""
        right = getattr(self.where, self.name)
        setattr(self.where, self.name, self.wrong(right))
        try:
            yield
        finally:
            setattr(self.where, self.name, right)


def _never(answer: Any = None) -> Callable[[Any], Any]:
    """In place of what should be done: nothing, and this answer."""
    return lambda _right: lambda *_args, **_options: answer


def _all_that_fit(_right: Any) -> Any:
    return lambda _self, _demand, _rows, fit, _want: fit


def _all_that_select(right: Any) -> Any:
    def concerning(
        budgets: Collection[Budget], namespace: str, labels: Mapping[str, str]
    ) -> tuple[Budget, ...]:
        return right([replace(one, default=False) for one in budgets], namespace, labels)  # type: ignore[no-any-return]

    return concerning


def _accepts(right: Any) -> Any:
    def judge(*args: Any, **options: Any) -> Verdict:
        return right(*args, **options) or Verdict(passing=np.asarray([True]))

    return judge


def _keeps_all(_right: Any) -> Any:
    return lambda state, _request, victims: {
        node: Verdict(row=row) for node, row in zip(victims, state.table.rows_of(list(victims)), strict=True)
    }


def _keeps_pod(_right: Any) -> Any:
    return lambda self, uid: self._waiting.forget(uid)


def _gives_up(_right: Any) -> Any:
    return lambda self, pod, _node, why: self._rolled_back(pod, why)


def _wakes_nobody(_right: Any) -> Any:
    async def wake(_self: Waker, _pod: Any) -> None:
        return

    return wake


def _passes_over_samples(right: Any) -> Any:
    return lambda state, refused, passing: refused.seen is None and right(state, refused, passing)


def _only_in(right: Any) -> Any:
    return lambda self, demand, row, count: right(self, demand, row, max(0, count))


def _taken_for_certain(_right: Any) -> Any:
    return property(lambda _self: True)


def _same_anyway(_right: Any) -> Any:
    def same(self: Claims, claim: Any, _requests: Any, node: str, owner: int) -> bool:
        return bool(self._table.names[claim.row] == node and claim.owner == owner)

    return same


def _as_requested(_right: Any) -> Any:
    return lambda _self, pod, _owner: pod.requests


def _whatever_it_asks(_right: Any) -> Any:
    return lambda self, pod: next(iter(self.selecting(pod.namespace, pod.labels)), NO_DEMAND)


def _looks_away(_right: Any) -> Any:
    def leave(state: State) -> None:
        state.table.touched.clear()  # else nobody would ever be done
        state.landed.clear()
        state.recheck = False

    return leave


def _as_the_template_says(_right: Any) -> Any:
    return lambda one: one.where


MUTATIONS = (
    Mutation("bind does not check again", ledger.bind, "judge", _accepts),
    Mutation("bind waits for no victims", ledger.bind, "_awaited", _never(())),
    Mutation("a pod that is bound stays in flight", State, "settle_flight", _never()),
    Mutation("a pod that is gone keeps its claim", Ledger, "remove_pod", _keeps_pod),
    Mutation("a resize changes no claim", Claims, "_same", _same_anyway),
    Mutation("an owner counts at what it requests", Demands, "counts", _as_requested),
    Mutation("an owner may ask for more than a restricted slot", Demands, "owned_by", _whatever_it_asks),
    Mutation("pods in flight are not charged", Flights, "put", _never()),
    Mutation("what pods in flight may take counts as taken", Flight, "certain", _taken_for_certain),
    Mutation("nominations keep no hole", Nominations, "put", _never(False)),
    Mutation("an owner that goes leaves its slot filled", Holds, "fill", _only_in),
    Mutation("holds in excess are not lifted", ledger.placement, "lift_excess", _never()),
    Mutation("budgets that change are not noticed", Budgets, "_forget", _never()),
    Mutation("labels of a namespace choose no budget", Budgets, "set_namespace", _never()),
    Mutation("a default budget is for every namespace", ledger.budgets, "concerning", _all_that_select),
    Mutation("holds stay on lost nodes", ledger.placement, "leave_lost_nodes", _never()),
    Mutation("holds are placed in any zone", Spreads, "share_out", _all_that_fit),
    Mutation("holds move to any zone", ledger.moves, "may_move", _never(True)),
    Mutation("holds stay where their room was taken", ledger.placement, "leave_short_nodes", _looks_away),
    Mutation("preempt keeps hopeless candidates", ledger.preempt, "_ways", _keeps_all),
    Mutation("a Reservation for one pod is never used up", ledger.sharing, "use_up", _never()),
    Mutation("what pods take of a shared Reservation stays held", ledger.sharing, "reckon", _never()),
    Mutation("a Reservation may leave its node", qos.cluster.reservation, "_where", _as_the_template_says),
    Mutation("nobody is woken", Waker, "_wake", _wakes_nobody),
    Mutation("who was shown a sample is not woken", ledger.waiting, "_wakes", _passes_over_samples),
    Mutation("a Binding without an answer is taken for lost", Binder, "_doubt", _gives_up),
)


def caught(mutation: Mutation, most: int, first: int = 0) -> tuple[int, str]:
    """How many seeds it takes to find a mistake, and by which rule; (0, "") when `most` do not find it.

    A seed that fails without the mistake as well is passed over.
    """
    for count in range(1, most + 1):
        one = history(first + count - 1, keeper=mutation.keeper)
        with mutation.planted():
            broken = play(one).broken
        if broken and not play(one).broken:
            return count, broken[0].rule
    return 0, ""
