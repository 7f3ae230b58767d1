"""A pod as its node sees it: its containers, what each may have, and what decides its class. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from qos import keys
from qos.cluster.requests import RESTARTABLE, effective
from qos.pods.stated import (
    BEST_EFFORT,
    BURSTABLE,
    COMPUTE,
    GUARANTEED,
    Reported,
    Stated,
    granted,
    is_in_progress,
    is_pending,
    qos_class,
)
from qos.quantity import QuantityError, parse, render

__all__ = [
    "BEST_EFFORT",
    "BURSTABLE",
    "GUARANTEED",
    "Container",
    "NodePod",
    "at_once",
    "from_manifest",
    "request",
    "running_at_once",
]

_QOS_CLASSES: Final = (GUARANTEED, BURSTABLE, BEST_EFFORT)


@dataclass(frozen=True, slots=True)
class Container:
    """Requests and limits of one container; cpu in millicores, memory in bytes, 0: none.

    `init`: starts before the others, and runs alone unless it is a `sidecar`: then it keeps running.
    """

    name: str
    cpu_request: int = 0
    cpu_limit: int = 0
    memory_request: int = 0
    memory_limit: int = 0
    init: bool = False
    sidecar: bool = False


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod on a node. `qos` is Kubernetes' class: Guaranteed, Burstable, BestEffort.

    `containers`: in starting order, init containers first. `cpu_request` to `memory_limit`: what is stated
    for the pod as a whole (pod-level resources), as of a container; 0: nothing, the containers' own hold.
    `cpu_overhead`, `memory_overhead`: what its sandbox needs besides (spec.overhead, of its RuntimeClass).
    `resizing`: the kubelet is carrying out a resize in place.
    `resources`: the names of what its containers request besides cpu and memory. Only manifests that people
    hand us fill it: no decision rests on it, so it does not make pods differ.
    """

    uid: str
    namespace: str
    name: str
    containers: tuple[Container, ...]
    qos: str = BEST_EFFORT
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    priority: int | None = None
    cpu_request: int = 0
    cpu_limit: int = 0
    memory_request: int = 0
    memory_limit: int = 0
    cpu_overhead: int = 0
    memory_overhead: int = 0
    resources: frozenset[str] = field(default=frozenset(), compare=False)
    resizing: bool = False


@lru_cache(maxsize=4096)
def at_once(containers: tuple[Container, ...]) -> tuple[tuple[Container, ...], ...]:
    """Those of a pod's containers that run at the same time: first all but init containers, then with each of
    those, last in its group, the sidecars that were started before it.
    """
    sidecars: list[Container] = []
    groups: list[tuple[Container, ...]] = []
    for one in containers:
        if one.sidecar:
            sidecars.append(one)
        elif one.init:
            groups.append((*sidecars, one))
    running = tuple(one for one in containers if one.sidecar or not one.init)
    return (running, *groups)


def request(pod: NodePod) -> tuple[int, int]:
    """What a pod requests, as qos.cluster.requests has it: (cpu in millicores, memory in bytes)."""
    if pod.cpu_request or pod.memory_request:
        asked = pod.cpu_request, pod.memory_request
    else:
        asked = (
            running_at_once([(one, one.cpu_request) for one in pod.containers]),
            running_at_once([(one, one.memory_request) for one in pod.containers]),
        )
    return asked[0] + pod.cpu_overhead, asked[1] + pod.memory_overhead


def running_at_once(asked: list[tuple[Container, int]]) -> int:
    """The most of these amounts that containers have which run at the same time."""
    running = sum(amount for one, amount in asked if not one.init or one.sidecar)
    sidecars = peak = 0
    for one, amount in asked:
        if one.sidecar:
            sidecars += amount
        elif one.init:
            peak = max(peak, sidecars + amount)
    return max(running, peak)


def from_manifest(manifest: Mapping[str, Any]) -> NodePod:
    """A Pod as a YAML file or the API server has it; the API server's defaults are filled in.

    Requests and limits are those that the kubelet has granted, where the status reports them
    (qos.pods.stated).

    The QoS class is status.qosClass where that is set, else computed as k8s.io/kubernetes' helper/qos does.
    ValueError names the pod, the field and the value.
    """
    _expect(isinstance(manifest, Mapping), "Pod", manifest, "expected a mapping")
    kind = manifest.get("kind", "Pod")
    _expect(kind == "Pod", "kind", kind, "expected a Pod")
    metadata = _mapping(manifest.get("metadata"), "metadata")
    name = _text(metadata.get("name") or metadata.get("generateName"), "metadata.name")
    namespace = _text(metadata.get("namespace") or "default", "metadata.namespace")
    try:
        return _pod(manifest, metadata, namespace, name)
    except ValueError as error:
        raise ValueError(f"Pod {namespace}/{name}: {error}") from None


def _pod(manifest: Mapping[str, Any], metadata: Mapping[str, Any], namespace: str, name: str) -> NodePod:
    spec = _mapping(manifest.get("spec"), "spec")
    status = _mapping(manifest.get("status"), "status")
    containers = list(_containers(spec, status))
    whole = _of_the_pod(spec)
    overhead = _amounts(spec.get("overhead"), "spec.overhead")
    priority = spec.get("priority")
    _expect(priority is None or _is_integer(priority), "spec.priority", priority, "expected an integer")
    resize, conditions = _resize(status)
    return NodePod(
        uid=str(metadata.get("uid") or ""),
        namespace=namespace,
        name=name,
        containers=tuple(container for container, _ in containers),
        qos=_qos(status, [whole] if whole else [stated for _, stated in containers]),
        labels=_texts(metadata.get("labels"), "metadata.labels"),
        annotations=_texts(metadata.get("annotations"), "metadata.annotations"),
        priority=priority,
        cpu_overhead=overhead.get(keys.CPU, 0),
        memory_overhead=overhead.get(keys.MEMORY, 0),
        resources=frozenset(name for _, stated in containers for name in stated.requests).difference(COMPUTE),
        resizing=is_in_progress(resize, conditions),
        **(granted(whole, _reported(status, "status"), _is_pending(status)).fields() if whole else {}),
    )


