"""The containers that run here, as the runtime, the pods' statuses and the cgroups themselves show them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from agent.state import ContainerKey, KnownPod, Running
from qos.plan.layout import below_kubepods

_RUNTIMES: Final = ("containerd", "cri-o")
USUAL: Final = ("/kubepods.slice", "/kubepods")
"""Where kubelet keeps all pods, unless it is told otherwise (--cgroup-root, as kind and k3d do)."""

log = logging.getLogger(__name__)


class Containers:
    """By key, the present one of each. What the runtime reports counts before what a status says.

    there: whether a cgroup of this path exists. tops: looks for kubelet's cgroups, which takes
    milliseconds: asked for only when a container is not found. `missing`: those that were not. `unseen`:
    those that run where no cgroup of theirs can be, in a VM: their pod's cgroup is there and has none of its
    containers. Its path stands for theirs, and one id for all of that name one after the other.
    """

    def __init__(
        self, there: Callable[[str], bool], tops: Callable[[], Iterable[str]] = lambda: USUAL
    ) -> None:
        self._there, self._search = there, tops
        self._tops: tuple[str, ...] = USUAL
        self.missing: frozenset[ContainerKey] = frozenset()
        self.unseen: dict[ContainerKey, Running] = {}
        self._gone: dict[ContainerKey, str] = {}
        """Reported by the runtime, and without a cgroup when it was to be written."""
        self._said: set[str] = set()
        """Pods that the log has mentioned already."""
        self._told: dict[ContainerKey, Running] = {}
        self._found: dict[ContainerKey, Running] = {}
        self._by_id: dict[str, ContainerKey] = {}

    def __getitem__(self, key: ContainerKey) -> Running:
        return self._told[key] if key in self._told else self._found[key]

    def __contains__(self, key: object) -> bool:
        return key in self._told or key in self._found

    def __len__(self) -> int:
        return len(self._told.keys() | self._found.keys())

    def all(self) -> dict[ContainerKey, Running]:
        """All of them, a copy."""
        return {**self._found, **self._told}

    def told(self, running: Running) -> Running | None:
        """The runtime has this container. The one of its name before, if another, is gone: it is returned."""
        before = self._told.get(running.key)
        if before is not None:
            self._by_id.pop(before.container_id, None)
        self._told[running.key] = running
        self._by_id[running.container_id] = running.key
        return before if before is not None and before.container_id != running.container_id else None

    def retell(self, all_there_are: Iterable[Running]) -> None:
        """What the runtime has, as a whole: it was away."""
        self._told.clear()
        self._by_id.clear()
        for running in all_there_are:
            self.told(running)

    def ended(self, container_id: str) -> Running | None:
        """The runtime has it no more; None: it was not known, or another has its name by now."""
        key = self._by_id.pop(container_id, None)
        if key is None:
            return None
        self._found.pop(key, None)
        return self._told.pop(key)

    def gone(self, running: Running) -> None:
        """A container that the runtime has reported has no cgroup; it may be in a VM."""
        self._gone[running.key] = running.container_id

    def found(self, pods: Mapping[str, KnownPod]) -> None:
        """Look for the containers that pods' statuses name and the runtime has not reported."""
        named = {
            ContainerKey(uid, name): container_id
            for uid, known in pods.items()
            if not known.finished
            for name, container_id in known.ids.items()
        }
        named = {key: one for key, one in named.items() if not self._is_told(key, one)}
        looked = {key: self._look(key, pods[key.pod_uid], one) for key, one in named.items()}
        missing = frozenset(key for key, path in looked.items() if not path)
        if missing - self.missing - self.unseen.keys():
            self._tops = tuple(self._search()) or USUAL
            looked |= {key: self._look(key, pods[key.pod_uid], named[key]) for key in missing}
            missing = frozenset(key for key in missing if not looked[key])
            self._tell(missing)
        before = self.missing | self.unseen.keys()  # what has just died is missing, too, but once
        self.unseen = self._in_vms(pods, looked, missing & before)
        self.missing = missing - self.unseen.keys()
        self._found = {key: Running(key, named[key], path) for key, path in looked.items() if path}
        self._said.intersection_update(pods)
        self._gone = {key: one for key, one in self._gone.items() if key in self._told}

    def _in_vms(
        self,
        pods: Mapping[str, KnownPod],
        looked: Mapping[ContainerKey, str],
        missing: Collection[ContainerKey],
    ) -> dict[ContainerKey, Running]:
        seen = {key.pod_uid for key, path in looked.items() if path}
        seen |= {key.pod_uid for key in self._told if key not in self._gone}
        places = {uid: self._pod_place(pods[uid]) for uid in {key.pod_uid for key in missing} - seen}
        return {
            key: Running(key, f"{key.pod_uid}/{key.name}", path)
            for key in missing
            if (path := places.get(key.pod_uid, ""))
        }

    def _is_told(self, key: ContainerKey, container_id: str) -> bool:
        """Not where a status names another container and the reported one is gone: the runtime reports
        nothing now.
        """
        told = self._told.get(key)
        if told is None:
            return False
        if self._gone.get(key) == container_id == told.container_id and not self._there(told.cgroup):
            return False
        self._gone.pop(key, None)
        if told.container_id == container_id or self._there(told.cgroup):
            return True
        self._by_id.pop(told.container_id, None)
        del self._told[key]
        return False

    def _look(self, key: ContainerKey, known: KnownPod, container_id: str) -> str:
        before = self._found.get(key)
        try:
            if before is not None and before.container_id == container_id and self._there(before.cgroup):
                return before.cgroup
            return self._place(known, container_id)
        except Exception:  # one pod that nobody has thought of must not stop the others
            if key.pod_uid not in self._said:
                self._said.add(key.pod_uid)
                log.exception("container not looked for pod=%s container=%s", key.pod_uid, key.name)
            return ""

    def _tell(self, missing: Collection[ContainerKey]) -> None:
        """Each pod once: a container that has just died is not found either."""
        news = [key for key in missing if key.pod_uid not in self._said]
        self._said.update(key.pod_uid for key in news)
        if news:
            first = min(news)
            log.warning(
                "containers not found count=%d first=%s pod=%s below=%s: their floors are not kept",
                len(news), first.name, first.pod_uid, ",".join(self._tops),
            )  # fmt: skip

    def of_pod(self, uid: str) -> Iterator[Running]:
        """The containers of one pod."""
        for key, running in self.all().items():
            if key.pod_uid == uid:
                yield running

    def _pod_place(self, known: KnownPod) -> str:
        """The cgroup of a pod; "" where there is none."""
        for top in self._tops:
            path = below_kubepods(top, known.pod.qos, known.pod.uid, "any", _RUNTIMES[0]).rpartition("/")[0]
            if self._there(path):
                return path
        return ""

    def _place(self, known: KnownPod, container_id: str) -> str:
        """Its cgroup, by the names that kubelet and the runtimes give; "" where none of them is there."""
        pod = known.pod
        for top in self._tops:
            for runtime in _RUNTIMES:
                path = below_kubepods(top, pod.qos, pod.uid, container_id, runtime)
                if self._there(path):
                    return path
        return ""
