"""Spread domains: where one more slot of a demand may be held, so that kube-scheduler lets an owner go there.

A constraint sees its domains by level: the pods that it counts, and the demand's holds. None with holds may
be more than maxSkew above the lowest (ledger/levels.py). With several constraints on one demand each is kept
on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ledger.anchors import Anchored, Anchors
from ledger.demands import Demands
from ledger.headcount import Headcount
from ledger.holds import Holds
from ledger.levels import Levels, highest_first, lowest_first, most_more
from ledger.table import Flags, Rows
from qos.cluster.objects import Spread

SPREAD: Final = "Spread"
VOLUMES: Final = "VolumeNodeAffinity"
_NO_DOMAIN: Final = -1
_ANY_SKEW: Final = 1 << 41
_ROUNDS: Final = 24
"""With several constraints slots are placed in rounds, some tenths of a millisecond each: so many at once."""
_MOST_NAMED: Final = 8


@dataclass(slots=True)
class Domains:
    """One constraint, as things are. `of`: each row's domain, or -1; `levels` and `held` by domain."""

    spread: Spread
    of: Rows
    levels: Levels
    held: Levels

    @property
    def size(self) -> int:
        """How many domains there are."""
        return self.levels.size

    @property
    def required(self) -> bool:
        """Whether pods go nowhere else."""
        return self.spread.required

    @property
    def keyed(self) -> bool:
        """Whether pods go only to nodes that are in a domain."""
        return self.spread.keyed

    @property
    def skew(self) -> int:
        """By how much a domain with holds may be above the lowest."""
        return self.spread.max_skew if self.spread.required else _ANY_SKEW

    @property
    def floor(self) -> int:
        """The lowest level, from which skew is counted."""
        few = self.levels.size < self.spread.min_domains
        return 0 if few else int(self.levels.min(initial=_ANY_SKEW))

    def quota(self, room: Levels, want: int, order: Levels) -> Levels:
        """How many slots each domain is to get, of as many as it has room for."""
        if not self.spread.itself:
            return np.where(self.levels - self.floor <= self.skew, room, 0)
        floor = 0 if self.levels.size < self.spread.min_domains else None
        return lowest_first(self.levels, most_more(self.levels, room, self.skew, floor=floor), want, order)

    def settle_on(self, room: Levels) -> None:
        """Slots are about to be placed, for which the domains have so much room."""

    def open_at(self, where: Rows) -> Flags:
        """Whether one more slot may be held in each of these domains."""
        may = np.append(self.levels + self.spread.itself - self.floor <= self.skew, not self.spread.keyed)
        return np.asarray(may[where])  # _NO_DOMAIN is the last

    def levels_at(self, where: Rows) -> Levels:
        """The levels of these domains; what is in none comes last."""
        return np.asarray(np.append(self.levels, _ANY_SKEW)[where])

    def take(self, where: Rows) -> Flags:
        """One slot more is held in each of these domains, one after the other, as far as that may be."""
        if self.spread.itself:
            self.levels[where[where != _NO_DOMAIN]] += 1
        return np.ones(where.size, dtype=np.bool_)

    def leaving(self, there: Levels, count: int) -> Levels:
        """How many of the holds `there` each domain gives up, `count` in all."""
        return highest_first(self.levels, there, count)

    def excess(self) -> Levels:
        """How many holds of each domain no owner could take."""
        over = self.levels - self.floor - self.skew
        if not self.spread.itself:
            return np.where(over > 0, self.held, 0)
        return np.asarray(np.clip(over, 0, self.held))

    def bears(self, changes: Mapping[int, int], target: int) -> bool:
        """Whether holds may move so (row -> how many more), the last to the row `target`: nothing is further
        above the lowest than it may be, or than it was.
        """
        levels, held = self.levels.copy(), self.held.copy()
        for row, count in changes.items():
            domain = self.of[row]
            if domain != _NO_DOMAIN:
                levels[domain] += count * self.spread.itself
                held[domain] += count
        after = Domains(self.spread, self.of, levels, held)
        domain = self.of[target]
        open_there = (
            not self.spread.keyed if domain == _NO_DOMAIN else levels[domain] - after.floor <= self.skew
        )
        if not open_there:
            return False
        return after._worst() <= max(self.skew, self._worst())

    def told(self, label: Callable[[int], str]) -> str:
        """The constraint, and the levels of the lowest domains; `label`: what a domain is called."""
        spread, lowest = self.spread, np.argsort(self.levels, kind="stable")[:_MOST_NAMED].tolist()
        told = [f"{label(place)} {self.levels[place]}" for place in lowest]
        if self.size > len(lowest):
            told.append(f"{self.size - len(lowest)} more")
        few = f", minDomains {spread.min_domains}" if self.size < spread.min_domains else ""
        kind = "anti-affinity" if spread.apart else "affinity"
        rule = kind if spread.between_pods else f"maxSkew {spread.max_skew}{few}"
        return f"{spread.key}, {rule}: {', '.join(told) or 'no domain'}"

    def _worst(self) -> int:
        return int((self.levels - self.floor)[self.held > 0].max(initial=0))


