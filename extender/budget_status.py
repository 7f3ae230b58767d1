"""What the status of ReservationBudgets says: computed here, and written by the leader only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from adapters.api import BUDGETS, ClusterAPI
from adapters.kubernetes import decode
from adapters.kubernetes.conditions import Announced, Condition, Notice, notices, stamped
from adapters.kubernetes.events import EventWriter
from adapters.kubernetes.status import StatusWriter
from extender.catalog import Catalog
from extender.metrics import Metrics
from ledger.ledger import Ledger
from qos import keys, quantity
from qos.cluster.budget import (
    ALL_NAMESPACES,
    MOST_NAMESPACES,
    Budget,
    Part,
    ReservationBudget,
    Scope,
    named,
)
from qos.cluster.objects import Resources

_ANNOUNCED: Final = {keys.EXCEEDED: Announced("True", "WithinBudget")}
_MOST_NAMED: Final = 5
"""Policies that the condition names."""
_LONGEST_TEXT: Final = 2048
_NO_PART: Final = Part()

Amounts = list[dict[str, str]]


def compute(budget: ReservationBudget, parts: Mapping[str, Part], now: float) -> dict[str, Any]:
    """The whole status. parts: what is used of this budget, by namespace, and by ALL_NAMESPACES."""
    rules, all_of_them = budget.rules, parts.get(ALL_NAMESPACES, _NO_PART)
    total = _amounts(rules.total, all_of_them)
    shown: list[dict[str, Any]] = [
        {
            "name": name,
            "policies": part.policies,
            "exceeding": len(part.exceeding),
            "amounts": _amounts(rules.per_namespace, part),
        }
        for name, part in _fullest_first(rules, parts)
    ]
    return {
        "observedGeneration": budget.generation,
        "namespaces": sum(name != ALL_NAMESPACES for name in parts),
        "policies": all_of_them.policies,
        "exceeding": len(all_of_them.exceeding),
        "total": total,
        "perNamespace": shown[:MOST_NAMESPACES],
        "usedOfTotal": _text(total),
        "fullest": f"{shown[0]['name']}: {_text(shown[0]['amounts'])}"
        if shown and rules.per_namespace
        else "",
        "conditions": stamped([_exceeded(all_of_them)], budget.status, budget.generation, now),
    }


def _exceeded(part: Part) -> Condition:
    if not part.exceeding:
        return Condition(keys.EXCEEDED, "False", "WithinBudget", "no policy asks for more than is left to it")
    names = ", ".join(part.exceeding[:_MOST_NAMED])
    more = len(part.exceeding) - _MOST_NAMED
    text = f"slots are not held for {names}" + (f" and {more} more" if more > 0 else "")
    return Condition(keys.EXCEEDED, "True", "PoliciesAboveBudget", f"{text}: their status says why")


def _fullest_first(rules: Budget, parts: Mapping[str, Part]) -> list[tuple[str, Part]]:
    """The namespaces, first those that have most of what they may have, then by name."""

    def order(one: tuple[str, Part]) -> tuple[float, str]:
        return -_fullness(rules.per_namespace, one[1].used), one[0]

    return sorted(((name, part) for name, part in parts.items() if name != ALL_NAMESPACES), key=order)


def _fullness(hard: Resources, used: Mapping[str, int]) -> float:
    """The largest share of anything; all of nothing is full."""
    return max((used.get(name, 0) / most if most else 1.0 for name, most in hard.items()), default=0.0)


def _amounts(hard: Resources, part: Part) -> Amounts:
    return [
        {
            "resource": named(name),
            "used": quantity.render(name, used),
            "hard": quantity.render(name, most),
            "left": quantity.render(name, max(0, most - used)),
        }
        for name, most in sorted(hard.items())
        for used in (part.used.get(name, 0),)
    ]


def _text(amounts: Amounts) -> str:
    """Such as `cpu: 12/200, memory: 48Gi/1Ti`, as kubectl shows a ResourceQuota."""
    return ", ".join(f"{one['resource']}: {one['used']}/{one['hard']}" for one in amounts)[:_LONGEST_TEXT]


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Notice]:
    """The Events for a change of status."""
    return notices(before, after, _ANNOUNCED)


class BudgetStatus:
    """Has the status of all budgets written. `clock` and `wall` as in StatusWriter."""

    def __init__(
        self,
        api: ClusterAPI,
        ledger: Ledger,
        catalog: Catalog,
        events: EventWriter,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._catalog = catalog
        self._writer = StatusWriter(
            api,
            BUDGETS,
            read=decode.budget,
            watched=catalog.budgets.get,
            events=events,
            notices=news,
            count=metrics.status_write,
            clock=clock,
            wall=wall,
        )

    async def run_once(self) -> int:
        """Write what is due; the number of budgets that have to wait for a later call."""
        return await self._writer.run_once(self._due())

    def _due(self) -> Iterator[tuple[ReservationBudget, Callable[[float], Mapping[str, Any]]]]:
        of = _by_budget(self._ledger.budget_parts().items())
        for seen in [*self._catalog.budgets.values()]:
            newest = self._writer.newest(seen)
            yield newest, partial(compute, newest, of.get(seen.key, {}))

    def forget(self, name: str) -> None:
        """The budget is gone."""
        self._writer.forget(name)


def _by_budget(parts: Iterable[tuple[Scope, Part]]) -> dict[str, dict[str, Part]]:
    found: dict[str, dict[str, Part]] = {}
    for (budget, namespace), part in parts:
        found.setdefault(budget, {})[namespace] = part
    return found
