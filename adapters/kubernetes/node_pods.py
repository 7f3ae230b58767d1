"""A pod as its node's agent needs it, from the API server's JSON: what plans are made from, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Any, Final

import msgspec

from adapters.kubernetes.requests import overhead_of, request_of, resources_in, vector_of
from adapters.kubernetes.wire import ABSENT, Amounts, Metadata, PodSpec, Resources, read
from qos import keys
from qos.cluster.requests import RESTARTABLE
from qos.pods.containers import Container, NodePod
from qos.pods.expectation import ANNOTATIONS
from qos.pods.stated import COMPUTE, Reported, Stated, granted, is_in_progress, is_pending, qos_class
from qos.pods.traffic import ANNOTATIONS as TRAFFIC_ANNOTATIONS

_ENDED: Final = ("Succeeded", "Failed")
_HEXADECIMAL: Final = frozenset("0123456789abcdef")
_STATIC_UID: Final = 32
_OWN: Final = f"{keys.GROUP}/"


class _Metadata(Metadata):
    annotations: dict[str, str] | None = None  # type: ignore[assignment]  # all of them here


class _Running(msgspec.Struct, gc=False):
    pass


class _State(msgspec.Struct, gc=False):
    running: _Running | None = None


class _ContainerStatus(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    state: _State | None = None
    resources: Resources | None = None
    allocated_resources: Amounts | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""


class _Spec(PodSpec):
    host_network: bool = False


class _Address(msgspec.Struct, gc=False):
    ip: str = ""


class _Status(msgspec.Struct, rename="camel", gc=False):
    phase: str = ""
    qos_class: str = ""
    resize: str = ""
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    ephemeral_container_statuses: list[_ContainerStatus] | None = None
    resources: Resources | None = None
    allocated_resources: Amounts | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: list[_Address] | None = msgspec.field(default=None, name="podIPs")


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None


_POD = msgspec.json.Decoder(_Pod)
_NO_STATUS: Final = _Status()


@dataclass(frozen=True, slots=True)
class PodHere:
    """A pod, and what of its status its node's agent uses.

    `pod.uid` is the one that its cgroups are named by; `pod.annotations`: those that mean something here.
    `api_uid`: the API server's, which differs for a mirror of a static pod. `ids`: container name -> id of
    the one that runs. `policy`: annotation j10ce.io/policy, None where there is none. `finished`: all
    containers have ended for good. `forged`: it says that it is a static pod's mirror, and its node does not
    own it as kubelet has it. `addresses`: of status.podIPs; `host_network`: they are its node's.
    """

    pod: NodePod
    api_uid: str
    node: str
    ids: Mapping[str, str]
    policy: str | None
    finished: bool
    forged: bool = False
    addresses: tuple[str, ...] = ()
    host_network: bool = False


def node_pod(raw: bytes) -> PodHere:
    """The pod, equal to qos.pods.containers.from_manifest of the same bytes but for annotations.

    DecodeError.
    """
    obj = read(_POD, "Pod", raw)
    meta, spec, status = obj.metadata, obj.spec, obj.status or _NO_STATUS
    annotations = meta.annotations or {}
    return PodHere(
        pod=_node_pod(meta, spec, status, annotations),
        api_uid=meta.uid,
        node=intern(spec.node_name),
        ids=_ids(status),
        policy=_interned(annotations.get(keys.POLICY_ANNOTATION)),
        finished=status.phase in _ENDED,
        forged=cgroup_uid(meta.uid, annotations) != meta.uid and not _owned(meta, spec.node_name),
        addresses=_addresses(status),
        host_network=spec.host_network,
    )


def _addresses(status: _Status) -> tuple[str, ...]:
    listed = tuple(one.ip for one in status.pod_ips or () if one.ip)
    return listed or ((status.pod_ip,) if status.pod_ip else ())


def _interned(text: str | None) -> str | None:
    return None if text is None else intern(text)


def cgroup_uid(uid: str, annotations: Mapping[str, str]) -> str:
    """The uid that the pod's cgroups are named by: a static pod has its own, which its mirror names.

    A user can write the annotations, too. Only what no ordinary pod has for a uid is believed (32 hexadecimal
    digits without a dash), so that nobody speaks for another's pod.
    """
    own = annotations.get(keys.STATIC_UID_ANNOTATION, "")
    return own if is_static(own) and keys.MIRROR_ANNOTATION in annotations else uid


def is_static(uid: str) -> bool:
    """Whether this is a uid that kubelet makes for a static pod: 32 hexadecimal digits without a dash."""
    return len(uid) == _STATIC_UID and _HEXADECIMAL.issuperset(uid)


def _owned(meta: _Metadata, node: str) -> bool:
    """Kubelet's mirrors belong to their Node (pkg/kubelet/pod/mirror_client.go)."""
    return any((one.kind, one.name) == ("Node", node) for one in meta.owner_references or ())


