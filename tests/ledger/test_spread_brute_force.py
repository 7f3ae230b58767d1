"""Two spread constraints on one policy, each kept on its own: how often brute force knows better."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

from qos.cluster.objects import Spread
from qos.cluster.spreading import with_keys
from tests.ledger.builders import demand, holds, labelled, ledger, node, pod

Counts = tuple[int, ...]


def allowed(zones: Sequence[str], pods: Counts, on: int, skews: Sequence[int]) -> bool:
    """Whether kube-scheduler would let one more pod go to a node: over zones, and over nodes."""
    by_zone = {zone: sum(n for z, n in zip(zones, pods, strict=True) if z == zone) for zone in zones}
    return by_zone[zones[on]] + 1 - min(by_zone.values()) <= skews[0] and pods[on] + 1 - min(pods) <= skews[1]


def most_in_any_order(zones: Sequence[str], pods: Counts, room: Counts, want: int, skews: Counts) -> int:
    """The most pods that can come, one after the other."""

    @cache
    def best(now: Counts) -> int:
        placed = sum(now) - sum(pods)
        if placed == want:
            return placed
        free = (i for i in range(len(zones)) if now[i] - pods[i] < room[i] and allowed(zones, now, i, skews))
        return max((best((*now[:i], now[i] + 1, *now[i + 1 :])) for i in free), default=placed)

    return best(pods)


def test_two_constraints_against_all_orders(show: Callable[[str], None]) -> None:
    rng = random.Random(13)
    most = held = usable = 0
    for _ in range(250):
        count = rng.randint(3, 5)
        zones = [f"z{rng.randrange(min(3, count))}" for _ in range(count)]
        skews = (rng.randint(1, 2), rng.randint(1, 2))
        pods = tuple(rng.randint(0, 1) for _ in range(count))
        room = tuple(rng.randint(0, 3) for _ in range(count))
        want = rng.randint(1, 7)
        constraints = tuple(
            Spread(key, skew, labelled("a")) for key, skew in zip(("zone", "host"), skews, strict=True)
        )
        made = ledger(
            *(
                node(f"n{i}", pods[i] + room[i], labels={"zone": zones[i], "host": f"n{i}"})
                for i in range(count)
            ),
            *(pod(f"p{i}", 1, app="a", node=f"n{i}") for i in range(count) if pods[i]),
            demand(
                "a",
                want + sum(pods),
                1,
                where=with_keys(demand("a", 0).where, ("zone", "host")),
                spread=constraints,
            ),
        )
        found = holds(made, "a")
        lie = tuple(found.get(f"n{i}", 0) for i in range(count))
        most += most_in_any_order(zones, pods, room, want, skews)
        held += sum(lie)
        usable += most_in_any_order(zones, pods, lie, sum(lie), skews)
    show(f"two spread constraints: {held} of {most} slots held, {usable} of them usable in some order")
    assert held >= 0.97 * most
    assert usable >= 0.97 * held
