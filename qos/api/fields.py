"""The base of all models, and the field types that the API server and we check alike.

Each type carries its check twice: as Python for files that people hand to our commands, and as schema or
CEL for the API server, which refuses a bad object before anyone stores it. One table of bad objects,
tests/data/policies/refused.yaml, goes through both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, StrictInt, StrictStr, WithJsonSchema
from pydantic.alias_generators import to_camel

from qos.cluster.policy import FIRST_MOMENT, LAST_MOMENT
from qos.quantity import parse

MAX_SLOTS: Final = 100_000
"""Largest number of slots of one policy; times LARGEST_QUANTITY it still fits a signed 64-bit integer."""
LONGEST_DELAY: Final = 604_800
"""Seconds; a week."""
LONGEST_LIFE: Final = 315_360_000
"""Seconds; ten years."""
LARGEST_QUANTITY: Final = "64Ti"
"""Largest amount of one resource in a floor: 64 TiB, or 2**46 of anything else."""

DNS_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
QUALIFIED_NAME: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
PERCENTAGE: Final = r"^[0-9]{1,3}%$"


class Model(BaseModel):
    """A part of a custom resource; JSON names are camelCase, unknown fields are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, strict=True
    )

    def to_json(self) -> dict[str, Any]:
        """The object as the API server has it: JSON names, nothing that is unset."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Reported(Model):
    """A part that someone else writes, perhaps in a newer version: fields we do not know are ignored."""

    model_config = ConfigDict(extra="ignore", strict=False)


def cel(rule: str, message: str, *, field: str = "") -> dict[str, str]:
    """One x-kubernetes-validations entry.

    `field`: the path, relative to where the rule stands, that the error shall name.
    """
    entry = {"rule": rule, "message": message}
    if field:
        entry["fieldPath"] = field
    return entry


def validations(*rules: Mapping[str, str]) -> dict[str, Any]:
    """The JSON-schema extra that declares CEL rules."""
    return {"x-kubernetes-validations": [dict(rule) for rule in rules]}


def _surge(value: int | str) -> int | str:
    if isinstance(value, str) and not re.fullmatch(PERCENTAGE, value):
        raise ValueError(f"{value!r} is neither a number of slots nor a percentage such as 25%")
    if isinstance(value, int) and not 0 <= value <= MAX_SLOTS:
        raise ValueError(f"{value} must be between 0 and {MAX_SLOTS}")
    return value


INT_OR_STRING: dict[str, Any] = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
}

AT_MOST_LARGEST: Final = cel(
    f"type(self) == int ? self <= {parse('', LARGEST_QUANTITY)}"
    f" : !isQuantity(self) || !quantity(self).isGreaterThan(quantity('{LARGEST_QUANTITY}'))",
    f"must be at most {LARGEST_QUANTITY}",
)

Quantity: TypeAlias = Annotated[
    StrictInt | StrictStr,
    WithJsonSchema(
        INT_OR_STRING
        | validations(
            cel(
                "type(self) == int ? self > 0"
                " : isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",
                "must be a quantity greater than zero, such as 500m, 2 or 4Gi",
            ),
            AT_MOST_LARGEST,
        )
    ),
]
"""A Kubernetes quantity above zero, as it was written; Floor checks it, because only there it has a name."""

SurgeAmount: TypeAlias = Annotated[
    StrictInt | StrictStr,
    AfterValidator(_surge),
    WithJsonSchema(
        INT_OR_STRING
        | validations(
            cel(
                f"type(self) == int ? self >= 0 && self <= {MAX_SLOTS} : self.matches('{PERCENTAGE}')",
                "must be a number of slots, or a percentage such as 25%",
            )
        )
    ),
]
"""A number of slots, or a percentage of the replicas."""


def _moment(value: str) -> str:
    if not re.fullmatch(_RFC3339, value):
        raise ValueError(_NO_MOMENT)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError(f"{_NO_MOMENT}: {error}") from None
    if not FIRST_MOMENT <= moment.timestamp() <= LAST_MOMENT:
        raise ValueError(_OTHER_ERA)
    return value


_RFC3339 = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
_NO_MOMENT = "must be of type date-time, such as 2027-01-15T08:00:00Z"
_FIRST, _LAST = (
    datetime.fromtimestamp(one, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for one in (FIRST_MOMENT, LAST_MOMENT)
)
_OTHER_ERA = f"must be from {_FIRST} to {_LAST}"

Moment: TypeAlias = Annotated[
    StrictStr,
    AfterValidator(_moment),
    WithJsonSchema(
        {"type": "string", "format": "date-time"}
        | validations(cel(f"self >= timestamp('{_FIRST}') && self <= timestamp('{_LAST}')", _OTHER_ERA))
    ),
]
"""A moment as RFC 3339 writes it, with its offset from UTC; kept as it was written."""
