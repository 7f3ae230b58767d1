"""Pods in flight.

Answered by filter, not yet bound. The capacity that they may take of nodes is charged (traps T02, T09, T10):
in `charged` where the pod was answered one node alone, and will go there; in `possible` where it was answered
several, and will be on one of them at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypeAlias

import numpy as np

from ledger.holds import Holds
from ledger.nominations import Nominations
from ledger.table import Columns, Flags, Rows, Table
from qos.cluster.objects import Pod, Resources

_MOST_DOUBTED: Final = 256
"""At once: thousands, each on a node of its own, would hold the loop for tens of milliseconds."""


@dataclass(slots=True)
class Flight:
    """One pod: rows charged with the same amounts, part by part, and the holds it was given.

    `unsure`: charged as possible although it is one row. `shares`: the demand of which it takes a
    part, with others, and `share`, what of it; -1: of none.
    """

    pod: Pod
    since: float
    parts: list[tuple[Rows, Resources]] = field(default_factory=list)
    own: list[tuple[int, int]] = field(default_factory=list)
    unsure: bool = False
    shares: int = -1
    share: Resources = field(default_factory=dict)

    def rows(self) -> Rows:
        """Every row charged."""
        return np.concatenate([rows for rows, _ in self.parts]) if self.parts else np.zeros(0, dtype=np.intp)

    @property
    def first_row(self) -> int:
        """The first row charged, the only one where that is certain; -1: none is."""
        return next((int(rows[0]) for rows, _ in self.parts if rows.size), -1)

    @property
    def certain(self) -> bool:
        """True when there is one node the pod can go to."""
        if self.unsure:
            return False
        parts = [rows for rows, _ in self.parts if rows.size]
        return all(rows[-1] == parts[0][0] and (rows == parts[0][0]).all() for rows in parts)


Kind: TypeAlias = tuple[tuple[str, int], ...]
"""What a pod requests, sorted."""


class Flights:
    """Flights by pod UID, kept in step with the charged columns and the holds given to owners.

    A pod that is charged all it asks for on the node it is nominated to waits for no hole beside that.

    `uncertain`: how many of those that are charged as possible there are, by what their pods request.
    `shared`: demands of whose parts owners in flight have come or gone, since somebody took them out.
    `followed` is told of each pod that is charged or no more.
    `ignored`: see `left_out`; then a hold that an owner in flight was given may also be displaced.
    """

    def __init__(self, table: Table, holds: Holds, nominations: Nominations) -> None:
        self._table = table
        self._holds = holds
        self._nominations = nominations
        nominations.charged = self.covers
        self.by_uid: dict[str, Flight] = {}
        self.uncertain: Counter[Kind] = Counter()
        self.ignored = False
        self.shared: set[int] = set()
        self.followed: Callable[[str], None] = lambda _uid: None
        self._sharing: dict[str, Flight] = {}

    def covers(self, pod: Pod, row: int) -> bool:
        """Whether all that the pod asks for is charged on this row, and nowhere else."""
        flight = self.by_uid.get(pod.uid)
        if flight is None or self.ignored or not flight.certain:
            return False
        return any(row in part and amounts == pod.requests for part, amounts in flight.parts)

    def put(self, flight: Flight) -> None:
        """Charge a flight; the pod must not have one."""
        self.by_uid[flight.pod.uid] = flight
        if flight.shares >= 0:
            self._sharing[flight.pod.uid] = flight
        self._charge(flight, 1)
        self.followed(flight.pod.uid)

    def drop(self, uid: str) -> Flight | None:
        """Take the charges back; returns what there was."""
        flight = self.by_uid.pop(uid, None)
        if flight is not None:
            self._sharing.pop(uid, None)
            self._charge(flight, -1)
            self.followed(uid)
        return flight

    def narrow(self, uid: str, row: int) -> None:
        """The scheduler nominated the pod for a node it was answered: it can go nowhere else (T09)."""
        flight = self.by_uid.get(uid)
        if flight is None or row not in flight.rows():
            return
        self._charge(flight, -1)
        flight.parts = [(part[part == row], amounts) for part, amounts in flight.parts if row in part]
        flight.own = [(demand, there) for demand, there in flight.own if there == row]
        flight.unsure = False
        self._charge(flight, 1)

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Charge nothing meanwhile: where bind can refuse, a slot's room comes before a pod in flight. But
        what that takes of a Reservation is no room: it is held again when the pod does not come.
        """
        table, kept = self._table, self._shares()
        charged, table.charged = table.charged, kept.copy()
        table.changes += 1
        self.ignored = True
        self._nominations.follow_all()
        try:
            yield
        finally:
            self.ignored, grown = False, set(table.grown)
            self._nominations.follow_all()
            table.grown = grown  # a hole that is covered again leaves no more room than before
            table.charged += charged - kept  # what was charged meanwhile stays
            table.changes += 1

    def _shares(self) -> Columns:
        """What pods in flight take of demands that they share with others, charged alone."""
        columns = np.zeros_like(self._table.charged)
        for flight in self._sharing.values():
            for rows, _ in flight.parts if flight.shares >= 0 else ():
                for name, amount in flight.share.items():
                    if (dim := self._table.dims.get(name)) is not None:
                        columns[dim, rows] += amount
        return columns

    def drop_row(self, row: int) -> None:
        """The node is gone. What pods may take there is taken off there alone: of thousands in flight, each
        may go to thousands of nodes.
        """
        for flight in self.by_uid.values():
            there = [amounts for part, amounts in flight.parts if row in part]
            if not there:
                continue
            left = replace(flight, parts=[(part[part != row], amounts) for part, amounts in flight.parts])
            if flight.certain or left.certain or any(given == row for _, given in flight.own):
                self._charge(flight, -1)
                flight.parts = left.parts
                flight.own = [(demand, given) for demand, given in flight.own if given != row]
                self._charge(flight, 1)
                continue
            for amounts in there:
                self._table.add("possible", row, amounts, -1)
            flight.parts = left.parts

    def doubt(self, rows: AbstractSet[int]) -> bool:
        """Charge as possible alone what was certain to land on one of these, of as many as one call may take;
        True when there was any. Owners keep the holds that they were given, and their parts of Reservations,
        which nothing else would hold.
        """
        certain = (
            flight
            for flight in self.by_uid.values()
            if flight.first_row in rows and not (flight.own or flight.shares >= 0) and flight.certain
        )
        doubted = [*islice(certain, _MOST_DOUBTED)]
        for flight in doubted:
            self._charge(flight, -1)
            flight.unsure = True
            self._charge(flight, 1)
        return bool(doubted)

    def drop_hopeless(self, rows: AbstractSet[int], preemptors: Container[str]) -> bool:
        """Forget pods that can go to one of these nodes alone, and fit there no more: others came first.

        What they were charged for may be held. True when there were any. Not `preemptors` (UIDs): their
        victims may be counted yet.
        """
        table, late = self._table, list[str]()
        for uid, flight in self.by_uid.items():
            row = flight.first_row
            if row not in rows or uid in preemptors or not flight.certain:
                continue
            amounts = ((table.dims.get(name), amount) for name, amount in flight.pod.requests.items())
            if any(dim is not None and self._lacks(row, dim, amount) for dim, amount in amounts):
                late.append(uid)
        for uid in late:
            self.drop(uid)
        return bool(late)

    def drop_on(self, rows: Flags) -> None:
        """Forget pods that can go to one of these nodes alone."""
        if rows.any():
            for uid in [uid for uid, one in self.by_uid.items() if one.certain and rows[one.first_row]]:
                self.drop(uid)

    def _lacks(self, row: int, dim: int, amount: int) -> bool:
        """As fits_free: who is owed what a node does not offer gets in all the same."""
        return bool(amount > self._table.free[dim, row] and self._table.allocatable[dim, row])

    def bereave(self, demand: int, row: int | None = None) -> None:
        """A hold given to an owner in flight is lifted, there or anywhere.

        Its whole request is charged instead.
        """
        for flight in self.by_uid.values():
            lost = [given for given in flight.own if given[0] == demand and row in (None, given[1])]
            if not lost:
                continue
            self._charge(flight, -1)
            rows = np.asarray([there for _, there in lost], dtype=np.intp)
            parts = [(part[~np.isin(part, rows)], amounts) for part, amounts in flight.parts]
            flight.parts = [*parts, (rows, flight.pod.requests)]
            flight.own = [given for given in flight.own if given not in lost]
            self._charge(flight, 1)
            self._table.touched.update(rows.tolist())
            if row is not None:
                return

    def part(self, demand: int) -> None:
        """A demand of which pods in flight take parts is gone: another may get its number."""
        for flight in self.by_uid.values():
            if flight.shares == demand:
                flight.shares = -1

    def fill(self, resources: AbstractSet[str]) -> None:
        """Charge columns that are new."""
        self._table.changes += 1
        for flight in self.by_uid.values():
            for rows, amounts in flight.parts:
                if some := amounts.keys() & resources:
                    columns = self._table.charged if flight.certain else self._table.possible
                    for name in some:
                        columns[self._table.dims[name], rows] += amounts[name]

    def _charge(self, flight: Flight, sign: int) -> None:
        if flight.certain:
            self._charge_certain(flight, sign)
        else:
            self._count(tuple(sorted(flight.pod.requests.items())), sign)
            self._table.may_take(flight.pod.uid, flight.parts, sign)
        for demand, row in flight.own:
            self._holds.give(demand, row, sign)
        if flight.shares >= 0:
            self.shared.add(flight.shares)
        self._nominations.follow(flight.pod.uid)

    def _charge_certain(self, flight: Flight, sign: int) -> None:
        for rows, amounts in flight.parts:
            self._table.add("charged", rows, amounts, sign)
            (self._table.touched if sign > 0 else self._table.grown).update(rows.tolist())

    def _count(self, kind: Kind, sign: int) -> None:
        self.uncertain[kind] += sign
        if not self.uncertain[kind]:
            del self.uncertain[kind]


def joined(before: Flight | None, after: Flight) -> Flight:
    """The union of a pod's answers, each row charged once.

    What it may take when bind does not come through us.
    """
    if before is None:
        return after
    known = before.rows()
    parts = [(np.setdiff1d(rows, known), amounts) for rows, amounts in after.parts]
    return Flight(
        after.pod,
        after.since,  # the newest answer may be bound last: waiting for it to settle begins anew
        _merged([*before.parts, *parts]),
        before.own + [given for given in after.own if given[1] not in known],
        before.unsure or after.unsure,
    )


def _merged(parts: Iterable[tuple[Rows, Resources]]) -> list[tuple[Rows, Resources]]:
    """One part for all rows of the same amounts: a pod that is tried for ever gets one node at a time."""
    merged: list[tuple[Rows, Resources]] = []
    for rows, amounts in parts:
        place = next((place for place, (_, same) in enumerate(merged) if same == amounts), -1)
        if place >= 0:
            merged[place] = np.concatenate([merged[place][0], rows]), amounts
        elif rows.size:
            merged.append((rows, amounts))
    return merged
