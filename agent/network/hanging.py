"""Hangs our programs in where packets pass interfaces, and takes them out where they are not wanted any more.

At a NIC at TCX, where the kernel has it: nobody takes a pinned link off by chance. At pods' veths as filters
of clsact: a filter takes 0.1 ms, and TCX waits 10 ms for the kernel's RCU with everybody's lock of interfaces
held, 250 times on a node. Where others' filters are at a veth TCX all the same: it comes before them.
"""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from agent.network import classifying, dump, messages
from agent.network.bpf import installed, programs
from agent.network.bpf.installed import Done, Installed
from agent.network.bpf.links import Hook
from agent.network.netlink import Netlink, NetlinkError, Request
from agent.network.originals import Originals
from agent.network.records import EGRESS, INGRESS, NAME, PRIORITY, Filter, Found

_HOOKS: Final = {EGRESS: Hook.TCX_EGRESS, INGRESS: Hook.TCX_INGRESS}
_GONE: Final = (errno.ENODEV, errno.ENOENT)
"""Pods end while we look."""


class Place(NamedTuple):
    """One program at one interface; parent: EGRESS or INGRESS. passing: an interface that may end any moment,
    as pods' do.
    """

    interface: int
    parent: int
    program: str
    passing: bool


class Hung(NamedTuple):
    """How many changes there were, and the interfaces at which what hung there was gone, or another's."""

    changes: int
    again: frozenset[int]


