"""Where volumes let a demand's pods run: its holds lie so that each pod that lacks one may run on its own.

An anchor's pods may run on some nodes only (a zone, a host), each of the others on any. Nodes that admit the
very same anchors are a domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from ledger.claims import Claims
from ledger.demands import Demands
from ledger.holds import Holds
from ledger.levels import Levels
from ledger.matching import Matching
from ledger.table import Flags, Rows
from qos.cluster.objects import Terms

_Layout: TypeAlias = tuple[Rows, Sequence[Sequence[int]]]
"""Each row's domain, and the anchors that each domain admits."""
_BITS: Final = 32
_MOST_NAMED: Final = 3
_MOST_KNOWN: Final = 512


@dataclass(slots=True)
class Lack:
    """What a demand's holds are for. `lacking`: of each anchor the pods without a slot, by name, with what
    their volumes are called; `others`: how many more slots are for pods that may run anywhere.
    """

    lacking: Sequence[Mapping[str, str]]
    others: int

    @property
    def sizes(self) -> list[int]:
        """How many slots each anchor lacks; last, how many are for any pod."""
        return [*map(len, self.lacking), self.others]


@dataclass
class Anchored:
    """A demand's anchors, as things are; beside ledger.spread.Domains, and asked the same."""

    of: Rows
    fits: Sequence[Sequence[int]]
    held: Levels
    lack: Lack
    keyed: Final = True
    required: Final = True
    _more: list[int] = field(default_factory=list)

    @cached_property
    def _matching(self) -> Matching:
        return self._matched(self.held)

    @property
    def size(self) -> int:
        """How many domains there are."""
        return self.held.size

    def _matched(self, held: Levels) -> Matching:
        found = Matching(self.fits, self.lack.sizes)
        for domain, count in enumerate(held.tolist()):
            found.add(domain, count)
        return found

    def quota(self, room: Levels, want: int, order: Levels) -> Levels:
        """As Domains.quota."""
        quota = np.zeros(self.size, dtype=np.int64)
        for domain in np.argsort(order, kind="stable").tolist():
            most = min(int(room[domain]), want - int(quota.sum()))
            quota[domain] = self._matching.add(domain, most) if most > 0 else 0
        return quota

    def settle_on(self, room: Levels) -> None:
        """As Domains.settle_on."""

    def open_at(self, where: Rows) -> Flags:
        """As Domains.open_at."""
        return np.asarray(self._matching.open(), dtype=np.bool_)[where]

    def levels_at(self, where: Rows) -> Levels:
        """None is before another."""
        return np.zeros(where.size, dtype=np.int64)

    def take(self, where: Rows) -> Flags:
        """As Domains.take."""
        taken = [self._matching.add(domain, 1) > 0 for domain in where.tolist()]
        return np.asarray(taken, dtype=np.bool_)

    def excess(self) -> Levels:
        """As Domains.excess."""
        return self._unmatched(self._matching)

    def _unmatched(self, matching: Matching, held: Levels | None = None) -> Levels:
        matched = [sum(given.values()) for given in matching.given]
        return np.asarray((self.held if held is None else held) - np.asarray(matched, dtype=np.int64))

    def leaving(self, there: Levels, count: int) -> Levels:
        """How many of the holds `there` each domain gives up, `count` in all: those that are for nobody, then
        those for pods that may run anywhere.
        """
        free = len(self.lack.lacking)
        anywhere = np.asarray([given.get(free, 0) for given in self._matching.given], dtype=np.int64)
        gone = np.zeros_like(there)
        for some in (self.excess(), anywhere, there):
            left = np.minimum(there - gone, some)
            before = np.cumsum(left) - left
            gone += np.clip(count - int(gone.sum()) - before, 0, left)
        return gone

    def bears(self, changes: Mapping[int, int], target: int) -> bool:  # noqa: ARG002 - as Domains.bears
        """As Domains.bears."""
        held = self.held.copy()
        for row, count in changes.items():
            held[self.of[row]] += count
        held = np.maximum(held, 0)
        return int(self._unmatched(self._matched(held), held).sum()) <= int(self.excess().sum())

    def suits(self, name: str, rows: Rows) -> Flags:
        """Where a pod of this name may take a hold that no other needs more."""
        group = next(
            (place for place, pods in enumerate(self.lack.lacking) if name in pods), len(self.lack.lacking)
        )
        may = np.asarray(self._matching.suiting(group), dtype=np.bool_) | (self.excess() > 0)
        return np.asarray(may[self.of[rows]])

    def told(self) -> str:
        """The pods without a hold whose volumes keep them to some nodes, and the volumes."""
        waiting = zip(self._matching.spare, self.lack.lacking, strict=False)
        named = [f"pod {pod}: {volumes}" for spare, pods in waiting if spare for pod, volumes in pods.items()]
        more = len(named) - _MOST_NAMED
        return "; ".join([*named[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


class Anchors:
    """The anchors of all demands. `effort`: how many were looked at since somebody asked; one that is met
    for the first time counts eightfold.
    """

    def __init__(self, demands: Demands, holds: Holds, claims: Claims) -> None:
        self._demands = demands
        self._holds = holds
        self._claims = claims
        self._meeting: dict[tuple[Terms, ...], Flags] = {}
        self._known: dict[tuple[tuple[Terms, ...], ...], _Layout] = {}
        self._known_at = (-1, -1)
        self.effort = 0

    def of(self, demand: int) -> Anchored:
        """A demand's that has some, as things are."""
        of, fits = self._layout(tuple([anchor.volumes for anchor in self._demands[demand].anchors]))
        held = np.bincount(of, self._holds.count[demand], len(fits)).astype(np.int64)
        return Anchored(of, fits, held, self._lack(demand))

    def _lack(self, demand: int) -> Lack:
        filling = {c.pod.name for c in self._claims.of.get(demand, {}).values() if not c.away}
        lacking = [
            {name: volumes for name, volumes in anchor.pods.items() if name not in filling}
            for anchor in self._demands[demand].anchors
        ]
        slots = self._demands[demand].desired - self._holds.filled_total[demand]
        return Lack(lacking, max(0, slots - sum(map(len, lacking))))

    def _layout(self, anchors: tuple[tuple[Terms, ...], ...]) -> _Layout:
        """Good until nodes change their labels; demands with volumes in the same zones share it."""
        now = self._demands.relabelled, self._holds.count.shape[1]
        if self._known_at != now or len(self._known) > _MOST_KNOWN:
            self._known, self._meeting, self._known_at = {}, {}, now
        self.effort += len(anchors)
        known = self._known.get(anchors)
        if known is None:
            self.effort += 7 * len(anchors)
            known = self._known[anchors] = _layout([self._where(volumes) for volumes in anchors])
        return known

    def _where(self, volumes: tuple[Terms, ...]) -> Flags:
        flags = self._meeting.get(volumes)
        if flags is None:
            flags = self._meeting[volumes] = self._demands.meeting(volumes)
        return flags


def _layout(admitting: Sequence[Flags]) -> _Layout:
    """`admitting`: the rows that each anchor admits."""
    of = np.zeros(admitting[0].size, dtype=np.int64)
    for start in range(0, len(admitting), _BITS):
        for place, flags in enumerate(admitting[start : start + _BITS]):
            of += flags.astype(np.int64) << place
        of = np.unique(of, return_inverse=True)[1].astype(np.int64) << _BITS
    of >>= _BITS
    first = np.unique(of, return_index=True)[1].tolist()
    anyone = len(admitting)
    fits = [[*(g for g, flags in enumerate(admitting) if flags[row]), anyone] for row in first]
    return of.astype(np.intp), fits
