"""How often a search over all reassignments of at most 8 holds, cascades included, knows better than ours."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from ledger.board import MOST_MOVES
from ledger.ledger import Ledger
from qos.cluster.objects import Demand, Pod, Spread
from tests.ledger.builders import demand, ledger, names, node, pod

DIMS = ("cpu", "memory", "pods")
Amounts = tuple[int, ...]


@dataclass
class Case:
    """A random full-ish cluster and a pod that fits nowhere without a move."""

    made: Ledger
    free: list[Amounts]
    demands: list[Demand]
    held: list[list[int]]
    who: Pod
    zones: list[str]

    def is_even(self, k: int, counts: list[int]) -> bool:
        """Whether holds of demand k may lie so, by its spread constraint."""
        levels = Counter(dict.fromkeys(self.zones, 0))
        for zone, count in zip(self.zones, counts, strict=True):
            levels[zone] += count
        skew = max((one.max_skew for one in self.demands[k].spread), default=None)
        return skew is None or all(n - min(levels.values()) <= skew for n in levels.values() if n)


def amounts(resources: dict[str, int]) -> Amounts:
    return tuple(resources.get(d, 0) for d in DIMS)


def cases(seed: int, shapes: int, *, spread: bool = False) -> Iterator[Case]:
    """Endless; `free` is what claims leave on each node, `held` the holds by demand and node.

    With `spread` there are two or three zones, over which demands are spread.
    """
    rng = random.Random(seed)
    while True:
        count = rng.randint(4 if spread else 2, 6)
        allocatable = [(rng.randint(4, 16), rng.randint(4, 16)) for _ in range(count)]
        zones = [f"z{i % rng.randint(2, 3)}" if spread else "" for i in range(count)]
        labels = [{"zone": zone} for zone in zones]
        made = ledger(
            *(node(f"n{i}", c, m, pods=10, labels=labels[i]) for i, (c, m) in enumerate(allocatable))
        )
        taken = [[0, 0, 0] for _ in range(count)]
        demands = [
            demand(f"a{k}", rng.randint(2, 8 if shapes == 1 else 5), rng.randint(1, 5), rng.randint(1, 5))
            for k in range(shapes)
        ]
        if spread:
            demands = [replace(d, spread=(Spread("zone", rng.randint(1, 2), d.selector),)) for d in demands]
        late = rng.random() < 0.5
        for one in demands if not late else ():
            made.set_demand(one)
        made.report()
        for i in range(rng.randint(0, 2 * count)):
            on, cpu, memory = rng.randrange(count), rng.randint(1, 6), rng.randint(1, 6)
            if taken[on][0] + cpu <= allocatable[on][0] and taken[on][1] + memory <= allocatable[on][1]:
                made.set_pod(pod(f"p{i}", cpu, memory, node=f"n{on}"))
                taken[on] = [taken[on][0] + cpu, taken[on][1] + memory, taken[on][2] + 1]
        for one in demands if late else ():
            made.set_demand(one)
        reports = made.report()
        held = [[dict(reports[d.key].holds).get(f"n{i}", 0) for i in range(count)] for d in demands]
        free = [
            (c * 1000 - t[0] * 1000, m - t[1], 10 - t[2])
            for (c, m), t in zip(allocatable, taken, strict=True)
        ]
        for _ in range(6 if any(map(sum, held)) else 0):
            who = pod("asking", rng.randint(1, 9), rng.randint(1, 9))
            case = Case(made, free, demands, held, who, zones)
            if in_tree(case) and not fits_as_is(case):
                yield case
                break


def in_tree(case: Case) -> bool:
    """kube-scheduler, which knows no holds, finds a node."""
    need = amounts(case.who.requests)
    return any(all(a <= b for a, b in zip(need, free, strict=True)) for free in case.free)


def left(case: Case, n: int) -> Amounts:
    held = [
        sum(h[n] * amounts(d.vector)[k] for h, d in zip(case.held, case.demands, strict=True))
        for k in range(3)
    ]
    return tuple(f - h for f, h in zip(case.free[n], held, strict=True))


def fits_as_is(case: Case) -> bool:
    need = amounts(case.who.requests)
    return any(all(a <= b for a, b in zip(need, left(case, n), strict=True)) for n in range(len(case.free)))


def brute_force(case: Case) -> bool:
    """True when some reassignment of at most MOST_MOVES holds lets the pod in somewhere."""
    need = amounts(case.who.requests)
    for n in range(len(case.free)):
        room = list(case.free)
        room[n] = tuple(f - a for f, a in zip(room[n], need, strict=True))
        if min(room[n]) >= 0 and _assign(case, room, 0, 0, case.held[0][:], [0] * len(room), MOST_MOVES):
            return True
    return False


def _assign(
    case: Case, room: list[Amounts], k: int, n: int, old: list[int], new: list[int], moves: int
) -> bool:
    """Put the holds of demand k, from node n on, anywhere; then those of the next demand."""
    missing = sum(old) - sum(new)
    if n == len(room):
        if missing or not case.is_even(k, new):
            return False
        if k + 1 == len(case.demands):
            return True
        return _assign(case, room, k + 1, 0, case.held[k + 1][:], [0] * len(room), moves)
    vector = amounts(case.demands[k].vector)
    most = min([missing, *(r // v for r, v in zip(room[n], vector, strict=True) if v)])
    # As things are first: a plan with few moves is found soonest.
    for count in sorted(range(most + 1), key=lambda c: abs(c - old[n])):
        arriving = max(0, count - old[n])
        if arriving > moves:
            continue
        before, new[n] = room[n], count
        room[n] = tuple(r - count * v for r, v in zip(before, vector, strict=True))
        if _assign(case, room, k, n + 1, old, new, moves - arriving):
            return True
        room[n], new[n] = before, 0
    return False


def compare(seed: int, shapes: int, count: int, *, spread: bool = False) -> tuple[int, int]:
    """(pods let in by moves, pods refused that brute force would have let in)."""
    hits = misses = 0
    for case, _ in zip(cases(seed, shapes, spread=spread), range(count), strict=False):
        if case.made.filter(case.who, names(len(case.free)), 0.0).nodes:
            hits += 1
        elif brute_force(case):
            misses += 1
    return hits, misses


@pytest.mark.parametrize(("shapes", "count", "least"), [(1, 700, 1.0), (2, 450, 0.98), (3, 300, 0.98)])
def test_moves_are_found_where_brute_force_finds_them(
    shapes: int, count: int, least: float, show: Callable[[str], None]
) -> None:
    hits, misses = compare(shapes, shapes, count)
    rate = hits / (hits + misses)
    show(f"{shapes} shape(s): {hits} of {hits + misses} pods let in by moves, hit rate {rate:.1%}")
    assert hits > 20
    assert rate >= least


@pytest.mark.parametrize(("shapes", "count", "least"), [(1, 500, 0.9), (2, 300, 0.9)])
def test_moves_that_spread_allows_are_found(
    shapes: int, count: int, least: float, show: Callable[[str], None]
) -> None:
    hits, misses = compare(10 + shapes, shapes, count, spread=True)
    rate = hits / (hits + misses)
    show(f"{shapes} shape(s), spread: {hits} of {hits + misses} pods let in by moves, hit rate {rate:.1%}")
    assert hits > 20
    assert rate >= least


@pytest.mark.parametrize("spread", [False, True])
def test_what_moves_let_in_is_possible(spread: bool) -> None:
    """The other way round: brute force confirms every pod the ledger lets in."""
    for case, _ in zip(cases(99, 2, spread=spread), range(100), strict=False):
        if case.made.filter(case.who, names(len(case.free)), 0.0).nodes:
            assert brute_force(case)
