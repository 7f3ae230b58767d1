"""The base of the scenario models and the field types they share."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from qos import quantity
from qos.api.fields import Quantity

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0}


class Model(BaseModel):
    """A part of a scenario; names are camelCase, unknown fields are refused, values do not change."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


def _seconds(value: object) -> object:
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m)", value)
        if match is None:
            raise ValueError(f"{value!r} is not a time such as 500ms, 30s or 2m")
        return float(match[1]) * _SECONDS[match[2]]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a time such as 500ms, 30s or 2m")
    return value


Seconds: TypeAlias = Annotated[
    float,
    BeforeValidator(_seconds),
    Field(ge=0, le=3600),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0},
                {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?(ms|s|m)$"},
            ]
        }
    ),
]
"""A time: 500ms, 30s, 2m, or a number of seconds."""

Name: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$")]
"""A name of one object or group, as Kubernetes allows it, at most 40 characters."""


def _quantity(value: int | str) -> int | str:
    try:
        amount = quantity.parse("", value)
    except quantity.QuantityError as error:
        raise ValueError(f"{value!r} is not a quantity such as 500m, 2 or 4Gi") from error
    if amount <= 0:
        raise ValueError(f"{value!r} must be greater than zero")
    return value


Amounts: TypeAlias = dict[str, Annotated[Quantity, AfterValidator(_quantity)]]
"""A ResourceList."""


class Range(Model):
    """A number within bounds."""

    at_least: int | None = Field(default=None, ge=0)
    at_most: int | None = Field(default=None, ge=0)

    def admits(self, value: int) -> bool:
        """Whether a number is within them."""
        low = self.at_least is None or value >= self.at_least
        return low and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        """As people say it."""
        low = f"at least {self.at_least}" if self.at_least is not None else ""
        high = f"at most {self.at_most}" if self.at_most is not None else ""
        return " and ".join(part for part in (low, high) if part) or "any"


Number: TypeAlias = Annotated[int, Field(ge=0)] | Range
"""A number, or bounds for it."""


def admits(wanted: Number, value: int) -> bool:
    """Whether a number is as wanted."""
    return wanted.admits(value) if isinstance(wanted, Range) else value == wanted
