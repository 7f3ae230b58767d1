"""Which class of a tree is whose: fixed minors, and one for each pod with a class of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from qos.bandwidth import Band

ROOT: Final = 1
BANDS: Final = {Band.L0: 2, Band.L1: 3, Band.L2: 4}
HOST: Final = 5
"""What no pod sent: the default class."""
SHARED: Final = {Band.L0: 6, Band.L1: 7, Band.L2: 8}
"""Of a band's pods that have no class of their own."""
FIRST: Final = 0x10
LAST: Final = 0xFFFF
"""Of pods."""


def allocate(uids: Iterable[str], before: Mapping[str, int]) -> dict[str, int]:
    """A minor for each uid: the one that it had, else the lowest that nobody had. Who gets none is left out.

    The minor of a pod that is gone is free again one plan later: so its class is deleted first, and no pod
    goes on with the tokens and counters of another.
    """
    wanted = set(uids)
    kept = {uid: minor for uid, minor in before.items() if uid in wanted}
    taken = set(before.values())
    free = (minor for minor in range(FIRST, LAST + 1) if minor not in taken)
    new = zip(sorted(wanted - kept.keys()), free, strict=False)
    return kept | dict(new)
