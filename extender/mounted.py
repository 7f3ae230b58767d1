"""What volumes workloads mount, and which workloads a change of one concerns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from extender.owners import WorkloadKey
from qos.cluster.volumes import NO_MOUNTS, Mounts, StorageClass, Volume, VolumeClaim, Volumes


class MountedVolumes:
    """Claims, volumes and StorageClasses as they are. Each change returns the workloads that it concerns."""

    def __init__(self) -> None:
        self.known = Volumes()
        self._mounts: dict[WorkloadKey, Mounts] = {}
        self._mounting: dict[str, set[WorkloadKey]] = defaultdict(set)

    def follow(self, workload: WorkloadKey, mounts: Mounts) -> None:
        """What a workload's pods mount by now."""
        before = self._mounts.pop(workload, NO_MOUNTS)
        for name in _names(workload, before):
            self._mounting[name].discard(workload)
            if not self._mounting[name]:
                del self._mounting[name]
        if mounts:
            self._mounts[workload] = mounts
            for name in _names(workload, mounts):
                self._mounting[name].add(workload)

    def set_claim(self, claim: VolumeClaim) -> Iterable[WorkloadKey]:
        """Take a claim as it is now."""
        if self.known.claims.get(claim.key) == claim:
            return ()
        self.known.claims[claim.key] = claim
        return self._concerned(claim.key)

    def remove_claim(self, key: str) -> Iterable[WorkloadKey]:
        """It is gone."""
        return self._concerned(key) if self.known.claims.pop(key, None) is not None else ()

    def set_volume(self, volume: Volume) -> Iterable[WorkloadKey]:
        """Take a volume as it is now."""
        if self.known.volumes.get(volume.name) == volume:
            return ()
        self.known.volumes[volume.name] = volume
        return self._concerned(volume.claim)

    def remove_volume(self, name: str) -> Iterable[WorkloadKey]:
        """It is gone."""
        volume = self.known.volumes.pop(name, None)
        return self._concerned(volume.claim) if volume is not None else ()

    def set_class(self, one: StorageClass) -> Iterable[WorkloadKey]:
        """Take a StorageClass as it is now."""
        if self.known.classes.get(one.name) == one:
            return ()
        self.known.classes[one.name] = one
        return [*self._mounts]

    def remove_class(self, name: str) -> Iterable[WorkloadKey]:
        """It is gone."""
        return [*self._mounts] if self.known.classes.pop(name, None) is not None else ()

    def _concerned(self, claim: str) -> Iterable[WorkloadKey]:
        begin, dash, ordinal = claim.rpartition("-")
        of_its_own = self._mounting.get(begin + dash, set()) if ordinal.isdecimal() else set[WorkloadKey]()
        return self._mounting.get(claim, set()) | of_its_own


def _names(workload: WorkloadKey, mounts: Mounts) -> Iterator[str]:
    """The claims that all its pods mount, and what the names of those of each pod's own begin with."""
    namespace, _, name = workload
    yield from (f"{namespace}/{claim}" for claim in mounts.shared)
    yield from (f"{namespace}/{one.name}-{name}-" for one in mounts.own)