@dataclass(slots=True)
class Gathered(Domains):
    """A required affinity. `first`: the domain that the first pod will decide on; -1: not known yet."""

    first: int = _NO_DOMAIN

    def settle_on(self, room: Levels) -> None:
        """Nothing is there yet: where most slots have room it begins."""
        if self.spread.itself and not self.levels.any() and not self.held.any() and room.any():
            self.first = int(room.argmax())

    def _open(self) -> Flags:
        pods = self._pods()
        if pods.any() or not self.spread.itself:
            return np.asarray(pods > 0)
        first = int(self.held.argmax()) if self.held.any() else self.first
        everywhere = np.ones(self.levels.size, dtype=np.bool_)
        return everywhere if first == _NO_DOMAIN else np.arange(self.levels.size) == first

    def quota(self, room: Levels, want: int, order: Levels) -> Levels:  # noqa: ARG002 - as Domains.quota
        """All of it where pods may go."""
        return np.where(self._open(), room, 0)

    def open_at(self, where: Rows) -> Flags:
        """As Domains.open_at; not in none."""
        return np.asarray(np.append(self._open(), False)[where])

    def excess(self) -> Levels:
        """As Domains.excess."""
        return np.where(self._open(), 0, self.held)

    def bears(self, changes: Mapping[int, int], target: int) -> bool:  # noqa: ARG002 - as Domains.bears
        """Only to where pods may go as things are; as long as there are none, all stay together."""
        return bool(self._pods().any() and self.open_at(self.of[[target]])[0])

    def _pods(self) -> Levels:
        return self.levels - self.held * self.spread.itself


Constraint: TypeAlias = Domains | Anchored


