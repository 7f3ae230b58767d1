"""Between NRI's messages and our records."""

from __future__ import annotations

from dataclasses import replace

from agent.nri import messages_pb2 as pb
from agent.nri.records import Adjustment, LinuxResources, NriContainer, NriPod, State

_STATES = frozenset(State)


def pod(message: pb.PodSandbox) -> NriPod:
    """A pod's sandbox."""
    return NriPod(
        id=message.id,
        uid=message.uid,
        namespace=message.namespace,
        name=message.name,
        labels=dict(message.labels),
        annotations=dict(message.annotations),
        cgroup_parent=message.linux.cgroup_parent,
        pid=message.pid,
        addresses=tuple(message.ips),
        own_network=_own_network(message),
    )


def _own_network(message: pb.PodSandbox) -> bool | None:
    """A sandbox whose network is torn down has no namespace any more, but addresses still."""
    types = {one.type for one in message.linux.namespaces}
    return "network" in types or bool(message.ips) if types else None


def container(message: pb.Container) -> NriContainer:
    """A container; a state of a later version counts as unknown."""
    linux = message.linux
    return NriContainer(
        id=message.id,
        pod_id=message.pod_sandbox_id,
        name=message.name,
        state=State(message.state) if message.state in _STATES else State.UNKNOWN,
        pid=message.pid,
        cgroups_path=linux.cgroups_path,
        labels=dict(message.labels),
        annotations=dict(message.annotations),
        resources=resources(linux.resources),
        oom_score_adj=linux.oom_score_adj.value if linux.HasField("oom_score_adj") else None,
    )


def resources(message: pb.LinuxResources) -> LinuxResources:
    """A container's resources. An optional number that is there and 0 is 0; one that is not is None."""
    cpu, memory = message.cpu, message.memory
    return LinuxResources(
        cpu_shares=cpu.shares.value if cpu.HasField("shares") else None,
        cpu_quota=cpu.quota.value if cpu.HasField("quota") else None,
        cpu_period=cpu.period.value if cpu.HasField("period") else None,
        cpus=cpu.cpus,
        mems=cpu.mems,
        memory_limit=memory.limit.value if memory.HasField("limit") else None,
        memory_reservation=memory.reservation.value if memory.HasField("reservation") else None,
        memory_swap=memory.swap.value if memory.HasField("swap") else None,
        unified=dict(message.unified),
    )


def asked(message: pb.LinuxResources) -> LinuxResources:
    """The resources that an update asks for: the runtime sends 0 where CRI's request says nothing."""
    said = resources(message)
    return replace(
        said,
        cpu_shares=said.cpu_shares or None,
        cpu_quota=said.cpu_quota or None,
        cpu_period=said.cpu_period or None,
        memory_limit=said.memory_limit or None,
    )


def adjusted(wanted: Adjustment | None) -> pb.CreateContainerResponse:
    """The answer to CreateContainer; empty where nothing is wanted."""
    answer = pb.CreateContainerResponse()
    if wanted:
        _put(wanted, answer.adjust.linux.resources)
    return answer


def update(container_id: str, wanted: Adjustment, *, ignore_failure: bool = True) -> pb.ContainerUpdate:
    """An update of one container. ignore_failure: where it cannot be done, nothing else fails for it."""
    message = pb.ContainerUpdate(container_id=container_id, ignore_failure=ignore_failure)
    _put(wanted, message.linux.resources)
    return message


def _put(wanted: Adjustment, message: pb.LinuxResources) -> None:
    """Only what is wanted is set: an empty submessage would be a claim on what is in it."""
    for name, target in (("shares", "cpu_shares"), ("quota", "cpu_quota"), ("period", "cpu_period")):
        if (value := getattr(wanted, target)) is not None:
            getattr(message.cpu, name).value = value
    for name in ("limit", "reservation", "swap"):
        if (value := getattr(wanted, f"memory_{name}")) is not None:
            getattr(message.memory, name).value = value
    if wanted.cpus:
        message.cpu.cpus = wanted.cpus
    if wanted.mems:
        message.cpu.mems = wanted.mems
    message.unified.update(wanted.unified)