def _node_pod(meta: _Metadata, spec: PodSpec, status: _Status, annotations: Mapping[str, str]) -> NodePod:
    conditions = [one.type for one in status.conditions or ()]
    reader = _Reader(meta, is_pending(status.resize, conditions))
    containers, stated = reader.containers(spec, status)
    whole = reader.of_the_pod(spec)
    fields: dict[str, Any] = {}
    if whole:
        reported = reader.reported(status.resources, status.allocated_resources, "status")
        fields = granted(whole, reported, reader.pending).fields()
    overhead = overhead_of("Pod", meta, spec)
    return NodePod(
        uid=cgroup_uid(meta.uid, annotations),
        namespace=intern(meta.namespace or "default"),
        name=meta.name,
        containers=containers,
        qos=intern(status.qos_class or qos_class([whole] if whole else stated)),
        labels={intern(key): intern(value) for key, value in (meta.labels or {}).items()},
        annotations={key: text for key, text in annotations.items() if _means_something(key)},
        priority=spec.priority,
        cpu_overhead=overhead.get(keys.CPU, 0),
        memory_overhead=overhead.get(keys.MEMORY, 0),
        resizing=is_in_progress(status.resize, conditions),
        **fields,
    )


def _means_something(key: str) -> bool:
    return key in ANNOTATIONS or key in TRAFFIC_ANNOTATIONS or key.startswith(_OWN)


class _Reader:
    """Reads one pod's resources. `pending`: the kubelet has not granted a resize."""

    def __init__(self, meta: _Metadata, pending: bool) -> None:
        self._meta = meta
        self.pending = pending

    def containers(self, spec: PodSpec, status: _Status) -> tuple[tuple[Container, ...], list[Stated]]:
        """The containers as they are granted, init containers first, and what each states."""
        reported = {one.name: one for one in _statuses(status) if one.allocated_resources is not None}
        made, all_stated = [], []
        for init, entries in ((True, spec.init_containers), (False, spec.containers)):
            for entry in entries or ():
                stated = self.stated(entry.resources, "spec.containers.resources")
                all_stated.append(stated)
                told = reported.get(entry.name)
                if told is not None:
                    where = "status.containerStatuses"
                    stated = granted(
                        stated,
                        self.reported(told.resources, told.allocated_resources, where),
                        self.pending,
                    )
                sidecar = init and entry.restart_policy == RESTARTABLE
                made.append(_container(entry.name, init, sidecar, *stated.fields().values()))
        return tuple(made), all_stated

    def of_the_pod(self, spec: PodSpec) -> Stated | None:
        """Pod-level resources; requests that are not stated as upstream fills them."""
        stated = self.stated(spec.resources, "spec.resources")
        if not stated.requests and not stated.limits:
            return None
        asked = request_of("Pod", self._meta, msgspec.structs.replace(spec, overhead=ABSENT))
        return Stated({name: asked[name] for name in COMPUTE if name in asked}, stated.limits)

    def stated(self, written: msgspec.Raw, where: str) -> Stated:
        """Requests and limits as the API server fills them in."""
        resources = resources_in("Pod", self._meta, where, written)
        if resources is None:
            return _NOTHING
        limits = self._amounts(resources.limits, f"{where}.limits")
        return Stated({**limits, **self._amounts(resources.requests, f"{where}.requests")}, limits)

    def reported(self, resources: Resources | None, allocated: Amounts | None, where: str) -> Reported:
        """What a status says."""
        return Reported(
            None if allocated is None else self._amounts(allocated, f"{where}.allocatedResources"),
            None if resources is None else self._amounts(resources.limits, f"{where}.resources.limits"),
        )

    def _amounts(self, amounts: Amounts | None, where: str) -> Mapping[str, int]:
        return vector_of("Pod", self._meta, where, amounts) if amounts else {}


_NOTHING: Final = Stated({}, {})


@lru_cache(maxsize=4096)
def _container(
    name: str,
    init: bool,
    sidecar: bool,
    cpu_request: int,
    cpu_limit: int,
    memory_request: int,
    memory_limit: int,
) -> Container:
    """Pods of one template share their containers."""
    return Container(name, cpu_request, cpu_limit, memory_request, memory_limit, init=init, sidecar=sidecar)


def _statuses(status: _Status) -> Iterable[_ContainerStatus]:
    return [*(status.init_container_statuses or ()), *(status.container_statuses or ())]


def _ids(status: _Status) -> dict[str, str]:
    """Ids without their scheme (containerd://); of those alone that run, the id of an ended one is no use."""
    return {
        one.name: one.container_id.rpartition("://")[2]
        for one in (*_statuses(status), *(status.ephemeral_container_statuses or ()))
        if one.container_id and one.state is not None and one.state.running is not None
    }
