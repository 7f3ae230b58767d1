"""How many slots each spread domain may take, or gives up first: pure arithmetic on the domains' levels.

A level is how many pods a domain has that are or will be there: those that are counted, and the holds of pods
that would be. With levels of which none with holds is more than maxSkew above the lowest, owners can fill all
holds, the lowest domain's first: each step is one that kube-scheduler allows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Levels = NDArray[np.int64]
"""Indexed [domain]."""


def most_more(levels: Levels, room: Levels, skew: int, *, floor: int | None = None) -> Levels:
    """How many more slots each domain may get when each gets all it may: at most its room, and as many as
    keep it within `skew` of the lowest. `floor`: the lowest, if it is not to be found among the levels.
    """
    if floor is None:
        floor = int((levels + room).min(initial=0 if not levels.size else np.iinfo(np.int64).max))
    return np.asarray(np.clip(floor + skew - levels, 0, room))


def lowest_first(levels: Levels, most: Levels, want: int, order: Levels) -> Levels:
    """Of `most` of each domain so many that all are `want`: always one more for the lowest, of equals for the
    one that is first in `order`.
    """
    if int(most.sum()) <= want:
        return most
    low, high = int(levels.min()), int((levels + most).max())
    while high - low > 1:  # the highest level up to which there is enough for all
        middle = (low + high) // 2
        if int(np.clip(middle - levels, 0, most).sum()) <= want:
            low = middle
        else:
            high = middle
    counts = np.clip(low - levels, 0, most)
    next_ones = np.flatnonzero((counts < most) & (levels + counts == low))
    rest = want - int(counts.sum())
    counts[next_ones[np.argsort(order[next_ones], kind="stable")[:rest]]] += 1
    return counts


def highest_first(levels: Levels, held: Levels, count: int) -> Levels:
    """How many of `held` each domain gives up, `count` in all: always one of the highest that has any."""
    if int(held.sum()) <= count:
        return held
    low, high = int((levels - held).min()), int(levels.max())
    while high - low > 1:  # the lowest level down to which not too many go
        middle = (low + high) // 2
        if int(np.clip(levels - middle, 0, held).sum()) <= count:
            high = middle
        else:
            low = middle
    counts = np.clip(levels - high, 0, held)
    next_ones = np.flatnonzero((counts < held) & (levels - counts == high))
    counts[next_ones[: count - int(counts.sum())]] += 1
    return counts
