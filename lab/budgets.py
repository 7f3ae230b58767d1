"""How many slots budgets leave to each policy, worked out by the checker itself: slot by slot, apart from
qos.cluster.budget, with which only the records and the matching of selectors are shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from qos.cluster.budget import Budget
from qos.cluster.objects import Resources
from qos.cluster.selectors import matches


class Want(NamedTuple):
    """What one policy asks for. `priority_class`, `profile`: the names that it has, "" for none."""

    namespace: str
    vector: Resources
    slots: int
    priority_class: str = ""
    profile: str = ""


def left_to(
    wants: Iterable[Want], budgets: Collection[Budget], labels: Mapping[str, Mapping[str, str]]
) -> list[int]:
    """How many slots each has, those that come first first. labels: of namespaces, by name."""
    spent: dict[tuple[str, str], Counter[str]] = {}
    found = []
    for want in wants:
        own = _of(want.namespace, budgets, labels)
        accounts = [
            (spent.setdefault((budget.name, where), Counter()), hard)
            for budget in own
            for where, hard in ((want.namespace, budget.per_namespace), ("*", budget.total))
        ]
        slots = want.slots if all(_permits(budget, want) for budget in own) else 0
        for account, hard in accounts:
            for name, most in hard.items():
                if want.vector.get(name, 0):
                    slots = min(slots, max(0, most - account[name]) // want.vector[name])
        for account, _ in accounts:
            account.update({name: amount * slots for name, amount in want.vector.items()})
        found.append(slots)
    return found


def above(
    had: Iterable[tuple[Want, int]], budgets: Collection[Budget], labels: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Where more slots are had than a budget allows, in words."""
    spent: dict[tuple[str, str], Counter[str]] = {}
    for want, slots in had:
        for budget in _of(want.namespace, budgets, labels):
            for where in (want.namespace, "*"):
                account = spent.setdefault((budget.name, where), Counter())
                account.update({name: amount * slots for name, amount in want.vector.items()})
    wrong = []
    for budget in budgets:
        for (name, where), account in spent.items():
            hard = budget.total if where == "*" else budget.per_namespace
            over = {r: (account[r], most) for r, most in hard.items() if account[r] > most}
            wrong += [
                f"budget {name}, {where}: {used} of {r}, {most} allowed"
                for r, (used, most) in sorted(over.items())
                if name == budget.name
            ]
    return wrong


def _permits(budget: Budget, want: Want) -> bool:
    classes, profiles = budget.priority_classes, budget.profiles
    return (classes is None or want.priority_class in classes) and (
        profiles is None or want.profile in profiles
    )


def _of(namespace: str, budgets: Collection[Budget], labels: Mapping[str, Mapping[str, str]]) -> list[Budget]:
    there = {**labels.get(namespace, {}), "kubernetes.io/metadata.name": namespace}
    selecting = [budget for budget in budgets if matches(budget.selector, there)]
    special = [budget for budget in selecting if not budget.default]
    return special or selecting
