"""What a container, or a pod as a whole, states and is granted: requests and limits. Pure.

In-place resize: the spec is what is wanted, and holds as soon as the kubelet has granted it. Until then
requests are what the kubelet has allocated (status.allocatedResources), and limits what it has set
(status.resources.limits). The requests in status.resources are left aside: the kubelet reads them back from
the runtime, where they follow from the CPU weight that a plan may have given the container.
Source: KEP-1287; pkg/kubelet/kubelet_pods.go convertToAPIContainerStatuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from qos import keys
from qos.cluster.requests import RESIZE_PENDING

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"

COMPUTE: Final[tuple[str, ...]] = (keys.CPU, keys.MEMORY)
"""The resources that decide Kubernetes' QoS class, and that can be resized in place."""
_NOT_GRANTED: Final = ("Proposed", "Deferred", "Infeasible")
_IN_PROGRESS: Final = "InProgress"
"""status.resize of kubelets before 1.33."""
RESIZE_IN_PROGRESS: Final = "PodResizeInProgress"


class Stated(NamedTuple):
    """Requests and limits in canonical units; requests as the API server fills them from limits."""

    requests: Mapping[str, int]
    limits: Mapping[str, int]

    def fields(self) -> dict[str, int]:
        """The amounts under the names that Container and NodePod have."""
        return {
            "cpu_request": self.requests.get(keys.CPU, 0),
            "cpu_limit": self.limits.get(keys.CPU, 0),
            "memory_request": self.requests.get(keys.MEMORY, 0),
            "memory_limit": self.limits.get(keys.MEMORY, 0),
        }


class Reported(NamedTuple):
    """What a status says of it: allocated requests, limits as they are set; None: nothing is reported."""

    allocated: Mapping[str, int] | None = None
    limits: Mapping[str, int] | None = None


def granted(stated: Stated, reported: Reported | None, pending: bool) -> Stated:
    """What holds now. `pending`: the kubelet has not granted a resize of this pod (is_pending)."""
    if reported is None or reported.allocated is None:
        return stated
    allocated = {name: reported.allocated.get(name, 0) for name in COMPUTE}
    if not pending and all(stated.requests.get(name, 0) == amount for name, amount in allocated.items()):
        return stated
    limits = {name: stated.limits.get(name, 0) for name in COMPUTE}
    if reported.limits is not None:
        limits = {name: reported.limits.get(name, 0) for name in COMPUTE}
    # A limit below the request is what is left of the moment in which one is set and the other is not yet.
    limits = {name: max(limit, allocated[name]) if limit else 0 for name, limit in limits.items()}
    return Stated(allocated, limits)


def is_pending(resize: str, conditions: Iterable[str]) -> bool:
    """True while the kubelet has not granted a resize, or never will: status.resize, types of conditions."""
    return resize in _NOT_GRANTED or RESIZE_PENDING in conditions


def is_in_progress(resize: str, conditions: Iterable[str]) -> bool:
    """True while the kubelet is carrying out a resize that it has granted; tried again where it fails."""
    return resize == _IN_PROGRESS or RESIZE_IN_PROGRESS in conditions


def qos_class(stated: Sequence[Stated]) -> str:
    """Kubernetes' class of what all containers state, or of what the pod as a whole states, alone.

    Source: k8s.io/kubernetes pkg/apis/core/v1/helper/qos.
    """
    classes = {_of_one(part) for part in stated}
    return classes.pop() if len(classes) == 1 else BURSTABLE


def _of_one(stated: Stated) -> str:
    pairs = [(stated.requests.get(name, 0), stated.limits.get(name, 0)) for name in COMPUTE]
    if any(request != limit for request, limit in pairs):
        return BURSTABLE
    given = {request > 0 for request, _ in pairs}
    if len(given) > 1:
        return BURSTABLE
    return GUARANTEED if given.pop() else BEST_EFFORT
