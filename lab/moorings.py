"""Where pods' own volumes let slots lie, in the checker's own arithmetic.

Written apart from ledger/ on purpose: pods are named one by one, and each finds a node by making others
look for another (Kuhn's algorithm). Shared is how a node matches a volume's terms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lab.occupancy import Occupancy
from lab.promises import Promise
from qos.cluster.selectors import meets


@dataclass(frozen=True, slots=True)
class Moorings:
    """Of pods without a node, the names of the nodes that each may run on; all others may run anywhere."""

    pods: tuple[frozenset[str], ...]
    evenly: bool = False
    """They must be spread as well: which slots then have a place the checker does not know."""
    exact: ClassVar[bool] = True

    def place(self, room: Mapping[str, int], count: int) -> dict[str, int]:
        """Up to `count` slots: first those of pods that may run on some nodes only, then others where least
        room is. No other way places more.
        """
        if self.evenly:
            return {}
        seats = [
            name for name in sorted(room, key=lambda n: (room[n], n)) for _ in range(min(room[name], count))
        ]
        taken: dict[int, int] = {}
        for pod in range(len(self.pods)):
            if len(taken) < count:
                self._seat(pod, seats, taken, set())
        others = max(0, count - len(self.pods))
        free = [number for number in range(len(seats)) if number not in taken]
        return dict(Counter(seats[number] for number in [*taken, *free[:others]]))

    def _seat(self, pod: int, seats: list[str], taken: dict[int, int], tried: set[int]) -> bool:
        for number, name in enumerate(seats):
            if number in tried or name not in self.pods[pod]:
                continue
            tried.add(number)
            if number not in taken or self._seat(taken[number], seats, taken, tried):
                taken[number] = pod
                return True
        return False


def moorings_of(promise: Promise, occupancy: Occupancy) -> Moorings | None:
    """A promise's pods that have no node, as things are; None where volumes keep none of them anywhere."""
    if not promise.moored:
        return None
    there = {p.name for p in occupancy.pods.values() if p.node_name and not p.terminal and promise.owned(p)}
    nodes = [place.node for place in occupancy.places.values()]
    return Moorings(
        tuple(
            frozenset(n.name for n in nodes if all(meets(one.nodes or (), n) for one in keeping))
            for pod, keeping in sorted(promise.moored.items())
            if pod not in there
        ),
        evenly=any(one.required for one in promise.spread),
    )
