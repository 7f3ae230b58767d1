"""Bandwidth in a policy: bits a second, as Kubernetes quantities."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, StrictInt, StrictStr, WithJsonSchema, model_validator

from qos.api.fields import AT_MOST_LARGEST, INT_OR_STRING, LARGEST_QUANTITY, Model, cel, validations
from qos.keys import BANDWIDTHS
from qos.quantity import QuantityError, has_fraction_of_unit, parse

SMALLEST_BANDWIDTH: Final = "1k"
"""Bits a second; below it nothing real is meant, and no shaper is exact."""
LONGEST_BANDWIDTH: Final = 18
"""Characters: so many digits the API server counts exactly, and four more than the largest bandwidth has."""

_WHOLE_BITS: Final = (
    "must be whole bits a second: m means thousandths and M millions, so 100M was probably meant, not 100m"
)
_NO_BANDWIDTH: Final = (
    f"must be a quantity of bits a second, at least {SMALLEST_BANDWIDTH}, such as 100M or 2.5G"
)


def _bandwidth(value: int | str) -> int | str:
    try:
        amount, split = parse("", value), has_fraction_of_unit("", value)
    except QuantityError:
        raise ValueError(f"{value!r} {_NO_BANDWIDTH}") from None
    if split or len(str(value)) > LONGEST_BANDWIDTH:
        raise ValueError(f"{value!r} {_WHOLE_BITS}")
    if amount < parse("", SMALLEST_BANDWIDTH):
        raise ValueError(f"{value!r} {_NO_BANDWIDTH}")
    if amount > parse("", LARGEST_QUANTITY):
        raise ValueError(f"{value!r} must be at most {LARGEST_QUANTITY}")
    return value


Bandwidth: TypeAlias = Annotated[
    StrictInt | StrictStr,
    AfterValidator(_bandwidth),
    WithJsonSchema(
        INT_OR_STRING
        | validations(
            cel(
                f"type(self) == int ? self >= {parse('', SMALLEST_BANDWIDTH)}"
                f" : isQuantity(self) && !quantity(self).isLessThan(quantity('{SMALLEST_BANDWIDTH}'))",
                _NO_BANDWIDTH,
            ),
            cel(
                f"type(self) == int || !isQuantity(self) || size(self) <= {LONGEST_BANDWIDTH}"
                " && (self.endsWith('i') ? !self.contains('.') : quantity(self).isInteger())",
                _WHOLE_BITS,
            ),
            AT_MOST_LARGEST,
        )
    ),
]
"""Bits a second as a quantity, as it was written: 100M, 2.5G, 1000000."""

_NO_DIRECTION: Final = "must name egress, ingress or both"
_BELOW_FLOOR: Final = "must be no less than the floor"


class Network(Model):
    """Bandwidth of each pod, in bits a second."""

    model_config = ConfigDict(
        json_schema_extra=validations(cel("has(self.egress) || has(self.ingress)", _NO_DIRECTION))
    )

    egress: Bandwidth | None = Field(
        default=None, description="What the pod sends, in bits a second, such as 100M or 2.5G."
    )
    ingress: Bandwidth | None = Field(
        default=None, description="What the pod receives, in bits a second, such as 100M or 2.5G."
    )

    @model_validator(mode="after")
    def _names_a_direction(self) -> Network:
        if self.egress is None and self.ingress is None:
            raise ValueError(f"network {_NO_DIRECTION}")
        return self


class Limit(Model):
    """The most that each pod gets, even of what is idle."""

    network: Network = Field(description="Bandwidth of each pod at most, in bits a second.")


def no_less_than_floor(direction: str) -> dict[str, str]:
    """The rule for one direction; what is no quantity has a message of its own."""
    floor, limit = (f"self.{part}.network.{direction}" for part in ("floor", "limit"))
    return cel(
        f"!has(self.limit) || !has({limit}) || !has(self.floor.network) || !has({floor})"
        f" || !isQuantity(string({floor})) || !isQuantity(string({limit}))"
        f" || !quantity(string({limit})).isLessThan(quantity(string({floor})))",
        _BELOW_FLOOR,
        field=f".limit.network.{direction}",
    )


def refuse_below_floor(floor: Network | None, limit: Network | None) -> None:
    """The same for files. ValueError names the direction and both values."""
    for direction in BANDWIDTHS if floor and limit else ():
        least, most = getattr(floor, direction), getattr(limit, direction)
        if least is not None and most is not None and parse("", most) < parse("", least):
            raise ValueError(f"limit.network.{direction}: {most!r} {_BELOW_FLOOR}, {least!r}")
