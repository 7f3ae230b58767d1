"""Whether slots fit: a packing that shows it, and bounds that refute it.

Both are sound and neither is complete: `Packing` may miss that something fits (best fit is a heuristic when
several shapes compete), `refuted` may miss that something does not (when its search runs out of steps). For
a single shape both are exact, because its slots are interchangeable and each node's number of them is a
division.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from lab.evenness import Evenness
from lab.moorings import Moorings
from lab.occupancy import add
from qos.cluster.objects import Resources

UNBOUNDED = 1 << 60


@dataclass(frozen=True, slots=True)
class Want:
    """`count` slots of `vector`; `room`: on which nodes they may lie, and how many there at most, capacity
    aside; `even`: how they must be spread, or where their pods' volumes let them lie.
    """

    key: str
    vector: Resources
    count: int
    room: Mapping[str, int]
    even: Evenness | Moorings | None = None


def room(free: Mapping[str, int], vector: Resources) -> int:
    """How many times a vector fits."""
    return max(0, min((free.get(name, 0) // v for name, v in vector.items() if v > 0), default=UNBOUNDED))


class Packing:
    """Slots placed on nodes, by best fit. `free`: node -> what is free there; it is changed as slots are
    placed.
    """

    def __init__(self, free: dict[str, dict[str, int]]) -> None:
        self.free = free
        self.held: dict[str, dict[str, int]] = {}

    def count(self, key: str) -> int:
        """Slots of a promise that are placed."""
        return sum(self.held.get(key, {}).values())

    def place(self, want: Want, count: int) -> int:
        """Place up to `count` more slots, fullest nodes first; how many were placed."""
        mine = self.held.setdefault(want.key, {})
        if want.even is not None:
            return self._place_evenly(want, mine, want.even, count)
        placed = 0
        for fits, name in sorted(self._open(want, mine)):
            n = min(fits, count - placed)
            if n > 0:
                self._put(want, mine, name, n)
                placed += n
        return placed

    def _place_evenly(self, want: Want, mine: dict[str, int], even: Evenness | Moorings, count: int) -> int:
        """Where slots may lie depends on where all of them lie: those that are placed already, too."""
        before = dict(mine)
        for name, number in before.items():
            self.drop(want, name, number)
        fits = {name: number for number, name in self._open(want, mine)}
        for name, number in even.place(fits, sum(before.values()) + count).items():
            self._put(want, mine, name, number)
        return sum(mine.values()) - sum(before.values())

    def _put(self, want: Want, mine: dict[str, int], name: str, count: int) -> None:
        mine[name] = mine.get(name, 0) + count
        add(self.free[name], {r: v * count for r, v in want.vector.items()}, -1)

    def _open(self, want: Want, mine: Mapping[str, int]) -> Iterator[tuple[int, str]]:
        for name, limit in want.room.items():
            fits = min(room(self.free[name], want.vector), limit - mine.get(name, 0))
            if fits > 0:
                yield fits, name

    def drop(self, want: Want, name: str, count: int) -> None:
        """Take slots off a node."""
        mine = self.held[want.key]
        mine[name] -= count
        if not mine[name]:
            del mine[name]
        if name in self.free:
            add(self.free[name], {r: v * count for r, v in want.vector.items()}, 1)


def pack(free: Mapping[str, Mapping[str, int]], wants: Sequence[Want]) -> Packing:
    """Place all wants in their order, each as far as it goes."""
    packing = Packing({name: dict(left) for name, left in free.items()})
    for want in wants:
        packing.place(want, want.count)
    return packing


def refuted(free: Mapping[str, Mapping[str, int]], wants: Sequence[Want], *, steps: int = 20_000) -> bool:
    """Whether it is proven that not all wants fit together. False: they fit, or nobody knows."""
    wants = [want for want in wants if want.count > 0]
    return _one_lacks(free, wants) or _sum_lacks(free, wants) or _search_fails(free, wants, steps)


def _fits(free: Mapping[str, Mapping[str, int]], want: Want) -> dict[str, int]:
    rooms = {n: min(limit, room(free[n], want.vector)) for n, limit in want.room.items()}
    return {name: fits for name, fits in rooms.items() if fits > 0}


def _one_lacks(free: Mapping[str, Mapping[str, int]], wants: Sequence[Want]) -> bool:
    return any(_most(free, want) < want.count for want in wants)


def _most(free: Mapping[str, Mapping[str, int]], want: Want) -> int:
    """No more of these slots fit, were they alone; with one spread constraint it is exact."""
    fits = _fits(free, want)
    if want.even is not None and want.even.exact:
        return sum(want.even.place(fits, want.count).values())
    return sum(fits.values())


def _sum_lacks(free: Mapping[str, Mapping[str, int]], wants: Sequence[Want]) -> bool:
    """In some dimension, what all wants need is more than the nodes can give to them."""
    fits = [_fits(free, want) for want in wants]
    for resource in {r for want in wants for r in want.vector}:
        need = sum(want.vector.get(resource, 0) * want.count for want in wants)
        able = 0
        for name in {n for f in fits for n in f}:
            most = sum(f.get(name, 0) * w.vector.get(resource, 0) for f, w in zip(fits, wants, strict=True))
            able += max(0, min(free[name].get(resource, 0), most))
        if able < need:
            return True
    return False


def _search_fails(free: Mapping[str, Mapping[str, int]], wants: Sequence[Want], steps: int) -> bool:
    """Node by node, every undominated mix of slots: the sets of what may be left to place. True: never
    nothing.
    """
    if len(wants) < 2:  # one shape: _one_lacks was exact
        return False
    fits = [_fits(free, want) for want in wants]
    left = {tuple(want.count for want in wants)}
    for name in sorted({n for f in fits for n in f}):
        limits = [min(f.get(name, 0), w.count) for f, w in zip(fits, wants, strict=True)]
        steps -= prod(limit + 1 for limit in limits[:-1]) * len(left)
        if steps < 0:
            return False
        mixes = list(_mixes(free[name], wants, limits))
        left = {
            tuple(max(0, a - b) for a, b in zip(rest, mix, strict=True)) for rest in left for mix in mixes
        }
        if not all(any(rest) for rest in left):
            return False
    return True


def _mixes(
    free: Mapping[str, int], wants: Sequence[Want], limits: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Numbers of slots of each want that fit on one node together; the last want takes all that is left."""
    for head in product(*(range(limit + 1) for limit in limits[:-1])):
        rest = dict(free)
        taken = [(want, n) for want, n in zip(wants, head, strict=False) if n]
        for want, n in taken:
            add(rest, {r: v * n for r, v in want.vector.items()}, -1)
        if all(rest[r] >= 0 for want, _ in taken for r in want.vector):
            yield (*head, min(limits[-1], room(rest, wants[-1].vector)))
