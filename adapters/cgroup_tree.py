"""The cgroups that matter for the plans of all pods of this machine, each read once and kept.

What is shared (the root's children, kubepods, the QoS classes) is read anew with every update; pods and their
containers when they are new, when somebody says that they changed, and when their children are others.
Threads beside cgroups are counted once, until everything is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from adapters.machine import ThisMachine
from kernel import facts as kernel_facts
from kernel import membership
from kernel.membership import PLAIN, qos_class
from kernel.refused import Refused
from qos.plan import observed
from qos.plan.observed import Seen
from qos.plan.placed_pod import NodeTree

_REMEMBERED: Final = 8192
"""Paths whose meaning is kept: all of them are asked for in each pass, and regular expressions are slow."""
_ANY_UID: Final = "00000000-0000-0000-0000-000000000000"


pod_uid = lru_cache(_REMEMBERED)(membership.pod_uid)


class CgroupTree:
    """What was read of this machine's cgroups. Methods raise kernel.refused.Refused.

    `unread`: uid -> why its cgroup could not be read at the last update; what was read before is kept.
    """

    def __init__(self, machine: ThisMachine) -> None:
        self._machine = machine
        self.unread: dict[str, Refused] = {}
        self._pods: dict[str, str] = {}
        self._of_pods: dict[str, dict[str, Seen]] = {}
        self._pod_of: dict[str, str] = {}
        """The cgroup of a pod, or one in it -> the pod's."""
        self._shared: dict[str, Seen] = {}
        self._parents: dict[str, str] = {}
        self._cpus: dict[str, str] = {}
        self._stale: set[str] = set()
        self._loose: dict[str, int] = {}

    def update(self, containers: Iterable[str] = ()) -> Iterator[None]:
        """Read what is new or may have changed, a pod a step; containers: the cgroups that are known."""
        tops = {above for path in containers for above in _above_pod(path)}
        self._shared, self._parents, self._cpus = {}, {}, {}
        there: dict[str, None] = {}
        self._read_shared("/", tops, there)
        for path in self._of_pods.keys() - there.keys():
            self.forget(path)
        self.unread = {}
        for path in there:
            try:
                self._freshen(path)
            except Refused as refused:  # one pod that cannot be read must not cost all others their floors
                self.unread[pod_uid(path)] = refused
            yield

    def refresh(self, path: str) -> None:
        """Read what is new of a pod, given its cgroup or one in it."""
        if pod := pod_path(path):
            self._freshen(pod)

    def changed(self, path: str) -> None:
        """Somebody wrote into a cgroup: it is read with the next update."""
        self._stale.add(pod_path(path))

    def changed_all(self) -> None:
        """Everything is read with the next update, and threads beside cgroups are counted."""
        self._stale.update(self._of_pods)
        self._loose.clear()

    def forget(self, path: str) -> None:
        """A pod's cgroup is gone."""
        for below in self._of_pods.pop(path, ()):
            self._pod_of.pop(below, None)
        self._stale.discard(path)
        if self._pods.get(pod_uid(path)) == path:
            del self._pods[pod_uid(path)]

    def path_of(self, uid: str) -> str:
        """A pod's cgroup, "" where it has none."""
        return self._pods.get(uid, "")

    def values(self, path: str) -> Mapping[str, str]:
        """What a pod's cgroup had when it was read, by file; {} for one that was not."""
        seen = self._of_pods.get(path, {}).get(path)
        return seen.values if seen else {}

    def now(self, path: str, file: str) -> str:
        """What a file of a cgroup says at this moment, whoever wrote it; "" where there is none."""
        return self._values(path, (file,)).get(file, "").strip()

    def with_originals(self, originals: Mapping[tuple[str, str], str]) -> NodeTree:
        """The tree as others left it; originals: (path, file) -> what they wrote, of files that we wrote.

        It is kept so: what is forgotten of them later was put back by then.
        """
        for (path, file), text in originals.items():
            seen = self._of_pods.get(self._pod_of.get(path, ""), self._shared)
            before = seen.get(path)
            if before is not None and before.values.get(file, text) != text:
                seen[path] = before._replace(values={**before.values, file: text})
        groups = dict(self._shared)
        for seen in self._of_pods.values():
            groups.update(seen)
        return NodeTree(groups, dict(self._pods), dict(self._parents), dict(self._cpus), self._machine.page)

    def of_pod(self, uid: str, originals: Mapping[tuple[str, str], str]) -> dict[str, Seen]:
        """A pod's cgroups as others left them, by path; {} where it has none."""
        found = {}
        for path, seen in self._of_pods.get(self.path_of(uid), {}).items():
            values = {file: originals.get((path, file), text) for file, text in seen.values.items()}
            found[path] = seen._replace(values=values)
        return found

    def _read_shared(self, path: str, tops: set[str], there: dict[str, None]) -> None:
        """A cgroup that pods are below, and all in it; pods are left to the caller."""
        children = self._children(path)
        if children is None:
            return
        values = self._values(path, observed.WANTED) if path != "/" else {}
        if path not in self._loose:  # hundreds of files in /proc, where the kernel's own threads are
            self._loose[path] = self._machine.loose(path)
        self._shared[path] = Seen(values, self._competing(path, children, tops), self._loose[path])
        self._cpus[path] = self._machine.shared_cpus([*_prefixes(path)] if path != "/" else [])
        if qos := _class_below(path):
            self._parents[qos] = path
        for name in self._shared[path].children:
            child = f"{path.rstrip('/')}/{name}"
            if pod_uid(child):
                there[child] = None
            elif child in tops or _class_below(child):
                self._read_shared(child, tops, there)
            else:
                self._shared[child] = Seen(self._beside(child))

    def _competing(self, path: str, children: tuple[str, ...], tops: set[str]) -> tuple[str, ...]:
        """Pods and what they are in, and whatever else may take CPU."""
        of_pods = {
            name
            for name in children
            if (child := f"{path.rstrip('/')}/{name}") in tops or pod_uid(child) or _class_below(child)
        }
        beside = self._machine.compete([name for name in children if name not in of_pods], path)
        return tuple(name for name in children if name in of_pods or name in beside)

    def _freshen(self, path: str) -> None:
        """Read a pod that is new, that has other children, or that somebody wrote into."""
        children = self._children(path)
        known = self._of_pods.get(path)
        if children is None:
            self.forget(path)
        elif known is None or path in self._stale or known[path].children != children:
            self._read_pod(path, children)

    def _read_pod(self, path: str, children: tuple[str, ...]) -> None:
        self._stale.discard(path)
        found = {path: Seen(self._values(path, observed.WANTED), children)}
        for name in children:
            child = f"{path}/{name}"
            found[child] = Seen(self._values(child, observed.WANTED))
        for below in self._of_pods.get(path, ()):
            self._pod_of.pop(below, None)
        self._pod_of |= dict.fromkeys(found, path)
        self._of_pods[path] = found
        self._pods[pod_uid(path)] = path

    def _children(self, path: str) -> tuple[str, ...] | None:
        where = self._machine.competing()
        look = kernel_facts.look(where, path, ()) if where else None
        return look.children if look else None

    def _values(self, path: str, wanted: tuple[str, ...]) -> dict[str, str]:
        values: dict[str, str] = {}
        for mountpoint in self._machine.hierarchies():
            look = kernel_facts.look(mountpoint, path, wanted)
            values |= look.values if look else {}
        return values

    def _beside(self, path: str) -> dict[str, str]:
        look = kernel_facts.look(self._machine.competing(), path, observed.WANTED_BESIDE)
        return look.values if look else {}


@lru_cache(_REMEMBERED)
def pod_path(path: str) -> str:
    """The pod's cgroup on this path, "" where there is none."""
    return next((above for above in _prefixes(path) if pod_uid(above)), "")


def _prefixes(path: str) -> Iterator[str]:
    parts = path.split("/")
    for end in range(2, len(parts) + 1):
        yield "/".join(parts[:end])


def _above_pod(path: str) -> Iterator[str]:
    """The cgroups above the pod's on this path."""
    return _prefixes(pod_path(path).rpartition("/")[0])


@lru_cache(_REMEMBERED)
def _class_below(path: str) -> str:
    """The QoS class of pods whose cgroups are in this one, "" where it holds none."""
    stem = path.rpartition("/")[2].removesuffix(".slice")
    plain = f"{path.rstrip('/')}/pod{_ANY_UID}"
    sliced = f"{path.rstrip('/')}/{stem}-pod{_ANY_UID.replace('-', '_')}.slice"
    return next((qos_class(one) for one in (plain, sliced) if qos_class(one) != PLAIN), "")
