"""Which holds are for which pods, where pods may run on some nodes only: a matching that grows hold by hold.

Nodes are of one class when the very same pods may run there. Holds that can all be matched make a
transversal matroid: one more that cannot be matched now could not be, had the others come in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise


class Matching:
    """Holds by class, each given to a group of pods that may run there.

    `fits`: the groups of each class; `spare`: how many of each group have no hold; `given[class][group]`.
    """

    def __init__(self, fits: Sequence[Sequence[int]], sizes: Iterable[int]) -> None:
        self.fits = fits
        self.spare = [*sizes]
        self.given: list[dict[int, int]] = [{} for _ in fits]

    def add(self, kind: int, count: int) -> int:
        """Match up to so many more holds of a class; returns how many there are pods for."""
        added = 0
        while added < count:
            path = self._path(kind)
            if not path:
                break
            added += self._push(path, count - added)
        return added

    def _path(self, kind: int) -> list[tuple[int, int]]:
        """Steps (class, group): each hold gives its place to the one before, the last finds a spare."""
        came: dict[int, tuple[int, int]] = {}
        seen, queue = {kind}, [kind]
        for here in queue:
            for group in self.fits[here]:
                if self.spare[group] > 0:
                    return self._back(came, kind, here, group)
                for other, given in enumerate(self.given):
                    if other not in seen and given.get(group):
                        seen.add(other)
                        came[other] = here, group
                        queue.append(other)
        return []

    def _back(
        self, came: dict[int, tuple[int, int]], kind: int, here: int, group: int
    ) -> list[tuple[int, int]]:
        path = [(here, group)]
        while here != kind:
            here, group = came[here]
            path.append((here, group))
        return path[::-1]

    def _push(self, path: list[tuple[int, int]], most: int) -> int:
        """Along a path as many at once as it bears."""
        last = path[-1][1]
        handed_on = (self.given[after][group] for (_, group), (after, _) in pairwise(path))
        count = min(most, self.spare[last], *handed_on)
        self.spare[last] -= count
        for place, (kind, group) in enumerate(path):
            self.given[kind][group] = self.given[kind].get(group, 0) + count
            if place:
                self.given[kind][path[place - 1][1]] -= count
        return count

    def open(self) -> list[bool]:
        """By class: whether one more hold there would be for somebody."""
        useful = {group for group, spare in enumerate(self.spare) if spare > 0}
        found = [False] * len(self.fits)
        grows = True
        while grows:
            grows = False
            for kind, groups in enumerate(self.fits):
                if not found[kind] and not useful.isdisjoint(groups):
                    found[kind] = grows = True
                    useful.update(group for group, count in self.given[kind].items() if count)
        return found

    def suiting(self, group: int) -> list[bool]:
        """By class: whether a pod of this group may take a hold there, and all others find one as before."""
        if self.spare[group] > 0:
            return [True] * len(self.fits)
        reached, queue, moved = {group}, [group], set[int]()
        for one in queue:
            for kind, given in enumerate(self.given):
                if kind not in moved and given.get(one):
                    moved.add(kind)
                    news = [other for other in self.fits[kind] if other not in reached]
                    reached.update(news)
                    queue += news
        return [any(given.get(one) for one in reached) for given in self.given]
