"""Resource lists and requests of decoded objects, as vectors in canonical units.

Pods of one template ask the same, so a request is computed once a kind of pod: the parts that decide it, as
they are written, are the key under which the vector is kept, and all such pods share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from adapters.kubernetes.wire import (
    LONGEST_KEPT,
    Amounts,
    ClaimStatus,
    Container,
    DecodeError,
    Identity,
    PodSpec,
    PodStatus,
    Resources,
    TemplateSpec,
    key_of,
    written,
)
from qos.cluster.objects import Resources as Vector
from qos.cluster.requests import (
    RESIZE_PENDING,
    RESTARTABLE,
    ResourceRequirements,
    is_infeasible,
    total,
)
from qos.quantity import QuantityError, parse

_Parts: TypeAlias = tuple[bytes, bool, bytes, bytes]
"""ResourceRequirements as written: resources, restartable, the status' resources, allocatedResources."""

_NO_STATUS: Final = PodStatus()
_LEAST: Final = 64
"""What a container that states nothing counts for."""
_RESOURCES: Final = msgspec.json.Decoder(Resources)
_AMOUNTS: Final = msgspec.json.Decoder(Amounts)
_CLAIMS: Final = msgspec.json.Decoder(list[ClaimStatus])


def request_of(
    kind: str, metadata: Identity, spec: PodSpec | TemplateSpec, status: PodStatus | None = None
) -> Vector:
    """The effective request of a pod or template (qos.cluster.requests). DecodeError."""
    status = status or _NO_STATUS
    reported = _reported(status)
    pod_level = written(spec.resources)
    containers = tuple([_parts(container, reported) for container in spec.containers or ()])
    init_containers = tuple([_parts(container, reported) for container in spec.init_containers or ()])
    make = _request if _length(containers, init_containers) <= LONGEST_KEPT else _request.__wrapped__
    try:
        return make(
            containers,
            init_containers,
            (pod_level, False, written(status.resources), written(status.allocated_resources))
            if pod_level
            else None,
            written(spec.overhead),
            written(status.node_allocatable_resource_claim_statuses),
            bool(reported or pod_level) and _infeasible(status),
        )
    except QuantityError as error:
        field = f"resources of {error.resource}"
        raise DecodeError(kind, key_of(metadata), field, error.value, str(error)) from None
    except msgspec.MsgspecError as error:
        as_written = [written(one.resources).decode() for one in spec.containers or ()]
        raise DecodeError(kind, key_of(metadata), "resources", as_written, str(error)) from None


def _length(*parts: tuple[_Parts, ...]) -> int:
    return sum([_LEAST + len(stated) for some in parts for stated, *_ in some])


@lru_cache(maxsize=16384)
def _request(
    containers: tuple[_Parts, ...],
    init_containers: tuple[_Parts, ...],
    pod_level: _Parts | None,
    overhead: bytes,
    claimed: bytes,
    infeasible: bool,
) -> Vector:
    return total(
        [_ask(parts) for parts in containers],
        [_ask(parts) for parts in init_containers],
        pod_level=_ask(pod_level) if pod_level else None,
        overhead=_amounts(overhead) or {},
        claimed=[claim.resources or {} for claim in (_CLAIMS.decode(claimed) if claimed else ())],
        infeasible=infeasible,
    )


def vector_of(kind: str, metadata: Identity, field: str, amounts: Mapping[str, str | float]) -> Vector:
    """A resource list as a vector. DecodeError names the entry as a part of `field`."""
    try:
        return {resource: parse(resource, text) for resource, text in amounts.items()}
    except QuantityError as error:
        path = f"{field}.{error.resource}"
        raise DecodeError(kind, key_of(metadata), path, error.value, str(error)) from None


def resources_in(kind: str, metadata: Identity, field: str, raw: msgspec.Raw) -> Resources | None:
    """ResourceRequirements as written; None where there are none. DecodeError."""
    text = written(raw)
    try:
        return _resources(text)
    except msgspec.MsgspecError as error:
        raise DecodeError(kind, key_of(metadata), field, text.decode(), str(error)) from None


def overhead_of(kind: str, metadata: Identity, spec: PodSpec) -> Vector:
    """What a pod's RuntimeClass adds. DecodeError."""
    text = written(spec.overhead)
    try:
        amounts = _amounts(text)
    except msgspec.MsgspecError as error:
        raise DecodeError(kind, key_of(metadata), "spec.overhead", text.decode(), str(error)) from None
    return vector_of(kind, metadata, "spec.overhead", amounts or {})


def _resources(text: bytes) -> Resources | None:
    return _few_resources(text) if len(text) <= LONGEST_KEPT else _RESOURCES.decode(text)


@lru_cache(maxsize=16384)
def _few_resources(text: bytes) -> Resources | None:
    return _RESOURCES.decode(text) if text else None


def _amounts(text: bytes) -> Amounts | None:
    return _AMOUNTS.decode(text) if text else None


def _ask(parts: _Parts) -> ResourceRequirements:
    resources, restartable, actuated, allocated = parts
    stated, set_ = _resources(resources), _resources(actuated)
    return ResourceRequirements(
        (stated.requests if stated else None) or {},
        (stated.limits if stated else None) or {},
        restartable,
        None if set_ is None else set_.requests or {},
        _amounts(allocated),
    )


def _reported(status: PodStatus) -> dict[str, tuple[bytes, bytes]]:
    """What the kubelet says of each container that it says something of: actuated, allocated."""
    found: dict[str, tuple[bytes, bytes]] = {}
    for statuses in (status.container_statuses, status.init_container_statuses):
        for one in statuses or ():
            said = written(one.resources), written(one.allocated_resources)
            if said != _SILENT:
                found[one.name] = said
    return found


_SILENT: Final = (b"", b"")


def _parts(container: Container, reported: Mapping[str, tuple[bytes, bytes]]) -> _Parts:
    actuated, allocated = reported.get(container.name, _SILENT)
    return written(container.resources), container.restart_policy == RESTARTABLE, actuated, allocated


def _infeasible(status: PodStatus) -> bool:
    pending = [(c.type, c.reason) for c in status.conditions or () if c.type == RESIZE_PENDING]
    return is_infeasible(status.resize, pending)