class Hanging:
    """For one thread at a time. tcx: whether the kernel has it.

    Methods raise BpfError, classifying.Occupied, NetlinkError.
    """

    def __init__(self, netlink: Netlink, originals: Originals, *, tcx: bool) -> None:
        self._netlink, self._originals, self._tcx = netlink, originals, tcx
        self._filtered: set[tuple[int, int]] | None = None
        """(interface, parent) whose clsact has our filter; None: nobody has looked yet."""
        self._hung: frozenset[tuple[Place, bool]] = frozenset()
        """What was there after the last time, and whether as a filter."""

    def filters(self, places: Iterable[Place], found: Found) -> Mapping[tuple[int, int], Sequence[Filter]]:
        """What hangs as filters of clsact, or of the older ingress qdisc, where these places are."""
        clsacts = _clsacts(found)
        asked = sorted({(place.interface, place.parent) for place in places if place.interface in clsacts})
        return {one: dump.filters(self._netlink, one[0], (one[1],)) for one in asked}

    def hang(
        self,
        opened: Installed,
        places: Sequence[Place],
        found: Found,
        there: Mapping[tuple[int, int], Sequence[Filter]],
        believed: Sequence[Place] = (),
    ) -> Hung:
        """These programs are there, and none of ours elsewhere.

        there: as filters() says it. believed: those of whom that is believed, as unknown() has it. Others'
        stay.
        """
        as_filters = self.as_filters(places, there)
        at_tcx = [place for place in places if place not in as_filters]
        hung = {(place, True) for place in as_filters} | {(place, False) for place in at_tcx}
        hung |= {(place, (place, True) in self._hung) for place in believed}
        self._with_filter(found).update((place.interface, place.parent) for place in as_filters)
        put = {(place, True) for place in self._put_filters(opened, as_filters, found, there)}
        for place in at_tcx:
            try:
                if opened.attach(place.program, _HOOKS[place.parent], place.interface) is not Done.KEPT:
                    put.add((place, False))
            except OSError as error:
                if not place.passing or error.errno not in _GONE:
                    raise
        opened.sweep(
            (place.program, _HOOKS[place.parent], place.interface)
            for place, as_filter in hung
            if not as_filter
        )
        again = frozenset(place.interface for place, _ in put & self._hung)
        self._hung = frozenset(hung)
        gone = self.leave(found, [place for place, as_filter in hung if as_filter])
        return Hung(len(put) + gone, again)

    def unknown(self, places: Iterable[Place]) -> list[Place]:
        """Those that were not hung in the last time, and all that are few."""
        known = {place for place, _ in self._hung if place.passing}
        return [place for place in places if place not in known]

    def nothing(self, found: Found) -> int:
        """No filter of ours is at any clsact; how many went."""
        self._hung = frozenset()
        return self.leave(found)

    def as_filters(
        self, places: Iterable[Place], there: Mapping[tuple[int, int], Sequence[Filter]]
    ) -> dict[Place, None]:
        """Those that hang as filters of clsact, in order."""
        return {
            place: None
            for place in places
            if not self._tcx or (place.passing and not has_others(place, there))
        }

    def leave(self, found: Found, staying: Iterable[Place] = ()) -> int:
        """No filter of ours at clsact but these; how many went."""
        kept = {(place.interface, place.parent) for place in staying}
        changes = 0
        for one in self._with_filter(found) - kept:
            if one[0] in found.devices:
                try:
                    changes += classifying.detach(self._netlink, *one)
                except NetlinkError as refused:
                    if refused.errno not in _GONE:
                        raise
        self._with_filter(found).intersection_update(kept)
        return changes

    def _put_filters(
        self,
        opened: Installed,
        places: Iterable[Place],
        found: Found,
        there: Mapping[tuple[int, int], Sequence[Filter]],
    ) -> set[Place]:
        """All in one go; those that were not there."""
        identities = {name: programs.info(fd).identity for name, fd in opened.programs.items()}
        running: dict[int, object] = {}
        clsacts = _clsacts(found)
        made: set[int] = set()
        requests: list[tuple[Place, Request]] = []
        for place in places:
            have = classifying.ours(_at(there, place), place.interface)
            if have is not None:
                if have.program not in running:
                    running[have.program] = programs.running(have.program).identity
                if running[have.program] == identities[place.program]:
                    continue
            elif place.interface not in clsacts | made:
                made.add(place.interface)
                requests.append((place, messages.clsact(place.interface)))
            requests.append((place, _filter(place, opened.programs[place.program])))
        if made:
            self._originals.note_clsacts([found.devices[interface] for interface in sorted(made)])
        self._apply(requests)
        return {place for place, _ in requests}

    def _apply(self, requests: Sequence[tuple[Place, Request]]) -> None:
        outcomes = self._netlink.apply([request for _, request in requests])
        lost: defaultdict[int, list[NetlinkError]] = defaultdict(list)
        for (place, request), refused in zip(requests, outcomes, strict=True):
            if refused is None:
                continue
            if request.type == messages.NEW_QDISC and refused.errno == errno.EEXIST:
                continue  # somebody came in between: the filter goes there
            if not place.passing or not (refused.errno in _GONE or lost[place.interface]):
                raise refused
            lost[place.interface].append(refused)

    def _with_filter(self, found: Found) -> set[tuple[int, int]]:
        if self._filtered is None:
            both = [(interface, parent) for interface in _clsacts(found) for parent in (EGRESS, INGRESS)]
            self._filtered = {one for one in both if self._has_ours(*one)}
        return self._filtered

    def _has_ours(self, interface: int, parent: int) -> bool:
        try:
            return classifying.query(self._netlink, interface, parent) is not None
        except classifying.Occupied:
            return False


def others_programs(place: Place, there: Mapping[tuple[int, int], Sequence[Filter]]) -> bool:
    """Whether another's BPF program hangs where this one is to. Raises BpfError."""
    if any(one.kind == "bpf" and not one.name.startswith(NAME) for one in _at(there, place)):
        return True
    try:
        return bool(installed.others(place.interface, _HOOKS[place.parent]))
    except OSError as error:
        if error.errno not in (*_GONE, errno.EINVAL):  # a kernel without TCX
            raise
        return False


def has_others(place: Place, there: Mapping[tuple[int, int], Sequence[Filter]]) -> bool:
    """Whether filters of others are at this clsact: they come before ours."""
    return any(one.priority != PRIORITY for one in _at(there, place))


def _at(there: Mapping[tuple[int, int], Sequence[Filter]], place: Place) -> Sequence[Filter]:
    return there.get((place.interface, place.parent), ())


def _clsacts(found: Found) -> AbstractSet[int]:
    return {one.interface for one in found.qdiscs if one.kind in ("clsact", "ingress")}


def _filter(place: Place, program: int) -> Request:
    return messages.bpf_filter(place.interface, place.parent, program, f"{NAME}_{place.program}")
