"""Pods that may lack something of a floor, at random but the same each time, and how they are to be raised:
what manifests/base/requests.yaml says in CEL, in Python.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from qos import keys
from qos.cluster.lacking import Lack
from qos.cluster.requests import RESTARTABLE
from qos.quantity import parse, render

CPU = ("100m", "0.5", "1", "1500m", "3")
MEMORY = ("64Mi", "1G", "1536Mi", "2Gi", "6Gi")
DISK = ("100M", "1Gi", "4Gi")
FLOORS: tuple[dict[str, str], ...] = (
    {"cpu": "2"},
    {"cpu": "1250m", "memory": "4Gi"},
    {"memory": "3G", "ephemeral-storage": "2Gi"},
    {"cpu": "0.3", "example.com/gpu": "2"},
)


def amounts(draw: random.Random) -> dict[str, Any]:
    """A container's resources, as the API server takes them."""
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for name, values in (("cpu", CPU), ("memory", MEMORY), ("ephemeral-storage", DISK)):
        low, high = sorted((draw.randrange(len(values)), draw.randrange(len(values))))
        if draw.random() < 0.5:
            requests[name] = values[low]
        if draw.random() < 0.4:
            limits[name] = values[high]
    if draw.random() < 0.2:
        requests["example.com/gpu"] = limits["example.com/gpu"] = str(draw.randint(1, 3))
    return {name: one for name, one in (("requests", requests), ("limits", limits)) if one}


def container(draw: random.Random, name: str) -> dict[str, Any]:
    return {"name": name, "image": "a:1", "resources": amounts(draw)}


def pod(number: int) -> dict[str, Any]:
    """One to three containers, sometimes init containers, sidecars, resources of the pod itself."""
    draw = random.Random(number)
    spec: dict[str, Any] = {
        "containers": [container(draw, f"c{i}") for i in range(draw.choice((1, 1, 2, 3)))],
        "automountServiceAccountToken": False,
    }
    if draw.random() < 0.4:
        spec["initContainers"] = [
            container(draw, f"i{i}") | ({"restartPolicy": "Always"} if draw.random() < 0.5 else {})
            for i in range(draw.randint(1, 3))
        ]
    if draw.random() < 0.2:
        spec["resources"] = {"requests": {"cpu": "30"}} | (
            {"limits": {"memory": "60Gi"}} if number % 2 else {}
        )
    elif draw.random() < 0.2:
        spec["resources"] = {"limits": {"memory": "60Gi"}}
    annotations = {"kubectl.kubernetes.io/default-container": "c1"} if draw.random() < 0.3 else {}
    return {"metadata": {"name": f"p{number}", "annotations": annotations}, "spec": spec}


def with_raised(spec: Mapping[str, Any], found: Iterable[Raised]) -> dict[str, Any]:
    """The spec with these requests and limits."""
    made: dict[str, Any] = copy.deepcopy(dict(spec))
    for one in found:
        place = made if one.container is None else made["containers"][one.container]
        resources = place.setdefault("resources", {})
        resources.setdefault("requests", {})[one.resource] = render(one.resource, one.request)
        if one.limit is not None:
            resources.setdefault("limits", {})[one.resource] = render(one.resource, one.limit)
    return made


def main_container(manifest: Mapping[str, Any]) -> str:
    """The container that kubectl would log."""
    return str(manifest["metadata"].get("annotations", {}).get(keys.DEFAULT_CONTAINER_ANNOTATION, ""))


_FREE: Final = frozenset({keys.CPU, keys.MEMORY, keys.EPHEMERAL_STORAGE})
"""Whose limit may be above the request; of everything else both are the same."""


class Raised(NamedTuple):
    """A request as it is to be, in canonical units.

    container: its index in spec.containers; None: the pod's own (pod-level resources). limit: likewise; None
    leaves it as it is.
    """

    resource: str
    container: int | None
    request: int
    limit: int | None


def raised(spec: Mapping[str, Any], main: str, missing: Iterable[Lack]) -> list[Raised]:
    """How the pod's requests become what it lacks; nobody's is lowered. Raises QuantityError.

    All of it goes to one container, `main` by name, else the first; to the pod itself where it states
    pod-level resources and the resource is one of those.
    """
    containers: Sequence[Mapping[str, Any]] = spec.get("containers") or ()
    index = next((i for i, one in enumerate(containers) if one.get("name") == main), 0)
    overhead = spec.get("overhead") or {}
    own = spec.get("resources") or {}
    found = []
    for lack in missing:
        name = lack.resource
        floor = lack.floor - (parse(name, overhead[name]) if name in overhead else 0)
        if (own.get("requests") or own.get("limits")) and _is_pod_level(name):
            found.append(_to(name, None, own, floor))
        elif containers:
            resources = containers[index].get("resources") or {}
            together = _running(spec, name)
            found.append(_to(name, index, resources, _request(resources, name) + floor - together))
    return found


def _to(name: str, container: int | None, resources: Mapping[str, Any], request: int) -> Raised:
    limits = resources.get("limits") or {}
    if name in _FREE:
        lower = name in limits and parse(name, limits[name]) < request
        return Raised(name, container, request, request if lower else None)
    return Raised(name, container, request, request)


def _running(spec: Mapping[str, Any], name: str) -> int:
    """What containers and sidecars request together, while the pod runs."""
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == RESTARTABLE]
    return sum(
        _request(one.get("resources") or {}, name) for one in (*(spec.get("containers") or ()), *sidecars)
    )


def _request(resources: Mapping[str, Any], name: str) -> int:
    """A request, and the limit where none is given, as the API server defaults it."""
    for amounts in (resources.get("requests") or {}, resources.get("limits") or {}):
        if name in amounts:
            return parse(name, amounts[name])
    return 0


def _is_pod_level(name: str) -> bool:
    return name in (keys.CPU, keys.MEMORY) or name.startswith(keys.HUGEPAGES_PREFIX)
