"""QoSProfile: what a pod may expect of a node, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, create_model, model_validator
from pydantic.alias_generators import to_camel

from qos.api.fields import DNS_SUBDOMAIN, LARGEST_QUANTITY, Model, Quantity, cel, validations
from qos.api.network import Network
from qos.api.upstream import ObjectMeta
from qos.classes import (
    BURST_WITHOUT_QUOTA,
    CLASSES,
    IDLE_ON_OWN_CPUS,
    IDLE_WITH_FLOOR,
    WEIGHT_OF_IDLE,
    Contradiction,
    QosClass,
    contradiction,
    promises_of,
)
from qos.promises import PINNED, PROMISES, CpuQuota, IoLimit, Overrides, Promise
from qos.quantity import parse

_NO_LIMIT: Final = "ioLimit must limit something"
_NO_TRAFFIC: Final = "network must have band, limit or both"


def _known_class(name: str) -> str:
    if name not in CLASSES:
        raise ValueError(f"must be one of {', '.join(CLASSES)}")
    return name


ClassName = Annotated[
    str, AfterValidator(_known_class), WithJsonSchema({"type": "string", "enum": list(CLASSES)})
]
"""A row of qos.classes."""


class DiskLimit(Model):
    """The most that each container may read from and write to each disk."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "has(self.readBytesPerSecond) || has(self.writeBytesPerSecond)"
                " || has(self.readOperationsPerSecond) || has(self.writeOperationsPerSecond)",
                _NO_LIMIT,
            )
        )
    )

    read_bytes_per_second: Quantity | None = Field(
        default=None, description="Bytes read per second and disk, such as 50Mi. Default: no limit."
    )
    write_bytes_per_second: Quantity | None = Field(
        default=None, description="Bytes written per second and disk, such as 50Mi. Default: no limit."
    )
    read_operations_per_second: int | None = Field(
        default=None, ge=1, le=2**31, description="Reads per second and disk. Default: no limit."
    )
    write_operations_per_second: int | None = Field(
        default=None, ge=1, le=2**31, description="Writes per second and disk. Default: no limit."
    )

    @model_validator(mode="after")
    def _limits_something(self) -> DiskLimit:
        if not self.model_dump(exclude_none=True):
            raise ValueError(_NO_LIMIT)
        for name in ("read_bytes_per_second", "write_bytes_per_second"):
            value = getattr(self, name)
            if value is not None and not 0 < parse(to_camel(name), value) <= parse("", LARGEST_QUANTITY):
                raise ValueError(
                    f"{to_camel(name)}: {value!r} must be above 0, and at most {LARGEST_QUANTITY}"
                )
        return self

    def limit(self) -> IoLimit:
        """The same limits as the domain's own type."""
        return IoLimit(
            read_bytes=parse("", self.read_bytes_per_second or 0),
            write_bytes=parse("", self.write_bytes_per_second or 0),
            read_operations=self.read_operations_per_second or 0,
            write_operations=self.write_operations_per_second or 0,
        )


