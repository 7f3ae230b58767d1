"""The gangs that are there: their pods and PodGroups, as watches show them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from adapters.kubernetes import gangs as read
from adapters.kubernetes.events import Regarding
from qos import keys
from qos.cluster.gangs import Band, Member, Muster, PodGroup, Rules, muster
from qos.cluster.objects import Pod

_GANGS_A_STEP: Final = 20


class GangBook:
    """Pods by gang (namespace/name). `changed` is called when one, or its PodGroup, changed. `ours`: whether
    a pod's gang is looked at.

    `gated`: pods that wait for their gang; `strangers`: gated ones that are not looked at; both by UID.
    `groups`: PodGroups by namespace/name. `stale`, `unwritten`: gangs that changed since somebody looked, or
    wrote their status, and took them out.
    """

    def __init__(self, changed: Callable[[], None], ours: Callable[[Pod], bool]) -> None:
        self.gated: dict[str, Member] = {}
        self.strangers: dict[str, Member] = {}
        self.groups: dict[str, PodGroup] = {}
        self.stale: dict[str, None] = {}
        self.unwritten: dict[str, None] = {}
        self._changed, self._ours = changed, ours
        self._gang_of: dict[str, str] = {}
        self._members: dict[str, dict[str, Member]] = {}
        self._satisfied: set[str] = set()
        self._musters: dict[str, Muster] = {}
        self._waiting: dict[str, set[str]] = {}

    def take(self, pod: Pod, raw: bytes) -> None:
        """Take a pod as it is now. DecodeError."""
        member = read.member(pod, raw)
        if member is None or not self._ours(pod):
            self.remove(pod.uid)
            if member is not None and keys.GANG_GATE in member.gates:
                self.strangers[pod.uid] = member
                self._changed()
            return
        before = self._gang_of.get(pod.uid)
        if before not in (None, member.gang):
            self.remove(pod.uid)
        if self._members.get(member.gang, {}).get(pod.uid) == member:
            return
        self._gang_of[pod.uid] = member.gang
        self._members.setdefault(member.gang, {})[pod.uid] = member
        if keys.GANG_GATE in member.gates and not pod.deleting:
            self.gated[pod.uid] = member
            self._waiting.setdefault(member.gang, set()).add(pod.uid)
        else:
            self._ungate(pod.uid, member.gang)
        self._note(member.gang)

    def remove(self, uid: str) -> None:
        """A pod is gone."""
        self.strangers.pop(uid, None)
        gang = self._gang_of.pop(uid, None)
        if gang is None:
            return
        self._ungate(uid, gang)
        there = self._members[gang]
        del there[uid]
        if not there:
            del self._members[gang]
            self._satisfied.discard(gang)  # the next one of that name starts anew
        self._note(gang)

    def _ungate(self, uid: str, gang: str) -> None:
        if self.gated.pop(uid, None) is not None:
            self._waiting[gang].discard(uid)
            if not self._waiting[gang]:
                del self._waiting[gang]

    def set_group(self, group: PodGroup) -> None:
        """Take a PodGroup as it is now."""
        if self.groups.get(group.key) != group:
            self.groups[group.key] = group
            self._note(group.key)

    def remove_group(self, key: str) -> None:
        """It is gone."""
        if self.groups.pop(key, None) is not None:
            self._note(key)

    def _note(self, gang: str) -> None:
        self.stale[gang] = None
        self.unwritten[gang] = None
        self._musters.pop(gang, None)
        self._changed()

    def satisfy(self, gang: str) -> None:
        """It has its places: who comes later is an ordinary pod, if its rules have it so."""
        if gang in self._members:
            self._satisfied.add(gang)
            self._musters.pop(gang, None)

    def members(self, gang: str) -> Mapping[str, Member]:
        """Its pods by UID."""
        return self._members.get(gang, {})

    def muster(self, gang: str) -> Muster:
        """Who of it is there; counted anew once it has changed."""
        known = self._musters.get(gang)
        if known is None:
            there = self.members(gang)
            known = self._musters[gang] = muster(
                gang,
                self._rules(gang, there),
                there.values(),
                keys.GANG_GATE,
                satisfied=gang in self._satisfied,
            )
        return known

    def _rules(self, gang: str, there: Mapping[str, Member]) -> Rules:
        """What its oldest pod says, or its PodGroup."""
        oldest = min(there.values(), key=lambda one: (one.pod.created, one.pod.uid), default=None)
        if oldest is not None and oldest.rules is not None:
            return oldest.rules
        if gang in self.groups:
            return self.groups[gang].rules
        return Rules(1, problem=f"there is no PodGroup {gang}")

    def gather_bands(self) -> Iterator[list[Band]]:
        """Gangs with gated pods, and those of their groups, each in one band; in steps of a millisecond or
        so, the last is all of it. Of one group are those that all name it: else anybody's gang could hold up
        another's.
        """
        found, seen = list[Band](), set[str]()
        yield found
        for number, gang in enumerate(sorted(self._waiting)):
            if number % _GANGS_A_STEP == 0:
                yield found
            if gang in seen:
                continue
            first = self.muster(gang)
            names, group = first.rules.groups or (gang,), first.rules.groups
            there = [self.muster(name) for name in names if name in self._members]
            musters = tuple(one for one in there if one.rules.groups == group)
            mates = {one.key for one in musters}
            seen |= mates
            found.append(Band(musters, tuple(name for name in names if name not in mates)))
        yield found

    def regarding(self, gang: str) -> Regarding | None:
        """What an Event about a gang is said of: its PodGroup, else the oldest pod that waits, else none."""
        group = self.groups.get(gang)
        if group is not None:
            return Regarding(read.VERSION, "PodGroup", group.namespace, group.name, group.uid)
        there = self.members(gang).values()
        waiting = [one.pod for one in there if keys.GANG_GATE in one.gates] or [one.pod for one in there]
        pod = min(waiting, key=lambda one: (one.created, one.name), default=None)
        return None if pod is None else Regarding("v1", "Pod", pod.namespace, pod.name, pod.uid)
