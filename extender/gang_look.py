"""Whether a gang can have places now: by what there is at the most, then by claiming them one by one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

from ledger.gangs import Room
from ledger.ledger import Ledger
from qos.cluster.gangs import Band, Member, in_order_of_need, one_ask
from qos.cluster.objects import NodePredicate, Pod

Kind: TypeAlias = tuple[tuple[tuple[str, int], ...], int, NodePredicate]
"""Pods of one kind, by what they ask for, priority and where they may run, fit alike."""
NODES: Final = "nodes"
CHANGED: Final = "its pods changed meanwhile"


@dataclass(slots=True)
class _Sums:
    """What a band's pods ask for, worked out once a change: how many of each kind, one of each, and together
    of each quota.
    """

    of: tuple[Member, ...]
    kinds: Counter[Kind]
    samples: dict[Kind, Member]
    asks: list[Pod]


class GangLook:
    """Answers are kept for `begin()` until the next: gangs of one kind are looked at once a pass.

    `waits`: whether a pod is still gated, by UID.
    """

    def __init__(self, ledger: Ledger, waits: Callable[[str], bool], clock: Callable[[], float]) -> None:
        self._ledger, self._waits, self._clock = ledger, waits, clock
        self._sums: dict[tuple[str, ...], _Sums] = {}
        self._rooms: dict[tuple[Kind, bool], Room] = {}

    def begin(self, bands: list[Band]) -> None:
        """A pass begins."""
        self.room_taken()
        there = {band.key for band in bands}
        self._sums = {key: sums for key, sums in self._sums.items() if key in there}

    def room_taken(self) -> None:
        """What is known of nodes is out of date."""
        self._rooms.clear()

    def obstacle(self, band: Band) -> tuple[str, str]:
        """Why the band certainly has no places now, in words that stay while nothing changes, and where: in
        which quota, or on NODES; "": it may have them.
        """
        sums, mates = self._of(band), _mates(band)
        for ask in sums.asks:
            if why := self._ledger.gangs.refusal(ask, mates):
                return f"{len(sums.of)} pods together: {why}", self._ledger.gangs.quota_of(ask)
        return self._crowded(sums, mates, empty=False), NODES

    def quotas(self, band: Band) -> set[str]:
        """Those of its pods."""
        return {self._ledger.gangs.quota_of(ask) for ask in self._of(band).asks}

    def hopeless(self, band: Band) -> bool:
        """Whether it would have no places if no pod ran."""
        return bool(self._crowded(self._of(band), (), empty=True))

    def _crowded(self, sums: _Sums, mates: Collection[str], *, empty: bool) -> str:
        for kind, wanted in sums.kinds.items():
            room = self._room(sums.samples[kind], kind, mates, empty=empty)
            if room.pods < wanted and not room.nodes:
                return "no ready node admits them, by node selector, required affinity and taints"
            if room.pods < wanted:
                return f"{room.pods} of {wanted} pods fit on nodes: there is too little {room.resource}"
        return ""

    def _room(self, sample: Member, kind: Kind, mates: Collection[str] = (), *, empty: bool) -> Room:
        if mates:
            return self._ledger.gangs.room(sample.pod, sample.where, empty=empty, mates=mates)
        if (kind, empty) not in self._rooms:
            self._rooms[kind, empty] = self._ledger.gangs.room(sample.pod, sample.where, empty=empty)
        return self._rooms[kind, empty]

    def _of(self, band: Band) -> _Sums:
        chosen, known = band.chosen, self._sums.get(band.key)
        if known is not None and len(known.of) == len(chosen) and all(map(_same, known.of, chosen)):
            return known
        kinds, samples = Counter[Kind](), dict[Kind, Member]()
        for one in chosen:
            kind = _kind(one)
            kinds[kind] += 1
            samples.setdefault(kind, one)
        pods = [one.pod for one in chosen]
        asks = [] if any(map(self._ledger.policy_of, pods)) else one_ask(pods)
        found = self._sums[band.key] = _Sums(chosen, kinds, samples, asks)
        return found

    async def claim(self, band: Band) -> tuple[dict[str, tuple[Pod, str]], str]:
        """Claim a node for each pod of the band, by UID, or for none, and say why; others run in between."""
        sums = self._of(band)
        nodes = [self._room(one, _kind(one), empty=False).nodes for one in sums.of]
        places: dict[str, tuple[Pod, str]] = {}
        for one in in_order_of_need(sums.of, nodes):
            preferred = one.pod.nominated_node_name
            found = self._ledger.gangs.place(one.pod, one.where, self._clock(), preferred)
            if not found.node:
                self._ledger.gangs.forget(one.pod.uid)
                self.give_up(places)
                return {}, f"{len(places)} of {len(sums.of)} pods have room: {found.why}"
            places[one.pod.uid] = one.pod, found.node
            await asyncio.sleep(0)
        if not all(map(self._waits, places)):
            self.give_up(places)
            return {}, CHANGED
        return places, ""

    def give_up(self, places: dict[str, tuple[Pod, str]]) -> None:
        """Let all of it go."""
        for uid in places:
            self._ledger.release(uid)


def _mates(band: Band) -> set[str]:
    """UIDs of its pods for which a place is kept already."""
    return {pod.uid for one in band.musters for pod in one.nominated}


def _kind(one: Member) -> Kind:
    return tuple(sorted(one.pod.requests.items())), one.pod.priority, one.where


def _same(one: Member, other: Member) -> bool:
    return one is other