class _Otherwise(Model):
    def overrides(self) -> Overrides:
        """The fields that are set, as the domain's overrides."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: _in_domain(name, value) for name, value in given.items() if value is not None}


def _in_domain(name: str, value: Any) -> Any:
    kind = PROMISES[name].kind
    if isinstance(value, DiskLimit):
        return value.limit()
    return kind(value) if issubclass(kind, Enum) else value


def _field(promise: Promise) -> tuple[Any, Any]:
    kind, meaning, low, high = promise
    written: Any = DiskLimit if kind is IoLimit else kind
    if issubclass(kind, Enum):
        written = Literal[tuple(one.value for one in kind)]
    return written | None, Field(default=None, ge=low, le=high, description=meaning)


if TYPE_CHECKING:
    PromisedOtherwise: TypeAlias = _Otherwise
else:
    PromisedOtherwise = create_model(
        "PromisedOtherwise",
        __base__=_Otherwise,
        __doc__="Promises that differ from the class's; a field that is unset keeps what the class promises.",
        **{name: _field(promise) for name, promise in PROMISES.items()},
    )


def _classes(where: Callable[[QosClass], bool]) -> list[str]:
    """The classes for which a condition holds; an f-string renders them as a CEL list."""
    return [name for name, row in CLASSES.items() if where(row)]


def _promised(name: str, test: str, classes: Sequence[str] = ()) -> str:
    """CEL: the promise is overridden so that `test` holds, or is not, and the class is one of these."""
    return f"(has(self.promises) && has(self.promises.{name}) ? {test} : self.class in {list(classes)})"


def _never(reason: Contradiction, *conditions: str) -> dict[str, str]:
    """The rule that not all the conditions hold."""
    return cel(f"!({' && '.join(conditions)})", reason.why, field=f".promises.{to_camel(reason.field)}")


def _rules() -> Iterable[dict[str, str]]:
    """qos.classes.contradiction as CEL."""
    idle = _promised("cpuIdle", "self.promises.cpuIdle", _classes(lambda row: row.promises.cpu_idle))
    pinned = _promised(
        "cpus",
        f"self.promises.cpus in {sorted(cpus.value for cpus in PINNED)}",
        _classes(lambda row: row.promises.cpus in PINNED),
    )
    unlimited = _promised(
        "cpuQuota",
        f"self.promises.cpuQuota == '{CpuQuota.NONE.value}'",
        _classes(lambda row: row.promises.cpu_quota is CpuQuota.NONE),
    )
    yield _never(IDLE_WITH_FLOOR, idle, f"self.class in {_classes(lambda row: row.has_floor)}")
    yield _never(IDLE_ON_OWN_CPUS, idle, pinned)
    yield _never(WEIGHT_OF_IDLE, idle, _promised("cpuWeight", "true"))
    yield _never(
        BURST_WITHOUT_QUOTA, unlimited, _promised("cpuBurstPercent", "self.promises.cpuBurstPercent > 0")
    )


class Traffic(Model):
    """What each pod may expect of its node's network."""

    model_config = ConfigDict(
        json_schema_extra=validations(cel("has(self.band) || has(self.limit)", _NO_TRAFFIC))
    )

    band: Literal["L0", "L1", "L2"] | None = Field(
        default=None,
        description=(
            "Whose traffic goes first where a link is contended: L0, which the node itself has, before L1, L1"
            f" before L2. Default: {', '.join(f'{name} {row.band.name}' for name, row in CLASSES.items())}."
            " It stands above what terway-qos' annotation on a pod says."
        ),
    )
    limit: Network | None = Field(
        default=None,
        description=(
            "The most that each pod may send and receive, even of what is idle, in bits a second. Where"
            " others limit a pod, too, the least counts. Default: no limit."
        ),
    )

    @model_validator(mode="after")
    def _says_something(self) -> Traffic:
        if self.band is None and self.limit is None:
            raise ValueError(_NO_TRAFFIC)
        return self


class QoSProfileSpec(Model):
    """What policies that use this profile have in common."""

    model_config = ConfigDict(json_schema_extra=validations(*_rules()))

    class_name: ClassName = Field(
        alias="class",
        description=(
            f"The class: {', '.join(f'{name} ({row.meaning})' for name, row in CLASSES.items())}. Without a "
            f"floor, so that nothing is held for a policy: {', '.join(_classes(lambda r: not r.has_floor))}."
        ),
    )
    description: str | None = Field(
        default=None, max_length=1024, description="What the profile is for, for people."
    )
    priority_class_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=DNS_SUBDOMAIN,
        description="The PriorityClass of policies that use this profile and name none themselves.",
    )
    promises: PromisedOtherwise | None = Field(
        default=None,
        description=(
            "What is promised otherwise than the class has it. It stands above what Koordinator's and "
            "Katalyst's annotations on a pod say."
        ),
    )
    network: Traffic | None = Field(
        default=None, description="What each pod may expect of its node's network."
    )

    @model_validator(mode="after")
    def _promises_that_can_be_kept(self) -> QoSProfileSpec:
        found = contradiction(self.class_name, promises_of(self.class_name, self.overrides()))
        if found:
            raise ValueError(f"promises.{to_camel(found.field)}: {found.why}")
        return self

    def overrides(self) -> Overrides:
        """The promises in which the profile differs from its class."""
        return self.promises.overrides() if self.promises else {}


class QoSProfile(Model):
    """A class of service under a name. A policy that names it needs RBAC verb `use` on it."""

    api_version: Literal["j10ce.io/v1alpha1"] = "j10ce.io/v1alpha1"
    kind: Literal["QoSProfile"] = "QoSProfile"
    metadata: ObjectMeta = ObjectMeta()
    spec: QoSProfileSpec = Field(description="What the profile's policies have in common.")
