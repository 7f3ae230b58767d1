"""Upstream's types that our resources use: metadata, selectors, tolerations, conditions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from qos.api.fields import LABEL_VALUE, QUALIFIED_NAME, Model, Reported, cel, validations

LabelKey = Annotated[str, StringConstraints(pattern=QUALIFIED_NAME, max_length=317)]
LabelValue = Annotated[str, StringConstraints(pattern=LABEL_VALUE, max_length=63)]


class ObjectMeta(Reported):
    """The metadata we read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: datetime | None = None


class SelectorRequirement(Model):
    """One expression on a label."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0"
                " : !has(self.values) || size(self.values) == 0",
                "values must be given for In and NotIn, and for no other operator",
                field=".values",
            )
        )
    )

    key: LabelKey = Field(description="The label's key.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How the values are compared."
    )
    values: list[LabelValue] | None = Field(
        default=None,
        max_length=64,
        description="Values to compare with. For In and NotIn only, and required there.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )

    @model_validator(mode="after")
    def _values_as_operator_needs(self) -> SelectorRequirement:
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            raise ValueError("values must be given for In and NotIn, and for no other operator")
        return self


class LabelSelector(Model):
    """Selects pods by their labels; all of it must match. Upstream's LabelSelector, never empty."""

    model_config = ConfigDict(
        json_schema_extra={"x-kubernetes-map-type": "atomic"}
        | validations(
            cel(
                "(has(self.matchLabels) && size(self.matchLabels) > 0)"
                " || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
                "must select something: give matchLabels or matchExpressions",
            )
        )
    )

    match_labels: dict[LabelKey, LabelValue] | None = Field(
        default=None, max_length=32, description="Labels that a pod must have, with these values."
    )
    match_expressions: list[SelectorRequirement] | None = Field(
        default=None,
        max_length=32,
        description="Expressions that a pod's labels must satisfy.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )

    @model_validator(mode="after")
    def _not_empty(self) -> LabelSelector:
        if not self.match_labels and not self.match_expressions:
            raise ValueError("must select something: give matchLabels or matchExpressions")
        return self


class Toleration(Model):
    """A taint that slots may be held in spite of. Upstream's, without tolerationSeconds."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "has(self.key) && size(self.key) > 0 || (has(self.operator) && self.operator == 'Exists')",
                "operator must be Exists when key is empty",
                field=".operator",
            ),
            cel(
                (
                    "!has(self.operator) || self.operator == 'Equal' || !has(self.value) || "
                    "size(self.value) == 0"
                ),
                "value must be empty when operator is Exists",
                field=".value",
            ),
        )
    )

    key: LabelKey | None = Field(
        default=None, description="The taint's key. Empty with operator Exists: every taint."
    )
    operator: Literal["Equal", "Exists"] = Field(
        default="Equal", description="Equal compares the value; Exists accepts every value."
    )
    value: LabelValue | None = Field(default=None, description="The taint's value, for operator Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="The taint's effect. Empty: every effect."
    )

    @model_validator(mode="after")
    def _as_upstream(self) -> Toleration:
        if not self.key and self.operator != "Exists":
            raise ValueError("operator must be Exists when key is empty")
        if self.operator == "Exists" and self.value:
            raise ValueError("value must be empty when operator is Exists")
        return self


class TopologySpreadConstraint(Model):
    """How evenly slots and pods lie over a node label's values. Upstream's, without matchLabelKeys."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
                "minDomains needs whenUnsatisfiable: DoNotSchedule",
                field=".minDomains",
            )
        )
    )

    max_skew: int = Field(
        ge=1,
        le=100_000,
        description="How many more of the pods one domain may have than the domain with the fewest.",
    )
    topology_key: LabelKey = Field(
        description=(
            "The node label whose values are the domains, such as topology.kubernetes.io/zone. With "
            "DoNotSchedule nothing is held on a node without it."
        )
    )
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        description="DoNotSchedule: what cannot be spread so is unplaced. ScheduleAnyway: a preference."
    )
    label_selector: LabelSelector | None = Field(
        default=None,
        description="The pods of this namespace that count. Default: the policy's selector.",
    )
    min_domains: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description=(
            "With fewer domains than this, the domain with the fewest counts as one without pods. Only with "
            "DoNotSchedule. Default 1."
        ),
    )
    node_affinity_policy: Literal["Honor", "Ignore"] = Field(
        default="Honor", description="Honor: nodes that the policy's nodeSelector excludes are in no domain."
    )
    node_taints_policy: Literal["Honor", "Ignore"] = Field(
        default="Ignore", description="Honor: nodes with a taint that is not tolerated are in no domain."
    )

    @model_validator(mode="after")
    def _as_upstream(self) -> TopologySpreadConstraint:
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            raise ValueError("minDomains needs whenUnsatisfiable: DoNotSchedule")
        return self


class Condition(Reported):
    """One aspect of an object's state, as upstream has it."""

    type: str = Field(max_length=316, description="The aspect, in CamelCase.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    observed_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation this was computed from."
    )
    last_transition_time: datetime = Field(description="When the status last changed.")
    reason: str = Field(
        min_length=1,
        max_length=1024,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Why, as one word for programs.",
    )
    message: str = Field(max_length=32768, description="Why, for people.")
