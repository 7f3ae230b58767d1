"""ReservationBudget: how much policies of some namespaces may have, as `kubectl explain rbudget` shows."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, StrictInt, StrictStr, WithJsonSchema, model_validator

from qos.api.fields import INT_OR_STRING, Model, Reported, cel, validations
from qos.api.policy import RESOURCE_NAME, ObjectName
from qos.api.upstream import Condition, LabelKey, LabelValue, ObjectMeta, SelectorRequirement
from qos.cluster.budget import LARGEST_BUDGET, MOST_NAMESPACES, SLOTS
from qos.quantity import QuantityError, is_whole, parse, parse_large

_NAMES = RESOURCE_NAME.replace("(", f"({SLOTS}|", 1)
_NAMES_MESSAGE = (
    f"can name only {SLOTS}, cpu, memory, ephemeral-storage, hugepages-SIZE and names such as example.com/gpu"
)
_AMOUNT_MESSAGE = "must be a quantity, zero or more, such as 40 or 160Gi"
_TOO_LARGE_MESSAGE = f"must be at most {LARGEST_BUDGET}"
_SLOTS_MESSAGE = f"{SLOTS} is a whole number"
_NOTHING_MESSAGE = (
    "a budget must limit something: give perNamespace, total, priorityClassNames or profileNames"
)

Amount: TypeAlias = Annotated[
    StrictInt | StrictStr,
    WithJsonSchema(
        INT_OR_STRING
        | validations(
            cel(
                "type(self) == int ? self >= 0"
                " : isQuantity(self) && !quantity(self).isLessThan(quantity('0'))",
                _AMOUNT_MESSAGE,
            ),
            cel(
                f"type(self) == int ? self <= {parse_large('', LARGEST_BUDGET)}"
                f" : !isQuantity(self) || !quantity(self).isGreaterThan(quantity('{LARGEST_BUDGET}'))",
                _TOO_LARGE_MESSAGE,
            ),
        )
    ),
]
"""A Kubernetes quantity, zero or more, as it was written."""


def _refuse_no_amount(field: str, name: str, value: int | str) -> None:
    where = f"{field}: {name}: {value!r}"
    reserved = name.startswith("requests.")
    if len(name) > 317 or reserved or not re.fullmatch(_NAMES, name):
        raise ValueError(f"{where}: {_NAMES_MESSAGE}")
    try:
        negative = parse(name, value) < 0
    except QuantityError:
        raise ValueError(f"{where}: {_AMOUNT_MESSAGE}") from None
    if negative:
        raise ValueError(f"{where}: {_AMOUNT_MESSAGE}")
    if parse_large("", value) > parse_large("", LARGEST_BUDGET):
        raise ValueError(f"{where}: {_TOO_LARGE_MESSAGE}")
    if name == SLOTS and not is_whole(name, value):
        raise ValueError(f"{where}: {_SLOTS_MESSAGE}")


def _amounts(description: str) -> Any:
    return Field(
        default=None,
        min_length=1,
        max_length=8,
        description=description,
        json_schema_extra=validations(
            cel(
                f"self.all(name, size(name) <= 317 && name.matches('{_NAMES}')"
                " && !name.startsWith('requests.'))",
                _NAMES_MESSAGE,
            ),
            cel(
                f"!('{SLOTS}' in self) || type(self['{SLOTS}']) == int || !isQuantity(self['{SLOTS}'])"
                f" || quantity(self['{SLOTS}']).isInteger()",
                _SLOTS_MESSAGE,
            ),
        ),
    )


class NamespaceSelector(Model):
    """Selects namespaces by their labels; all of it must match, and an empty one selects every namespace."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    match_labels: dict[LabelKey, LabelValue] | None = Field(
        default=None, max_length=32, description="Labels that a namespace must have, with these values."
    )
    match_expressions: list[SelectorRequirement] | None = Field(
        default=None,
        max_length=32,
        description="Expressions that a namespace's labels must satisfy.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


_Names: TypeAlias = Annotated[
    list[ObjectName], Field(min_length=1, max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"})
]


class ReservationBudgetSpec(Model):
    """Whose policies may have how much, and of which kind."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "has(self.perNamespace) || has(self.total) || has(self.priorityClassNames)"
                " || has(self.profileNames)",
                _NOTHING_MESSAGE,
            )
        )
    )

    namespace_selector: NamespaceSelector = Field(
        description=(
            "The namespaces whose policies this budget concerns, by their labels; {} selects all of them. "
            "Of several budgets that select a namespace, all must be kept."
        )
    )
    default: bool = Field(
        default=False,
        description=(
            "Only for namespaces that no other budget selects: of those that namespaceSelector selects, the "
            "budget concerns the ones that no budget without `default` does."
        ),
    )
    per_namespace: dict[str, Amount] | None = _amounts(
        "The most of each resource that the policies of each namespace may have together, filled and held "
        "slots: what a slot holds times the number of slots. slots limits their number. A resource that is "
        "not named has no limit. Bandwidth: j10ce.io/egress-bandwidth and j10ce.io/ingress-bandwidth, in "
        "bits a second."
    )
    total: dict[str, Amount] | None = _amounts(
        "The most of each resource that the policies of all these namespaces may have together."
    )
    priority_class_names: _Names | None = Field(
        default=None,
        description=(
            "The PriorityClasses that policies may have, named by themselves or by their QoSProfile; one "
            "that names none has nothing held. Default: any."
        ),
    )
    profile_names: _Names | None = Field(
        default=None,
        description=(
            "The QoSProfiles that policies may name; one that names none has nothing held. Default: any."
        ),
    )

    @model_validator(mode="after")
    def _limits_something(self) -> ReservationBudgetSpec:
        limits = (self.per_namespace, self.total, self.priority_class_names, self.profile_names)
        if all(one is None for one in limits):
            raise ValueError(_NOTHING_MESSAGE)
        for field, amounts in (("perNamespace", self.per_namespace), ("total", self.total)):
            for name, value in (amounts or {}).items():
                _refuse_no_amount(field, name, value)
        for field, names in (
            ("priorityClassNames", self.priority_class_names),
            ("profileNames", self.profile_names),
        ):
            if names is not None and len(set(names)) < len(names):
                raise ValueError(f"{field}: {names!r}: Duplicate value")
        return self


class AmountStatus(Reported):
    """One resource of a budget."""

    resource: str = Field(max_length=317, description="The resource, or slots.")
    used: str = Field(max_length=64, description="What the budget has given to policies, as a quantity.")
    hard: str = Field(max_length=64, description="The most that it gives.")
    left: str = Field(max_length=64, description="hard less used; 0 where less than nothing is left.")


def _amounts_status(description: str) -> Any:
    return Field(
        default=None,
        max_length=16,
        description=description,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class NamespaceStatus(Reported):
    """One namespace's part of a budget."""

    name: str = Field(max_length=253, description="The namespace.")
    policies: int = Field(ge=0, description="The policies there that ask for slots.")
    exceeding: int = Field(ge=0, description="Those of them that ask for more than they are given.")
    amounts: list[AmountStatus] | None = _amounts_status("What they have, of spec.perNamespace.")


class ReservationBudgetStatus(Reported):
    """What is used of the budget now; the extender writes it."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation this was computed from."
    )
    namespaces: int | None = Field(
        default=None, ge=0, description="The namespaces with policies that the budget concerns."
    )
    policies: int | None = Field(default=None, ge=0, description="Their policies that ask for slots.")
    exceeding: int | None = Field(
        default=None, ge=0, description="Those of them that ask for more than this budget leaves to them."
    )
    total: list[AmountStatus] | None = _amounts_status("What all of them have together, of spec.total.")
    per_namespace: list[NamespaceStatus] | None = Field(
        default=None,
        max_length=MOST_NAMESPACES,
        description=f"The {MOST_NAMESPACES} namespaces that have most of what they may have, fullest first.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    used_of_total: str | None = Field(
        default=None, max_length=2048, description="total as text, such as `cpu: 12/200, memory: 48Gi/1Ti`."
    )
    fullest: str | None = Field(
        default=None,
        max_length=2048,
        description="The first of perNamespace as text, such as `shop: cpu: 38/40, slots: 19/100`.",
    )
    conditions: list[Condition] | None = Field(
        default=None,
        max_length=8,
        description=(
            "Exceeded: policies ask for more than the budget gives; the message names the first of them."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


class ReservationBudget(Model):
    """The most that the policies of each selected namespace may have, and those of all of them together."""

    api_version: Literal["j10ce.io/v1alpha1"] = "j10ce.io/v1alpha1"
    kind: Literal["ReservationBudget"] = "ReservationBudget"
    metadata: ObjectMeta = ObjectMeta()
    spec: ReservationBudgetSpec = Field(description="Whose policies may have how much, and of which kind.")
    status: ReservationBudgetStatus | None = Field(
        default=None, description="What is used of the budget now; the extender writes it."
    )
