"""This machine as a node: its size, what its kernel has, and the cgroups that are there now."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from kernel import facts as kernel_facts
from kernel.membership import pod_uid
from kernel.refused import Refused
from qos.plan import layout, observed
from qos.plan.assumed import Machine
from qos.plan.cpu_list import cpu_count
from qos.plan.layout import Driver
from qos.plan.node import HYBRID, V1, V2, Level, NodeFacts, Rival

_UNIFIED: Final = ""
_DECIDING: Final = ("cpu", "memory")
"""The v1 controllers that make a machine one of v1 or hybrid."""
_EFFECTIVE_CPUS: Final = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
"""Files of cgroup v2, of v1, and of a v1 kernel too old for that; the first that says something counts."""
_FILES_OF: Final = ("cpu", "cpuset", "memory", "blkio", "pids")
_OF_PROCESS: Final = "oom_score_adj"
_DEEPEST_KUBEPODS: Final = 3
_NEVER_IN_THE_ROOT: Final = "pids.max"
"""Every other cgroup of v1 has it."""


class Promised(NamedTuple):
    """A pod with a CPU floor, in millicores. `uid`: "" where it has none yet, and so no cgroup either.

    `parent`: the cgroup that the pod's will be in, "" unknown; `weight`: what kubelet will give it there.
    """

    uid: str
    cpu: int
    weight: int = 0
    parent: str = ""


class ThisMachine:
    """The machine it runs on. Methods raise kernel.refused.Refused. `page`: of its memory, in bytes.

    proc, sys, run: where those file systems are. page: of its memory, in bytes; 0: as the kernel says.
    """

    def __init__(
        self, proc: str = "/proc", sys: str = "/sys", run: Path = Path("/run"), page: int = 0
    ) -> None:
        self._proc, self._sys = proc, sys
        self.page = page or os.sysconf("SC_PAGE_SIZE")
        self._run = run
        self.mounts = kernel_facts.mounts(proc)

    @property
    def cgroup(self) -> str:
        """V1, V2 or HYBRID."""
        if not any(controller in self.mounts for controller in _DECIDING):
            return V2
        return HYBRID if _UNIFIED in self.mounts else V1

    def size(self, default_files: frozenset[str]) -> Machine:
        """Its size and kernel. default_files: those of its kernel's version, where no cgroup shows them."""
        online = kernel_facts.cpus(self._sys)
        cpus, memory = 1000 * cpu_count(online), kernel_facts.memory(self._proc)
        return Machine(
            cpus=cpus,
            memory=memory,
            allocatable_cpus=cpus,
            allocatable_memory=memory,
            files=self._files(default_files),
            cgroup=self.cgroup,
            driver=self.driver(layout.KUBELET_CGROUPFS),
            devices=kernel_facts.disks(self._sys),
        )

    def driver(self, made_without_systemd: str) -> Driver:
        """The maker of cgroups here: the runtime where it made this cgroup itself, else systemd where it
        booted the machine.

        sd_booted(3) says whether that was systemd.
        """
        booted = (self._run / "systemd" / "system").is_dir()
        return Driver.SYSTEMD if booted and not self.has(made_without_systemd) else Driver.CGROUPFS

    def has(self, path: str) -> bool:
        """Whether there is such a cgroup."""
        return any(kernel_facts.there(mountpoint, path) for mountpoint in self.hierarchies())

    def text(self, path: str, file: str) -> str:
        """What a file of a cgroup says, of those that hierarchies() show; "" where that cannot be read."""
        try:
            return (self._values(path, (file,)) or {}).get(file, "").strip()
        except Refused:
            return ""

    def kubepods(self) -> tuple[str, ...]:
        """Where kubelet keeps all pods: below the root, or one or two levels lower (its --cgroup-root)."""
        found: list[str] = []
        level = [""]
        for _ in range(_DEEPEST_KUBEPODS):
            below = []
            for path in level:
                look = kernel_facts.look(self.competing(), path or "/", ())
                below += [f"{path}/{name}" for name in (look.children if look else ())]
            tops = [path for path in below if layout.is_kubepods(path.rpartition("/")[2])]
            found += tops
            level = [path for path in below if path not in tops]
        return tuple(found)

    def observed(self, expected: NodeFacts, others: Sequence[Promised] = ()) -> NodeFacts:
        """The facts, with every cgroup above the container as it is, and with its siblings.

        others: pods with a floor, the container's own left out; of those that are not there yet only such
        count as say where they will be.

        The container's own are taken from the machine only where its parent is no pod (that is shared).
        """
        *above, own = expected.levels
        levels = [
            self._level(one, expected.memory, self._values(one.path, observed.WANTED), others)
            for one in above
        ]
        if above and above[-1].owned:
            own = replace(own, cpu_period=levels[-1].cpu_period)  # kubelet has one period for all
        else:
            there = self._level(replace(own, rivals=()), expected.memory, None)
            own = replace(there, rivals=(*there.rivals, *own.rivals))
        shared = self.shared_cpus([one.path for one in above])
        return replace(
            expected,
            cpus=1000 * cpu_count(shared),
            levels=(*levels, own),
            page=self.page,
            shared_cpus=shared,
        )

    def shared_cpus(self, above: Sequence[str]) -> str:
        """The CPUs that a container below these cgroups may use: those of the lowest one that is there."""
        mountpoint = self.mounts.get("cpuset") or self.mounts.get(_UNIFIED, "")
        for path in ("/", *above)[::-1] if mountpoint else ():
            look = kernel_facts.look(mountpoint, path, _EFFECTIVE_CPUS)
            found = (
                [look.values[file].strip() for file in _EFFECTIVE_CPUS if file in look.values] if look else []
            )
            if any(found):
                return next(filter(None, found))
        return kernel_facts.cpus(self._sys)

    def hierarchies(self) -> tuple[str, ...]:
        """Mountpoints that show weights and memory."""
        if self.cgroup == V2:
            return (self.mounts[_UNIFIED],) if _UNIFIED in self.mounts else ()
        return tuple(self.mounts[controller] for controller in _DECIDING if controller in self.mounts)

    def _values(self, path: str, wanted: tuple[str, ...]) -> dict[str, str] | None:
        looks = [kernel_facts.look(mountpoint, path, wanted) for mountpoint in self.hierarchies()]
        found = [look.values for look in looks if look is not None]
        return {file: text for values in found for file, text in values.items()} if found else None

    def _level(
        self,
        expected: Level,
        memory: int,
        values: Mapping[str, str] | None,
        others: Sequence[Promised] = (),
    ) -> Level:
        """A level as it is, with its siblings; `values`: its own, None where it is not there."""
        parent, _, own = expected.path.rpartition("/")
        beside = self._beside(parent, own)
        there = None if beside is None else beside.values()
        made = observed.level(expected, values, there, memory)
        if beside is not None:
            floors = [self._promised_in(parent, name, others) for name in beside]
            made = observed.with_floors(made, floors)
            if any(layout.is_kubepods(part) for part in parent.split("/")):
                made = observed.with_guards(made, self.cgroup == V2)
            loose = self.loose(parent or "/")
            made = observed.among_threads(
                made, loose, cpu_count(kernel_facts.cpus(self._sys)), self.cgroup == V2
            )
        seen = {pod_uid(f"{parent}/{name}") for name in beside or ()} - {""}
        coming = [
            Rival(one.weight, cpu_floor=one.cpu)
            for one in others
            if one.parent == (parent or "/") and one.uid not in seen
        ]
        return replace(made, rivals=(*made.rivals, *coming))

    def _promised_in(self, parent: str, name: str, others: Sequence[Promised]) -> int:
        """The floors promised to a sibling: to a pod, or to all pods in it, such as those of a QoS class."""
        if not others:
            return 0
        path = f"{parent}/{name}"
        if uid := pod_uid(path):
            return sum(one.cpu for one in others if one.uid == uid)
        look = kernel_facts.look(self.competing(), path, ())
        inside = {pod_uid(f"{path}/{child}") for child in look.children} if look else set()
        return sum(one.cpu for one in others if one.parent == path or (one.uid and one.uid in inside))

    def loose(self, path: str) -> int:
        """How many threads are in a cgroup itself, beside those in it."""
        return kernel_facts.threads(self.competing(), path, self._proc)

    def compete(self, children: Sequence[str], path: str) -> tuple[str, ...]:
        """Of the cgroups in this one those that may take CPU: on v1 those with processes in them or below.

        On v2 all of them: their cgroup.events says it.
        """
        if self.cgroup == V2:
            return tuple(children)
        where, above = self.competing(), path.rstrip("/")
        return tuple(name for name in children if kernel_facts.populated(where, f"{above}/{name}"))

    def competing(self) -> str:
        """The mountpoint of the hierarchy in which cgroups compete for the CPU."""
        return self.mounts.get("cpu") or next(iter(self.hierarchies()), "")

    def _beside(self, parent: str, own: str) -> dict[str, Mapping[str, str]] | None:
        """What competes with a cgroup, itself left out, by name; None where its parent does not exist."""
        where = self.competing()
        look = kernel_facts.look(where, parent or "/", ()) if where else None
        if look is None:
            return None
        found = {
            name: kernel_facts.look(where, f"{parent}/{name}", observed.WANTED_BESIDE)
            for name in sorted(self.compete([one for one in look.children if one != own], parent))
        }
        return {name: one.values for name, one in found.items() if one is not None}

    def _files(self, default: frozenset[str]) -> frozenset[str]:
        """The files that a cgroup here has: those seen in the root, which lacks some, and in its children."""
        if self.cgroup == V2:
            found = self._files_in(_UNIFIED, with_root=False) or default
        else:
            found = frozenset().union(*(self._files_in(one, with_root=True) for one in _FILES_OF))
            if "pids" in self.mounts:
                found |= {_NEVER_IN_THE_ROOT}
        return found | {_OF_PROCESS}

    def _files_in(self, hierarchy: str, *, with_root: bool) -> frozenset[str]:
        mountpoint = self.mounts.get(hierarchy, "")
        root = kernel_facts.look(mountpoint, "/", ()) if mountpoint else None
        if root is None:
            return frozenset()
        looks = [kernel_facts.look(mountpoint, f"/{name}", ()) for name in root.children]
        seen = frozenset().union(*(look.names for look in looks if look))
        return seen | root.names if with_root else seen
