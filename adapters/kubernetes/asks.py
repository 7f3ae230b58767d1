"""Resource lists and requests of decoded objects, as vectors in canonical units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

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
from qos.objects import Resources as Vector
from qos.quantity import QuantityError, parse
from qos.requests import RESTARTABLE, Ask, is_infeasible, total

_NOTHING: Amounts = {}
_NO_STATUS = PodStatus()


def request_of(
    kind: str, metadata: Metadata, spec: PodSpec | TemplateSpec, status: PodStatus | None = None
) -> Vector:
    """The effective request of a pod or template (qos.requests), one mapping for all that ask the same."""
    status = status or _NO_STATUS
    reported = _reported(status)
    try:
        request = total(
            _asks(spec.containers, reported),
            _asks(spec.init_containers, reported) if spec.init_containers else (),
            pod_level=_pod_level(spec.resources, status),
            overhead=spec.overhead or _NOTHING,
            claimed=[c.resources or _NOTHING for c in status.node_allocatable_resource_claim_statuses or ()],
            infeasible=_infeasible(status) if reported or status.resources else False,
        )
    except QuantityError as error:
        raise DecodeError(
            kind, key_of(metadata), f"resources of {error.resource}", error.value, str(error)
        ) from None
    return _shared(tuple(request.items()))


def vector_of(kind: str, metadata: Metadata, field: str, amounts: Mapping[str, str | float]) -> Vector:
    """A resource list as a vector, one mapping for all that are equal."""
    try:
        return _shared(tuple((resource, parse(resource, text)) for resource, text in amounts.items()))
    except QuantityError as error:
        raise DecodeError(
            kind, key_of(metadata), f"{field}.{error.resource}", error.value, str(error)
        ) from None


@lru_cache(maxsize=16384)
def _shared(items: tuple[tuple[str, int], ...]) -> Vector:
    return dict(items)


def _reported(status: PodStatus) -> dict[str, ContainerStatus]:
    if status.container_statuses is None and status.init_container_statuses is None:
        return {}
    statuses = [*(status.container_statuses or ()), *(status.init_container_statuses or ())]
    return {s.name: s for s in statuses if s.resources is not None or s.allocated_resources is not None}


def _asks(containers: Sequence[Container] | None, reported: Mapping[str, ContainerStatus]) -> list[Ask]:
    return [_ask(container, reported.get(container.name)) for container in containers or ()]


def _ask(container: Container, status: ContainerStatus | None) -> Ask:
    resources = container.resources
    return Ask(
        (resources and resources.requests) or _NOTHING,
        (resources and resources.limits) or _NOTHING,
        container.restart_policy == RESTARTABLE,
        _actuated(status.resources) if status else None,
        status.allocated_resources if status else None,
    )


def _pod_level(resources: Resources | None, status: PodStatus) -> Ask | None:
    if resources is None:
        return None
    return Ask(
        resources.requests or _NOTHING,
        resources.limits or _NOTHING,
        actuated=_actuated(status.resources),
        allocated=status.allocated_resources,
    )


def _actuated(resources: Resources | None) -> Amounts | None:
    return None if resources is None else resources.requests or _NOTHING


def _infeasible(status: PodStatus) -> bool:
    return is_infeasible(status.resize, [(c.type, c.reason) for c in status.conditions or ()])
