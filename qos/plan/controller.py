"""What a kernel controller declares (its files, the promises they keep), and what it plans from.

The controllers are the modules of qos/controllers, one file each; a new one needs no line elsewhere. Pure.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from importlib import import_module
from typing import Final, NamedTuple, Protocol, TypeAlias, cast

from qos.cluster.objects import Resources
from qos.plan import controllers
from qos.plan.node import V1, V2, Level, NodeFacts
from qos.plan.settings import PROCESS, RAISE, SET, Setting, Shortfall
from qos.pods.containers import Container, NodePod
from qos.promises import Promises, Unsupported

# Kinds: how a file's value is written.
INTEGER: Final = "integer"
INTEGER_OR_MAX: Final = "integer-or-max"
QUOTA: Final = "quota"  # cpu.max: QUOTA PERIOD, both in the range, QUOTA may be max
SIGNED: Final = "signed"  # -1: unlimited, the highest
DEVICE_LIMITS: Final = "device-limits"  # io.max: MAJOR:MINOR KEY=VALUE ...
DEVICE_LIMIT: Final = "device-limit"  # blkio.throttle.*: MAJOR:MINOR VALUE
WEIGHT: Final = "weight"  # an integer, which may be read or written as: default INTEGER
CPUS: Final = "cpus"  # a list: 0-3,8

UNIFIED: Final = ""
"""The hierarchy of a file that only cgroup v2 has."""
OF_PROCESS: Final = "process"
"""The hierarchy of a file in /proc/PID."""

# Unreclaimed: what a limit below what is in use does where that cannot be reclaimed.
REFUSED: Final = "refused"
KILLS: Final = "kills"  # the kernel kills until it fits
THROTTLES: Final = "throttles"  # it holds, and slows down whoever is above it

BOTH: Final = (V1, V2)


@dataclass(frozen=True, slots=True)
class File:
    """All there is to say of a kernel file, and the one place that says it.

    `versions` of cgroup that have it, `hierarchy` where it is on v1 (UNIFIED: nowhere).

    `low`, `high`: the range of each integer in it, inclusive. `order`: its place among the files of a cgroup
    when all of them raise; lowering goes backwards. `since`: the mainline kernel, `unified_since`: where v2
    had it later than v1. `in_use`: the file with what is in use, for a limit that makes the kernel reclaim
    within the write that lowers it below that: whoever writes it waits, for seconds where disks are slow.
    `unreclaimed`: what such a limit does where that much cannot be reclaimed.

    `trial`: what is written into a new cgroup, and read back, to see whether the kernel takes it; of a file
    with a line a disk without the disk; "" for one of a process, whose own value is tried. `after`: the files
    whose trials must be there before. `fresh`: what a new cgroup has, where by default neither kubelet nor a
    runtime writes the file; "" where one of them does.

    `nri`: the field of agent.nri.records.Adjustment in which NRI says its value; `unified` only where there
    is no other, because its keys cannot be taken out of a spec again. "": none, or no update carries it, or a
    refusal there could keep the container from being created (the runtime writes them in no order, so each
    must be valid whatever the others are). `hints`: what is usually behind an errno of it, by the errno's
    name: measured, or from the kernel's cgroup documents.
    """

    name: str
    versions: tuple[str, ...]
    hierarchy: str
    kind: str
    low: int
    high: int
    order: int
    since: str
    note: str = ""
    unified_since: str = ""
    _: KW_ONLY
    in_use: str = ""
    unreclaimed: str = REFUSED
    trial: str
    after: tuple[str, ...] = ()
    fresh: str
    nri: str
    hints: Mapping[str, str] = field(default_factory=dict)

    @property
    def per_device(self) -> bool:
        """True where it has a line for each disk."""
        return self.kind in (DEVICE_LIMIT, DEVICE_LIMITS)

    def kernel(self, version: str) -> str:
        """The kernel since which this version of cgroup has the file."""
        return (version == V2 and self.unified_since) or self.since


class Keeps(NamedTuple):
    """Which files keep a promise (a field of Promises, or a floor) on v2 and on v1, the preferred one first.

    `otherwise`: what is done on a kernel that has none of them; it must not claim more than what is really
    done. `together`: all of them keep it, each a part; else one is enough.
    """

    promise: str
    v2: tuple[str, ...]
    v1: tuple[str, ...]
    otherwise: str
    together: bool = False

    def files(self, unified: bool) -> tuple[str, ...]:
        """The files on this version of cgroup."""
        return self.v2 if unified else self.v1


Finding: TypeAlias = Setting | Shortfall | Unsupported


@dataclass(frozen=True, slots=True)
class Case:
    """One container on one node, and what it has been promised.

    `floor`: the pod's (millicores, bytes; empty: none); `parts`: each container's part of it.
    """

    pod: NodePod
    container: Container
    promises: Promises
    node: NodeFacts
    floor: Resources
    parts: Mapping[str, Resources]

    def part(self, resource: str) -> int:
        """This container's part of the floor; 0: none."""
        return self.parts[self.container.name].get(resource, 0)

    @property
    def unified(self) -> bool:
        """True where the controllers are in the cgroup v2 tree."""
        return self.node.cgroup == V2

    def levels(self) -> Iterator[tuple[int, Level]]:
        """The cgroups from the root's child to the container (0), each with its number."""
        levels = self.node.levels
        return zip(range(len(levels) - 1, -1, -1), levels, strict=True)

    def owned(self) -> list[tuple[int, Level]]:
        """The levels that are ours to set, the pod before its container."""
        return [(number, level) for number, level in self.levels() if level.owned]

    @property
    def in_a_pod(self) -> bool:
        """True where the containers of the pod have a cgroup of their own, the pod's."""
        return len(self.owned()) > 1

    def outermost(self) -> tuple[int, Level]:
        """Where the container meets other pods: the pod's cgroup, or its own where that alone is ours."""
        return next(iter(self.owned()), (0, self.node.levels[-1]))

    def first(self, keeps: Keeps) -> str:
        """The file that keeps the promise on this node; "" if it has none."""
        return next((file for file in keeps.files(self.unified) if file in self.node.files), "")

    def lacks(self, keeps: Keeps) -> Unsupported:
        """What to say when first() found nothing."""
        files = keeps.files(self.unified)
        if files:
            why = f"this kernel has no {' and no '.join(files)}"
        elif self.unified:
            why = "cgroup v2 has nothing like it"
        else:
            why = f"cgroup v1 has no {keeps.v2[0]}"
        return Unsupported(keeps.promise, (files or keeps.v2)[0], f"{why}; {keeps.otherwise}")


def setting(controller: str, number: int, level: Level, file: str, value: object, reason: str) -> Setting:
    """A setting of a cgroup: exact where the cgroup is ours, else a raise."""
    mode = SET if level.owned or number == 0 else RAISE
    return Setting(number, level.path, controller, file, str(value), mode, reason)


def process_setting(controller: str, file: str, value: object, reason: str) -> Setting:
    """A setting of the container's first process."""
    return Setting(PROCESS, "", controller, file, str(value), SET, reason)


class Controller(Protocol):
    """A module of qos/controllers."""

    NAME: str
    FILES: tuple[File, ...]
    KEEPS: tuple[Keeps, ...]

    def settings(self, case: Case) -> Iterable[Finding]:
        """What this controller writes for the case, and what it cannot do."""


@cache
def all_controllers() -> tuple[Controller, ...]:
    """Every controller, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(controllers.__path__))
    return tuple(cast("Controller", import_module(f"qos.plan.controllers.{name}")) for name in names)


@cache
def all_files() -> dict[str, File]:
    """Every file of every controller by name, in write order."""
    files = [file for controller in all_controllers() for file in controller.FILES]
    return {file.name: file for file in sorted(files, key=lambda file: file.order)}
