"""Resource lists and requests of decoded objects, as vectors in canonical units.

Pods of one template ask the same, so a request is computed once a kind of pod: the parts that decide it, as
they are written, are the key under which the vector is kept, and all such pods share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from adapters.kubernetes.wire import (
    Amounts,
    Container,
    ContainerStatus,
    DecodeError,
    Metadata,
    PodSpec,
    PodStatus,
    Resources,
    TemplateSpec,
    key_of,
)
from qos.cluster.objects import Resources as Vector
from qos.cluster.requests import RESTARTABLE, ResourceRequirements, is_infeasible, total
from qos.quantity import QuantityError, parse

_Items: TypeAlias = tuple[tuple[str, str | float], ...]
_Parts: TypeAlias = tuple[_Items, _Items, bool, _Items | None, _Items | None]
"""ResourceRequirements that can be a key: requests, limits, restartable, actuated, allocated."""

_NO_STATUS = PodStatus()


def request_of(
    kind: str, metadata: Metadata, spec: PodSpec | TemplateSpec, status: PodStatus | None = None
) -> Vector:
    """The effective request of a pod or template (qos.cluster.requests). DecodeError."""
    status = status or _NO_STATUS
    reported = _reported(status)
    try:
        return _request(
            tuple([_parts(container, reported) for container in spec.containers or ()]),
            tuple([_parts(container, reported) for container in spec.init_containers or ()]),
            _pod_level(spec.resources, status) if spec.resources else None,
            _items(spec.overhead),
            tuple([_items(c.resources) for c in status.node_allocatable_resource_claim_statuses or ()]),
            _infeasible(status) if reported or status.resources else False,
        )
    except QuantityError as error:
        field = f"resources of {error.resource}"
        raise DecodeError(kind, key_of(metadata), field, error.value, str(error)) from None


@lru_cache(maxsize=16384)
def _request(
    containers: tuple[_Parts, ...],
    init_containers: tuple[_Parts, ...],
    pod_level: _Parts | None,
    overhead: _Items,
    claimed: tuple[_Items, ...],
    infeasible: bool,
) -> Vector:
    return total(
        [_ask(parts) for parts in containers],
        [_ask(parts) for parts in init_containers],
        pod_level=_ask(pod_level) if pod_level else None,
        overhead=dict(overhead),
        claimed=[dict(items) for items in claimed],
        infeasible=infeasible,
    )


def vector_of(kind: str, metadata: Metadata, field: str, amounts: Mapping[str, str | float]) -> Vector:
    """A resource list as a vector. DecodeError names the entry as a part of `field`."""
    try:
        return {resource: parse(resource, text) for resource, text in amounts.items()}
    except QuantityError as error:
        path = f"{field}.{error.resource}"
        raise DecodeError(kind, key_of(metadata), path, error.value, str(error)) from None


def _ask(parts: _Parts) -> ResourceRequirements:
    requests, limits, restartable, actuated, allocated = parts
    return ResourceRequirements(
        dict(requests),
        dict(limits),
        restartable,
        None if actuated is None else dict(actuated),
        None if allocated is None else dict(allocated),
    )


def _reported(status: PodStatus) -> dict[str, ContainerStatus]:
    if status.container_statuses is None and status.init_container_statuses is None:
        return {}
    statuses = [*(status.container_statuses or ()), *(status.init_container_statuses or ())]
    return {s.name: s for s in statuses if s.resources is not None or s.allocated_resources is not None}


def _parts(container: Container, reported: Mapping[str, ContainerStatus]) -> _Parts:
    resources, status = container.resources, reported.get(container.name)
    return (
        _items(resources.requests) if resources else (),
        _items(resources.limits) if resources else (),
        container.restart_policy == RESTARTABLE,
        _actuated(status.resources) if status else None,
        _allocated(status.allocated_resources) if status else None,
    )


def _pod_level(resources: Resources, status: PodStatus) -> _Parts:
    actuated, allocated = _actuated(status.resources), _allocated(status.allocated_resources)
    return (_items(resources.requests), _items(resources.limits), False, actuated, allocated)


def _items(amounts: Amounts | None) -> _Items:
    return tuple(amounts.items()) if amounts else ()


def _actuated(resources: Resources | None) -> _Items | None:
    return None if resources is None else _items(resources.requests)


def _allocated(amounts: Amounts | None) -> _Items | None:
    return None if amounts is None else _items(amounts)


def _infeasible(status: PodStatus) -> bool:
    return is_infeasible(status.resize, [(c.type, c.reason) for c in status.conditions or ()])