class Spreads:
    """The constraints of all demands. `rounds`: how many it took to place slots since somebody asked."""

    def __init__(self, demands: Demands, holds: Holds, headcount: Headcount, anchors: Anchors) -> None:
        self._demands = demands
        self._holds = holds
        self._headcount = headcount
        self.anchors = anchors
        self._known: dict[object, tuple[Rows, int]] = {}
        self._known_at = -1
        self.rounds = 0

    def required(self, demand: int) -> bool:
        """Whether some constraint keeps the demand's slots from places that have room."""
        there = self._demands[demand]
        return bool(there.anchors) or any(one.required for one in there.spread)

    def of(self, demand: int, *, required: bool = False) -> list[Constraint]:
        """The demand's constraints as things are, or only the `required` ones: what is spread, those first
        that are required; last, where volumes are.
        """
        there = self._demands[demand]
        stated = sorted(there.spread, key=lambda one: not one.required)
        found: list[Constraint] = [
            self._domains(demand, one) for one in stated if one.required or not required
        ]
        return [*found, self.anchors.of(demand)] if there.anchors else found

    def suiting(self, demand: int, name: str, rows: Rows) -> Flags | None:
        """On which of these rows a pod of this name, by its volumes, takes no other's hold; None: on all."""
        return self.anchors.of(demand).suits(name, rows) if self._demands[demand].anchors else None

    def _domains(self, demand: int, spread: Spread) -> Domains:
        of, count = self._rows(demand, spread)
        held = _by_domain(self._holds.count[demand], of, count)
        pods = self._headcount.of(self._demands[demand].namespace, spread)
        levels = _by_domain(pods, of, count)
        kind = Gathered if spread.together else Domains
        return kind(spread, of, levels + held if spread.itself else levels, held)

    def _rows(self, demand: int, spread: Spread) -> tuple[Rows, int]:
        """Each row's domain, and how many there are; good until a node or a demand changes."""
        if self._known_at != self._demands.changes:
            self._known, self._known_at = {}, self._demands.changes
        alike = self._demands.alike(demand, spread)
        known = self._known.get(alike)
        if known is None:
            known = self._known[alike] = self._demands.domains(demand, spread)
        return known

    def share_out(self, demand: int, rows: Rows, fit: Levels, want: int) -> Levels:
        """Of the slots that fit on these rows, in this order, those that are to be held there."""
        all_domains = self.of(demand)
        for domains in all_domains:
            domains.settle_on(_by_domain(fit, domains.of[rows], domains.size))
        if len(all_domains) > 1:
            return self._in_rounds(all_domains, rows, fit, want)
        for domains in all_domains:
            self.rounds += 1
            where, size = domains.of[rows], domains.size
            some = np.flatnonzero((where != _NO_DOMAIN) & (fit > 0))
            room = _by_domain(fit, where, size)
            order = np.full(size, rows.size, dtype=np.int64)
            order[where[some[::-1]]] = some[::-1]  # each domain's first row is written last
            quota = domains.quota(room, want, order)
            fit = _first_of_each(fit, where, quota, elsewhere=not domains.keyed)
        return fit

    def _in_rounds(self, all_domains: Sequence[Constraint], rows: Rows, fit: Levels, want: int) -> Levels:
        """One slot for each domain of each constraint in a round, where all of them allow one more."""
        counts = np.zeros_like(fit)
        where = [domains.of[rows] for domains in all_domains]
        for _ in range(_ROUNDS):
            self.rounds += 1
            may = counts < fit
            for domains, there in zip(all_domains, where, strict=True):
                may &= domains.open_at(there)
            places = np.flatnonzero(may)
            if not places.size:
                break
            heights = [d.levels_at(there[places]) for d, there in zip(all_domains, where, strict=True)]
            order = np.lexsort((places, *reversed(heights)))
            lowest = np.count_nonzero(heights[0] == heights[0].min())
            places = places[order[:lowest]]
            for there in where:
                places = places[np.sort(np.unique(there[places], return_index=True)[1])]
            places = places[: want - int(counts.sum())]
            for domains, there in zip(all_domains[::-1], where[::-1], strict=True):
                places = places[domains.take(there[places])]
            counts[places] += 1
            if int(counts.sum()) >= want:
                break
        return counts

    def open(self, demand: int) -> Flags | np.bool_:
        """The rows where one more slot may be held now; True: all."""
        found: Flags | np.bool_ = np.True_
        for domains in self.of(demand, required=True):
            found = found & domains.open_at(domains.of)
        return found

    def excess(self, demand: int, rows: Rows, there: Levels) -> Levels:
        """Of the holds on these rows, those that no owner could take, by the first such constraint."""
        for domains in self.of(demand, required=True):
            over = domains.excess()
            if over.any():
                return _first_of_each(there, domains.of[rows], over)
        return np.zeros_like(there)

    def to_leave(self, demand: int, rows: Rows, there: Levels, count: int) -> Levels:
        """Of the holds on these rows `count`: by where volumes are, else from the highest domains of the
        first constraint.
        """
        stated = self.of(demand)
        if not stated:
            return there
        domains = stated[-1] if isinstance(stated[-1], Anchored) else stated[0]
        where = domains.of[rows]
        held = _by_domain(there, where, domains.size)
        elsewhere = int(there.sum()) - int(held.sum())
        return _first_of_each(there, where, domains.leaving(held, max(0, count - elsewhere)), elsewhere=True)

    def explain(self, demand: int, rows: Rows) -> tuple[str, str]:
        """What keeps most of these rows from having one more: a reason, and the constraint as things are."""
        stated = self.of(demand, required=True)
        worst = max(stated, key=lambda one: int(np.count_nonzero(~one.open_at(one.of[rows]))))
        if isinstance(worst, Anchored):
            return VOLUMES, worst.told()
        key, of = worst.spread.key, worst.of
        return SPREAD, worst.told(lambda d: self._demands.label(int(np.flatnonzero(of == d)[0]), key))


def may_move(all_domains: Iterable[Constraint], changes: Mapping[int, int], source: int, target: int) -> bool:
    """Whether a hold may go from `source` to `target`, which `changes` already count."""
    for domains in all_domains:
        same = domains.of[source] == domains.of[target] != _NO_DOMAIN
        if not same and not domains.bears(changes, target):
            return False
    return True


def _by_domain(amounts: NDArray[np.signedinteger], of: Rows, size: int) -> Levels:
    """What each domain has of amounts by row; exact below 2^53."""
    rows = np.flatnonzero(amounts)
    rows = rows[of[rows] != _NO_DOMAIN]
    return np.bincount(of[rows], amounts[rows], size).astype(np.int64)


def _first_of_each(counts: Levels, where: Rows, most: Levels, *, elsewhere: bool = False) -> Levels:
    """Of the counts, in their order, the first `most` of each domain; `elsewhere`: all of those in none."""
    narrow = where.astype(np.int16) if most.size < 1 << 15 else where  # sorted five times as fast
    order = np.argsort(narrow, kind="stable")
    ordered, domains = counts[order], where[order]
    before = np.cumsum(ordered) - ordered
    before -= before[np.searchsorted(domains, domains, side="left")]
    limit = np.append(most, np.iinfo(np.int64).max if elsewhere else 0)  # -1, none, is the last
    kept = np.empty_like(counts)
    kept[order] = np.clip(limit[domains] - before, 0, ordered)
    return kept
