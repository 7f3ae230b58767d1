"""What the runtime tells of pods and containers, and what it is asked to change, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum


class State(IntEnum):
    """What a container does, in NRI's numbers."""

    UNKNOWN = 0
    CREATED = 1
    PAUSED = 2
    RUNNING = 3
    STOPPED = 4


@dataclass(frozen=True, slots=True)
class LinuxResources:
    """Resources of a container's OCI spec. None, "", {}: not said.

    cpu_quota, cpu_period: microseconds. memory_*: bytes. cpus, mems: lists as the kernel writes them.
    unified: file of cgroup v2 -> value.
    """

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    cpu_period: int | None = None
    cpus: str = ""
    mems: str = ""
    memory_limit: int | None = None
    memory_reservation: int | None = None
    memory_swap: int | None = None
    unified: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Adjustment(LinuxResources):
    """What a container shall get instead of what its spec says. None, "", {}: as it is."""

    def __bool__(self) -> bool:
        """True if it asks for anything."""
        return self != _NOTHING


_NOTHING = Adjustment()


@dataclass(frozen=True, slots=True)
class NriPod:
    """A pod's sandbox. `id`: the sandbox's, another one after its restart; `uid`: the pod's, which stays.

    `pid`: of its process, 0 where it has none, or the runtime is too old to say. `addresses`: on the pod's
    own network; `own_network`: whether it has one, None where the runtime does not say.
    """

    id: str
    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cgroup_parent: str = ""
    pid: int = 0
    addresses: tuple[str, ...] = ()
    own_network: bool | None = None


@dataclass(frozen=True, slots=True)
class NriContainer:
    """A container. `pod_id`: its sandbox's id. `pid`: 0 until its first process is there.

    `cgroups_path`: of the OCI spec: a path, or slice:prefix:name where systemd manages cgroups.
    """

    id: str
    pod_id: str
    name: str
    state: State = State.UNKNOWN
    pid: int = 0
    cgroups_path: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    resources: LinuxResources = LinuxResources()
    oom_score_adj: int | None = None


def harmless(wanted: Adjustment) -> Adjustment:
    """What cannot keep a container from being created.

    A list of CPUs or memory nodes can: v1 refuses one that its parent has not, and the runtime gives up then.
    """
    return replace(wanted, cpus="", mems="")


def still_missing(has: LinuxResources, wanted: Adjustment) -> Adjustment:
    """What of an update a container's spec does not say yet: asking for the rest would cost for nothing."""
    changes: dict[str, object] = {}
    for name in (one.name for one in fields(LinuxResources)):
        value = getattr(wanted, name)
        if name == "unified":
            value = {file: text for file, text in value.items() if has.unified.get(file) != text}
        if value not in (None, "", {}) and value != getattr(has, name):
            changes[name] = value
    return Adjustment(**changes)  # type: ignore[arg-type]  # the same fields, by name