def _containers(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[tuple[Container, Stated]]:
    """Each container as it is granted, with what it states, in starting order."""
    _expect(bool(spec.get("containers")), "spec.containers", spec.get("containers"), "a pod has at least one")
    seen: set[str] = set()
    reported, pending = _statuses(status), _is_pending(status)
    for kind in ("initContainers", "containers"):
        for index, entry in enumerate(_list(spec.get(kind), f"spec.{kind}")):
            where = f"spec.{kind}[{index}]"
            name = _text(_mapping(entry, where).get("name"), f"{where}.name")
            _expect(name not in seen, f"{where}.name", name, "another container has this name")
            seen.add(name)
            stated = _stated(entry.get("resources"), f"{where}.resources")
            init = kind == "initContainers"
            sidecar = init and entry.get("restartPolicy") == RESTARTABLE
            now = granted(stated, reported.get(name), pending)
            yield Container(name=name, init=init, sidecar=sidecar, **now.fields()), stated


def _statuses(status: Mapping[str, Any]) -> dict[str, Reported]:
    """What is reported of each container, by name."""
    found = {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for index, entry in enumerate(_list(status.get(kind), f"status.{kind}")):
            where = f"status.{kind}[{index}]"
            name = _mapping(entry, where).get("name")
            found[str(name)] = _reported(entry, where)
    return found


def _reported(entry: Mapping[str, Any], where: str) -> Reported:
    allocated, resources = entry.get("allocatedResources"), entry.get("resources")
    limits = _mapping(resources, f"{where}.resources").get("limits")
    return Reported(
        None if allocated is None else _amounts(allocated, f"{where}.allocatedResources"),
        None if resources is None else _amounts(limits, f"{where}.resources.limits"),
    )


def _is_pending(status: Mapping[str, Any]) -> bool:
    return is_pending(*_resize(status))


def _resize(status: Mapping[str, Any]) -> tuple[str, list[str]]:
    """status.resize, and the types of the conditions."""
    conditions = [
        _mapping(entry, f"status.conditions[{index}]").get("type")
        for index, entry in enumerate(_list(status.get("conditions"), "status.conditions"))
    ]
    return str(status.get("resize") or ""), [str(one) for one in conditions]


def _of_the_pod(spec: Mapping[str, Any]) -> Stated | None:
    """Pod-level resources, None where there are none; requests that are not stated as upstream fills them."""
    stated = _stated(spec.get("resources"), "spec.resources")
    if not stated.requests and not stated.limits:
        return None
    asked = effective({part: spec.get(part) for part in ("containers", "initContainers", "resources")})
    requests = {name: asked[name] for name in COMPUTE if name in asked}
    _refuse_more_than_limit(requests, stated.limits, "spec.resources")
    return Stated(requests, stated.limits)


def _stated(resources: Any, where: str) -> Stated:
    parts = _mapping(resources, where)
    limits = _amounts(parts.get("limits"), f"{where}.limits")
    requests = limits | _amounts(parts.get("requests"), f"{where}.requests")
    _refuse_more_than_limit(requests, limits, where)
    return Stated(requests, limits)


def _refuse_more_than_limit(requests: Mapping[str, int], limits: Mapping[str, int], where: str) -> None:
    for name, limit in limits.items():
        request = requests.get(name, 0)
        if request > limit:
            amounts = f"{render(name, request)} is more than the limit {render(name, limit)}"
            raise ValueError(f"{where}.requests.{name}: {amounts}")


def _amounts(amounts: Any, where: str) -> dict[str, int]:
    result = {}
    for name, text in _mapping(amounts, where).items():
        _expect(
            not isinstance(text, list | dict),
            f"{where}.{name}",
            text,
            "expected a quantity such as 500m or 4Gi",
        )
        try:
            result[name] = parse(name, text)
        except QuantityError as error:
            raise ValueError(f"{where}: {error}") from None
        _expect(result[name] >= 0, f"{where}.{name}", text, "must not be negative")
    return result


def _qos(status: Mapping[str, Any], stated: Sequence[Stated]) -> str:
    reported = status.get("qosClass") or ""
    if reported:
        _expect(
            reported in _QOS_CLASSES,
            "status.qosClass",
            reported,
            f"expected one of {', '.join(_QOS_CLASSES)}",
        )
        return str(reported)
    return qos_class(stated)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    _expect(isinstance(value, Mapping), where, value, "expected a mapping")
    for key in value:
        _expect(isinstance(key, str), where, key, "keys are text: put it in quotes")
    return dict(value)


def _list(value: Any, where: str) -> Iterable[Any]:
    if value is None:
        return []
    _expect(isinstance(value, list | tuple), where, value, "expected a list")
    return list(value)


def _text(value: Any, where: str) -> str:
    _expect(isinstance(value, str) and bool(value), where, value, "expected a name")
    return str(value)


def _texts(value: Any, where: str) -> dict[str, str]:
    texts = _mapping(value, where)
    for key, text in texts.items():
        _expect(isinstance(text, str), f"{where}.{key}", text, "values are text: put it in quotes")
    return dict(texts)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _expect(true: bool, where: str, value: object, why: str) -> None:
    if not true:
        raise ValueError(f"{where}: {value!r}: {why}")
