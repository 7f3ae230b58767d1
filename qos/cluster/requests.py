"""What a pod asks of its node: one vector per pod, by the rules of kube-scheduler (trap T16).

Source: k8s.io/component-helpers/resource PodRequests and the API server's defaulting of pods; cases that they
computed are in tests/data/requests.json. One difference, on the safe side: fractions of a canonical unit are
rounded up per container instead of once per pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from qos import keys
from qos.quantity import MAXIMUM, parse

Amounts: TypeAlias = Mapping[str, str | float]
"""A ResourceList as it is written: resource name to quantity."""

RESIZE_PENDING: Final = "PodResizePending"
INFEASIBLE: Final = "Infeasible"
RESTARTABLE: Final = "Always"
"""restartPolicy of an init container that makes it a sidecar."""

_NOTHING: Final[Amounts] = {}


class ResourceRequirements(NamedTuple):
    """What one container, or the pod as a whole (pod-level resources), asks for, unparsed.

    `actuated` and `allocated` are status.resources.requests and status.allocatedResources, None where the
    kubelet has reported none.
    """

    requests: Amounts
    limits: Amounts = _NOTHING
    restartable: bool = False
    actuated: Amounts | None = None
    allocated: Amounts | None = None


def effective(spec: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> dict[str, int]:
    """The effective request of a pod, or of a pod template's spec, given as plain dicts.

    Canonical units, zeros left out, pods: 1 included. Raises QuantityError.
    """
    status = status or {}
    reported = {s["name"]: s for s in status.get("containerStatuses") or ()}
    reported |= {s["name"]: s for s in status.get("initContainerStatuses") or ()}
    return total(
        [_ask(container, reported.get(container.get("name"))) for container in spec.get("containers") or ()],
        [
            _ask(container, reported.get(container.get("name")))
            for container in spec.get("initContainers") or ()
        ],
        pod_level=_ask(spec, status) if spec.get("resources") else None,
        overhead=spec.get("overhead") or _NOTHING,
        claimed=[
            c.get("resources") or _NOTHING for c in status.get("nodeAllocatableResourceClaimStatuses") or ()
        ],
        infeasible=is_infeasible(
            status.get("resize", ""),
            [(c["type"], c.get("reason", "")) for c in status.get("conditions") or ()],
        ),
    )


def is_infeasible(resize: str, conditions: Iterable[tuple[str, str]]) -> bool:
    """True when the kubelet refuses the pending resize for good; conditions as (type, reason).

    `resize` is status.resize, which kubelets before 1.33 wrote instead of the condition.
    """
    pending = next((reason for kind, reason in conditions if kind == RESIZE_PENDING), resize)
    return pending == INFEASIBLE


def total(
    containers: Sequence[ResourceRequirements],
    init_containers: Sequence[ResourceRequirements] = (),
    *,
    pod_level: ResourceRequirements | None = None,
    overhead: Amounts = _NOTHING,
    claimed: Iterable[Amounts] = (),
    infeasible: bool = False,
) -> dict[str, int]:
    """The effective request; zeros left out, pods: 1 included; capped at MAXIMUM. Raises QuantityError.

    `claimed`: node-allocatable resources that the pod's resource claims take (dynamic resource allocation).
    """
    sums = _of_containers(containers, init_containers, infeasible)
    for amounts in claimed:
        _add(sums, _parsed(amounts))
    if pod_level is not None:
        of_spec = _of_containers([*map(_stated, containers)], [*map(_stated, init_containers)], infeasible)
        sums |= _of_pod_level(pod_level, of_spec, infeasible)
    if overhead:
        _add(sums, _parsed(overhead))
    # A thousand containers could ask for more than an int64 holds.
    result = {resource: min(amount, MAXIMUM) for resource, amount in sums.items() if amount}
    result[keys.PODS] = 1
    return result


def _of_containers(
    containers: Sequence[ResourceRequirements],
    init_containers: Sequence[ResourceRequirements],
    infeasible: bool,
) -> dict[str, int]:
    sums: dict[str, int] = {}
    for ask in containers:
        _add(sums, _current(ask, infeasible))
    if not init_containers:
        return sums
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for ask in init_containers:
        if ask.restartable:
            request = _current(ask, infeasible)
            _add(sums, request)
            _add(sidecars, request)
            _raise_to(peak, sidecars)
        else:
            request = _defaulted(ask)
            _add(request, sidecars)
            _raise_to(peak, request)
    _raise_to(sums, peak)
    return sums


def _of_pod_level(ask: ResourceRequirements, of_spec: Mapping[str, int], infeasible: bool) -> dict[str, int]:
    """What overrides the containers' sums. `of_spec`: those sums without what the kubelet reported."""
    asked = {name: amount for name, amount in _parsed(ask.requests).items() if _is_pod_level(name)}
    limits = {name: amount for name, amount in _parsed(ask.limits).items() if _is_pod_level(name)}
    if asked or limits:
        # Hugepages are not overcommitted: what containers ask is both their limit and the pod's.
        limits |= {n: amount for n, amount in of_spec.items() if _is_hugepages(n) and n not in limits}
    if limits:
        for name in (keys.CPU, keys.MEMORY):
            if name in of_spec:
                asked.setdefault(name, of_spec[name])
    asked = limits | asked
    if ask.actuated is None:
        return asked
    current = {} if infeasible else dict(asked)
    _raise_to(current, _parsed(ask.actuated))
    _raise_to(current, _parsed(ask.allocated or _NOTHING))
    return {name: current.get(name, 0) for name in asked}


def _is_pod_level(resource: str) -> bool:
    return resource in (keys.CPU, keys.MEMORY) or _is_hugepages(resource)


def _is_hugepages(resource: str) -> bool:
    return resource.startswith(keys.HUGEPAGES_PREFIX)


def _stated(ask: ResourceRequirements) -> ResourceRequirements:
    return ask._replace(actuated=None, allocated=None)


def _current(ask: ResourceRequirements, infeasible: bool) -> dict[str, int]:
    """The largest of spec, actuated and allocated; without spec when the kubelet refuses it."""
    request = _defaulted(ask)
    if ask.actuated is None and ask.allocated is None:
        return request
    if infeasible:
        request = {}
    _raise_to(request, _parsed(ask.actuated or _NOTHING))
    _raise_to(request, _parsed(ask.allocated or _NOTHING))
    return request


def _defaulted(ask: ResourceRequirements) -> dict[str, int]:
    """Requests, and limits where no request is given: the API server does that to pods, not to templates."""
    request = _parsed(ask.requests)
    if ask.limits:
        for resource, text in ask.limits.items():
            if resource not in request:
                request[resource] = parse(resource, text)
    return request


def _parsed(amounts: Amounts) -> dict[str, int]:
    return {resource: parse(resource, text) for resource, text in amounts.items()}


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        sums[resource] = sums.get(resource, 0) + amount


def _raise_to(sums: dict[str, int], floor: Mapping[str, int]) -> None:
    for resource, amount in floor.items():
        if amount > sums.get(resource, -1):
            sums[resource] = amount


def _ask(part: Mapping[str, Any], reported: Mapping[str, Any] | None) -> ResourceRequirements:
    resources = part.get("resources") or {}
    reported = reported or {}
    actuated = reported.get("resources")
    return ResourceRequirements(
        resources.get("requests") or _NOTHING,
        resources.get("limits") or _NOTHING,
        part.get("restartPolicy") == RESTARTABLE,
        None if actuated is None else actuated.get("requests") or _NOTHING,
        reported.get("allocatedResources"),
    )
