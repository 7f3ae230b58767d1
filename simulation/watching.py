"""Watches a history, whichever keeper plays: what was broken and when, the story, and the ledger at rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.api import POLICIES
from adapters.kubernetes import decode
from ledger.ledger import Ledger
from qos.cluster.objects import Pod
from simulation import invariants
from simulation.books import Told, rebuilt
from simulation.facts import facts_of
from simulation.history import World
from simulation.invariants import Facts
from simulation.store import EPOCH, Store

if TYPE_CHECKING:
    from simulation.extender import Extender

Waiting = Mapping[str, tuple[Pod, Sequence[str]]]
"""Pods that no scheduler has placed, by name, with the nodes that the in-tree filters let pass."""


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that did not hold. `rule` names it."""

    at: float
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:9.3f}  {self.rule}: {self.text}"


class Watching(Told, ABC):
    """Told of everything by the players; `found` lists what was wrong, `trace` tells the story if wanted."""

    def __init__(self, world: World, store: Store, clock: Callable[[], float]) -> None:
        self._world, self._store, self._clock = world, store, clock
        self.extender: Extender | None = None
        self.found: list[Broken] = []
        self.trace: list[str] | None = None
        self._blind_until = 0.0
        self._lacking: dict[str, float] = {}

    def stamp(self) -> str:
        """The time, as the API server writes it."""
        return self._store.now()

    def wrong(self, rule: str, text: str) -> None:
        """Something must not be."""
        self.found.append(Broken(self._clock(), rule, text))

    def _all_wrong(self, rule: str, problems: Iterable[str]) -> None:
        for problem in problems:
            self.wrong(rule, problem)

    def say(self, text: str) -> None:
        """A line of the story."""
        if self.trace is not None:
            self.trace.append(f"{self._clock():9.3f}  {text}")

    def blind(self, seconds: float = 0.0) -> None:
        """The extender cannot know what happens until some time from now: floors are not judged meanwhile."""
        self._blind_until = max(self._blind_until, self._clock() + seconds + 2 * self._world.grace)

    @property
    @abstractmethod
    def binds(self) -> int:
        """How many binds were judged."""

    @abstractmethod
    def restarted(self) -> None:
        """The extender is another one."""

    def scheduler_starts(self) -> None:
        """kube-scheduler is about to list pods."""

    @abstractmethod
    def disturbed(self) -> None:
        """Something happened from outside."""

    def counted_out(self, node: str) -> None:
        """From now on owners on a node that is not ready fill no slot."""

    def look(self) -> None:
        """What must be true of the ledger now."""
        extender = self.extender
        if extender is None or not extender.ready or extender.behind(0.0):
            self._lacking.clear()
            return
        facts = facts_of(self._world, self._store, extender)
        self._look_at_more(extender, facts)
        self._all_wrong("accounts add up", invariants.accounts_add_up(facts))
        policies = (decode.policy(entry.raw) for entry in self._store.entries(POLICIES))
        self._all_wrong("as asked", invariants.as_asked(facts, policies, EPOCH + self._clock()))
        self._all_wrong("within budgets", invariants.within_budgets(facts))
        if extender.busy:
            return
        self._all_wrong("fillings", invariants.fillings(facts))
        self._all_wrong("holds fit", invariants.holds_fit(facts))
        self._all_wrong("holds can serve", invariants.holds_can_serve(facts))
        self._all_wrong("holds are even", invariants.holds_are_even(facts))
        self._look_for_lost_slots(invariants.placeable(facts))

    @abstractmethod
    def _look_at_more(self, extender: Extender, facts: Facts) -> None:
        """What is judged with one keeper only."""

    def _look_for_lost_slots(self, placeable: dict[str, str]) -> None:
        now = self._clock()
        self._lacking = {key: self._lacking.get(key, now) for key in placeable}
        for key, since in self._lacking.items():
            if now - since > invariants.SLOT_SECONDS and now >= self._blind_until:
                self.wrong("no slot lost", f"{key}: a slot fits on {placeable[key]} for {now - since:.1f} s")
                self._lacking[key] = float("inf")

    @abstractmethod
    def look_after_quiet(self, waiting: Waiting, uneven: AbstractSet[tuple[str, str]]) -> None:
        """What must be true once nothing has happened for long enough.

        `uneven`: pods and nodes, by name, where topology spread alone is in the way, or cost a nomination.
        """

    def _look_as_rebuilt(self) -> Ledger | None:
        """The ledger that an extender has which starts now, to which the running one is compared; None while
        that is not ready.
        """
        extender = self.extender
        assert extender is not None
        if not extender.ready:
            self.wrong("ready", f"the extender is not: {extender.readiness.problem()}")
            return None
        ledger = extender.ledger
        again = rebuilt(self._world, self._store, extender.api, self._clock()).ledger
        for problem in invariants.same_totals(ledger.gauges(), again.gauges()):
            self.wrong("as rebuilt", problem)
        demands = facts_of(self._world, self._store, extender).demands
        for problem in invariants.no_fewer_slots(demands, ledger.report(), again.report()):
            self.wrong("as rebuilt", problem)
        return again

    def waits_in_vain(self, waiting: Waiting) -> bool:
        """Whether a ledger that is rebuilt now would let one of these pods in."""
        if self.extender is None or not waiting:
            return False
        again, now = rebuilt(self._world, self._store, self.extender.api, self._clock()).ledger, self._clock()
        return any(self._passes(again, pod, nodes, now) for pod, nodes in waiting.values())

    def _passes(self, again: Ledger, pod: Pod, nodes: Sequence[str], now: float) -> Sequence[str]:
        """The nodes to which a rebuilt ledger lets a pod in, which it forgets again."""
        found = again.filter(pod, nodes, now, prefers=True).nodes
        again.settle(pod.uid)
        return found
