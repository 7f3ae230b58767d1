"""The one small interface that stands for the API server.

The extender knows nothing else of it, so a simulation can play it. Objects cross it as bytes of one JSON
object, or as decoded dicts where speed does not matter; parsing into qos.cluster.objects is
adapters.kubernetes.decode's job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the API server addresses it; `group` is empty for core."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", namespaced=False)
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
JOBS = Resource("batch", "v1", "jobs", "Job")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
POLICIES = Resource("j10ce.io", "v1alpha1", "minimalreservationpolicies", "MinimalReservationPolicy")
PROFILES = Resource("j10ce.io", "v1alpha1", "qosprofiles", "QoSProfile", namespaced=False)
BUDGETS = Resource("j10ce.io", "v1alpha1", "reservationbudgets", "ReservationBudget", namespaced=False)
NODE_QOS = Resource("j10ce.io", "v1alpha1", "nodeqoses", "NodeQoS", namespaced=False)

RESERVATIONS = Resource(
    "scheduling.koordinator.sh", "v1alpha1", "reservations", "Reservation", namespaced=False
)
QUOTAS = Resource("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
POD_GROUPS = Resource("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup")
MIGRATION_JOBS = Resource(
    "scheduling.koordinator.sh", "v1alpha1", "podmigrationjobs", "PodMigrationJob", namespaced=False
)
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
CAPACITY_BUFFERS = tuple(
    Resource("autoscaling.x-k8s.io", version, "capacitybuffers", "CapacityBuffer")
    for version in ("v1beta1", "v1alpha1")
)
"""By which autoscalers are asked for room, the better version first; an autoscaler brings the definition."""


class APIError(Exception):
    """The API server answered, and the answer was not success.

    APIError
    +-- NotFound            404
    +-- Conflict            409: exists already, or another resourceVersion
    +-- Gone                410: the resourceVersion is too old, list again
    Unreachable             no answer, or one that says nothing of the outcome (5xx, timeout, cut connection)
    +-- NotTaken            nothing was done: no connection, or turned away (429)
    +-- Ended               the server's own error (5xx, not a timeout): done or not, it does no more
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class NotFound(APIError):  # noqa: N818 - these four read as what happened
    """404."""


class Conflict(APIError):  # noqa: N818
    """409."""


class Gone(APIError):  # noqa: N818
    """410."""


class Unreachable(Exception):  # noqa: N818
    """No answer, or none that settles what happened: the request may or may not have taken effect."""


class NotTaken(Unreachable):
    """The request certainly took no effect: it was not sent, or was turned away."""


class Ended(Unreachable):
    """The server has ended the request with an error of its own.

    What it had sent to its store may still take effect there, as long as the object has not changed since.
    """


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list: raw JSON of each item, the list's resourceVersion, and the token of the next page.

    `remaining`: how many items follow, as the server estimates it; None where it does not say.
    """

    items: list[bytes]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = 0


class WatchEvent(NamedTuple):
    """ADDED, MODIFIED, DELETED or BOOKMARK, and the raw JSON of the object. ERROR arrives as an exception."""

    type: str
    object: bytes


class ClusterAPI(Protocol):
    """What we ask of an API server. Every call may raise APIError or Unreachable."""

    async def list_page(
        self,
        resource: Resource,
        *,
        limit: int = 500,
        continue_token: str = "",
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
    ) -> Page:
        """One page, consistent (no resourceVersion=0). limit 0: everything on one page.

        field_selector: such as spec.nodeName=NODE; label_selector: such as KEY=VALUE; "": all objects.
        """
        ...

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        field_selector: str = "",
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[WatchEvent]:
        """Events after resource_version and bookmarks; ends when the server closes it; Gone when too old.

        An object that comes into the selection is ADDED, one that leaves it DELETED. `opened` is called when
        the server has accepted the watch: of a resource that does not change, nothing else need ever come.
        """
        ...

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> bytes:
        """One object, or its subresource, by a quorum read."""
        ...

    async def served(self, group: str, version: str) -> bytes:
        """The APIResourceList of a group's version: which kinds it has; NotFound when it is not served."""
        ...

    async def create(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> bytes:
        """Create; Conflict when it exists."""
        ...

    async def replace(self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]) -> bytes:
        """PUT with the body's resourceVersion; Conflict when it is not the newest."""
        ...

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> bytes:
        """JSON merge patch; a resourceVersion in the body makes it conditional."""
        ...

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete; dependents go in the background. NotFound; Conflict when it has another UID than `uid`, or
        another resourceVersion than `version`.
        """
        ...

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """POST pods/binding with a UID precondition; annotations merge into the pod with nodeName (T03)."""
        ...


class EvictingAPI(ClusterAPI, Protocol):
    """An API server that is asked to evict, too: by programs that move pods."""

    async def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool = False) -> None:
        """Evict the pod of this UID (policy/v1), so that PodDisruptionBudgets count; dry_run: only ask.

        NotTaken: one does not allow it now. NotFound, Conflict: that pod is not there.
        """
        ...
