"""Budgets: how many slots of each policy may be filled and held, by the namespace it is in. Pure.

Like ResourceQuotas, budgets count what policies ask for: what one holds less than it asks, because no node
has room, is not another's. So what a policy is given follows from policies, budgets and labels of namespaces
alone: it is the same after a restart, and no pod that comes or goes changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from qos import keys, quantity
from qos.cluster.objects import Demand, Resources, Selector, Withheld
from qos.cluster.selectors import matches

SLOTS: Final = "slots"
"""How a budget names the number of slots. In the records here it is keys.PODS: a slot has one pod."""
LARGEST_BUDGET: Final = "1Ei"
MOST_NAMESPACES: Final = 100
"""Namespaces that a budget's status shows."""
BUDGET_EXCEEDED: Final = "BudgetExceeded"
BUDGET_FORBIDS: Final = "BudgetForbids"
ALL_NAMESPACES: Final = ""
"""The scope of what all namespaces of a budget have together; else a scope is a namespace."""

Scope: TypeAlias = tuple[str, str]
"""A budget, and a namespace or ALL_NAMESPACES."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a ReservationBudget rules. Amounts in canonical units; what is not named has no limit.

    `default`: only for namespaces that no budget without it selects. `priority_classes`, `profiles`: the
    names that policies may have; None: any.
    """

    name: str
    selector: Selector = field(default_factory=Selector)
    default: bool = False
    per_namespace: Resources = field(default_factory=dict)
    total: Resources = field(default_factory=dict)
    priority_classes: frozenset[str] | None = None
    profiles: frozenset[str] | None = None

    def hard(self, namespace: str) -> Iterator[tuple[Scope, Resources]]:
        """The limits for a policy of this namespace, by what is added up for them."""
        yield (self.name, namespace), self.per_namespace
        yield (self.name, ALL_NAMESPACES), self.total


@dataclass(frozen=True, slots=True)
class ReservationBudget:
    """A ReservationBudget as the API server has it."""

    rules: Budget
    uid: str
    generation: int
    resource_version: str
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Its name."""
        return self.rules.name

    name = key

    @property
    def namespace(self) -> str:
        """It is in none."""
        return ""


@dataclass(slots=True)
class Part:
    """What the policies of one scope have, and how many ask for slots, and for more than they are given."""

    used: dict[str, int] = field(default_factory=dict)
    policies: int = 0
    exceeding: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Allotment:
    """What each demand is given, by key, and what that makes of each scope."""

    granted: Mapping[str, Demand]
    parts: Mapping[Scope, Part]


def concerning(budgets: Collection[Budget], namespace: str, labels: Mapping[str, str]) -> tuple[Budget, ...]:
    """The budgets that policies of a namespace must keep, all of them, by name."""
    known = {keys.NAMESPACE_NAME_LABEL: namespace, **labels}
    selecting = sorted((one for one in budgets if matches(one.selector, known)), key=lambda one: one.name)
    own = tuple(one for one in selecting if not one.default)
    return own or tuple(selecting)


def allot(demands: Iterable[Demand], budgets_of: Callable[[str], Sequence[Budget]]) -> Allotment:
    """Give each demand as many of its slots as its namespace's budgets leave, in this order.

    demands: by precedence, as they ask; what is given is `desired`, and the rest is `withheld`.
    """
    granted: dict[str, Demand] = {}
    parts: dict[Scope, Part] = {}
    for demand in demands:
        budgets = budgets_of(demand.namespace)
        slots, withheld = _slots(demand, budgets, parts)
        granted[demand.key] = (
            replace(demand, desired=slots, withheld=withheld) if withheld is not None else demand
        )
        for budget in budgets if demand.desired else ():
            for scope, hard in budget.hard(demand.namespace):
                _take(parts.setdefault(scope, Part()), demand, slots, hard)
        if withheld is not None:
            for scope in {(withheld.budget, demand.namespace), (withheld.budget, ALL_NAMESPACES)}:
                parts[scope].exceeding.append(demand.key)
    return Allotment(granted, parts)


def _take(part: Part, demand: Demand, slots: int, hard: Resources) -> None:
    part.policies += 1
    for resource in hard:
        part.used[resource] = part.used.get(resource, 0) + slots * demand.vector.get(resource, 0)


def _slots(
    demand: Demand, budgets: Sequence[Budget], parts: Mapping[Scope, Part]
) -> tuple[int, Withheld | None]:
    """How many slots the budgets leave to a demand, and of which there are least if that is not all."""
    best, why = demand.desired, None
    for budget in budgets if demand.desired else ():
        refusal = _refusal(demand, budget)
        if refusal:
            return 0, Withheld(demand.desired, BUDGET_FORBIDS, budget.name, refusal)
        for scope, hard in budget.hard(demand.namespace):
            part = parts.get(scope)
            for resource, most in hard.items():
                amount = demand.vector.get(resource, 0)
                used = part.used.get(resource, 0) if part else 0
                if amount and best * amount > most - used:
                    best = max(0, (most - used) // amount)
                    why = scope, resource, used, most
    if why is None:
        return best, None
    (budget_name, namespace), resource, used, most = why
    asked = demand.desired * demand.vector[resource]
    return best, Withheld(
        demand.desired - best,
        BUDGET_EXCEEDED,
        budget_name,
        exceeded_text(budget_name, namespace, resource, asked, used, most),
        resource,
        asked - max(0, most - used),
    )


def _refusal(demand: Demand, budget: Budget) -> str:
    """Why a budget permits no slot of a demand at all, or ""."""
    for kind, name, permitted in (
        ("PriorityClass", demand.priority_class, budget.priority_classes),
        ("QoSProfile", demand.profile, budget.profiles),
    ):
        if permitted is not None and name not in permitted:
            found = f"{kind} {name}" if name else f"policy that names no {kind}"
            return f"budget {budget.name} permits no {found}: name one of {', '.join(sorted(permitted))}"
    return ""


def exceeded_text(budget: str, namespace: str, resource: str, asked: int, used: int, hard: int) -> str:
    """Which budget leaves less than was asked: `budget gold, namespace shop: cpu: 40 asked, ...`."""

    def amount(value: int) -> str:
        return quantity.render(resource, value)

    where = f"namespace {namespace}" if namespace else "all namespaces"
    left = amount(max(0, hard - used))
    return (
        f"budget {budget}, {where}: {named(resource)}: {amount(asked)} asked, "
        f"{amount(used)} of {amount(hard)} used by policies that come first, {left} left"
    )


def named(resource: str) -> str:
    """A resource as budgets name it."""
    return SLOTS if resource == keys.PODS else resource
