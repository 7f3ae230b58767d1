"""Budgets in the ledger: policies' demands as they ask, and what budgets give of them, which is what is held.

What policies are given is worked out anew when a policy, a budget or the labels of a namespace have changed,
all of it at once (some milliseconds for hundreds of policies), and then taken into the account some demands
at a time. Pods that come and go change none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ledger.demands import order_key
from ledger.pinned import restore
from ledger.state import State
from qos.cluster.budget import Allotment, Budget, Part, Scope, allot, concerning
from qos.cluster.objects import Demand

_AT_ONCE: Final = 4
"""Demands taken into the account at once, at half a millisecond each."""
_NOTHING: Final = Allotment({}, {})
_NO_LABELS: Final[Mapping[str, str]] = {}


class Budgets:
    """What policies ask for, and the budgets they must keep.

    While no budget concerns its namespace, a demand goes into the account at once and as it is.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._asked: dict[str, Demand] = {}
        self._budgets: dict[str, Budget] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._concerning: dict[str, tuple[str, ...]] = {}
        self._stale = False
        self._due: dict[str, Demand] = {}
        self._restore: dict[str, list[tuple[str, int]]] = {}
        self._last = _NOTHING

    def set_demand(self, demand: Demand) -> None:
        """Take what a policy asks for."""
        self._asked[demand.key] = demand
        if self._budgets and self._names_of(demand.namespace):
            self._stale = True
        else:
            self._due.pop(demand.key, None)
            self._state.set_demand(demand)

    def remove_demand(self, key: str) -> None:
        """A policy asks for nothing any more."""
        gone = self._asked.pop(key, None)
        self._due.pop(key, None)
        self._restore.pop(key, None)
        self._state.remove_demand(key)
        self._stale |= gone is not None and bool(self._names_of(gone.namespace))

    def restore(self, key: str, holds: Iterable[tuple[str, int]]) -> None:
        """Place a new demand's holds where they were, once it is known how many it is given."""
        if key in self._state.demands.numbers:
            restore(self._state, key, holds)
        else:
            self._restore[key] = list(holds)

    def set_budget(self, budget: Budget) -> None:
        """Take a budget as it is now; whom it concerns follows from what it selects alone."""
        before = self._budgets.get(budget.name)
        if before == budget:
            return
        self._budgets[budget.name] = budget
        same = before is not None and (before.selector, before.default) == (budget.selector, budget.default)
        self._forget(whom=not same)

    def remove_budget(self, name: str) -> None:
        """Nobody must keep it any more."""
        if self._budgets.pop(name, None) is not None:
            self._forget(whom=True)

    def set_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Take a namespace's labels as they are now; one that is not known has its name alone."""
        if self._labels.get(name, _NO_LABELS) != labels:
            self._labels[name] = labels
            before = self._concerning.pop(name, ())
            self._stale |= before != self._names_of(name)

    def remove_namespace(self, name: str) -> None:
        """The namespace is gone."""
        self.set_namespace(name, _NO_LABELS)
        self._labels.pop(name, None)
        self._concerning.pop(name, None)

    def _forget(self, *, whom: bool) -> None:
        """Budgets have changed; `whom`: those that they concern as well."""
        if whom:
            self._concerning.clear()
        self._stale = True

    def _of(self, namespace: str) -> Sequence[Budget]:
        return [self._budgets[name] for name in self._names_of(namespace)]

    def _names_of(self, namespace: str) -> tuple[str, ...]:
        if not namespace:  # Reservations are an administrator's
            return ()
        found = self._concerning.get(namespace)
        if found is None:
            labels = self._labels.get(namespace, _NO_LABELS)
            budgets = concerning(self._budgets.values(), namespace, labels)
            found = self._concerning[namespace] = tuple(one.name for one in budgets)
        return found

    def weigh(self) -> bool:
        """Work out what policies are given, if that may have changed; True when it was done."""
        if not self._stale:
            return False
        self._stale = False
        asked = (one for one in self._asked.values() if one.namespace)
        self._last = allot(sorted(asked, key=order_key), self._of)
        self._due = self._changed(self._last.granted)
        return True

    @property
    def unsettled(self) -> bool:
        """Whether policies may be given something that the account does not know."""
        return self._stale or bool(self._due)

    def gives(self, key: str) -> int:
        """How many slots a policy has now, whether that is in the account yet or not."""
        self.weigh()
        given = self._due.get(key) or self._known(key)
        return given.desired if given is not None else 0

    def settle(self) -> bool:
        """Take what policies are given into the account, some demands at a time; True when more is left.

        First what has become less: so no more is ever held than budgets give.
        """
        self.weigh()
        for key in [*self._due][:_AT_ONCE]:
            self._state.set_demand(self._due.pop(key))
            if key in self._restore:
                restore(self._state, key, self._restore.pop(key))
        return bool(self._due)

    def _changed(self, granted: Mapping[str, Demand]) -> dict[str, Demand]:
        changed = [one for key, one in granted.items() if self._known(key) != one]
        return {one.key: one for one in sorted(changed, key=lambda one: _more(self._known(one.key), one))}

    def _known(self, key: str) -> Demand | None:
        number = self._state.demands.numbers.get(key)
        return self._state.demands[number] if number is not None else None

    @property
    def withheld(self) -> int:
        """Slots of all demands that budgets do not give."""
        return sum(one.withheld.count for one in self._last.granted.values() if one.withheld)

    @property
    def parts(self) -> Mapping[Scope, Part]:
        """What is used of each budget."""
        return self._last.parts


def _more(before: Demand | None, after: Demand) -> bool:
    """Whether it takes more of anything than before."""
    if before is None:
        return True
    return any(
        after.desired * amount > before.desired * before.vector.get(name, 0)
        for name, amount in after.vector.items()
    )
