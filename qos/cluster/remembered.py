"""What of a policy's slots leaves no other trace than its status: what is used up, what outlives its pod.

Pure. What is derived from it changes only once it is written: capacity is let go after that, never before, so
whoever is killed in between finds all of it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

MOST: Final = 1_000
"""Pods, and slots that outlive theirs, that a status remembers; a Once policy has no more slots than that."""


@dataclass(frozen=True, slots=True)
class Outliving:
    """A slot that is held for a while after its pod has ended. `until`: seconds since the epoch."""

    pod_uid: str
    node: str
    until: float


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a status says.

    `gone`: slots that were used up and let go (Once). `fillers`: nodes by UID of the pods that fill slots, as
    far as it has been written. `outliving`: slots that are held although their pods have ended.
    """

    gone: int = 0
    fillers: Mapping[str, str] = field(default_factory=dict)
    outliving: tuple[Outliving, ...] = ()

    @property
    def consumed(self) -> int:
        """Slots of a Once policy that some pod has filled."""
        return self.gone + len(self.fillers) + len(self.outliving)

    def desired(self, asked: int) -> int:
        """How many slots are filled and held, of which a policy asks for so many."""
        return max(asked - self.gone, len(self.fillers) + len(self.outliving))

    def seats(self, asked: int) -> int:
        """How many of the policy's pods fill slots, and so have their floor on the node."""
        left = max(0, asked - self.gone)
        return max(left, min(len(self.fillers), left) + len(self.outliving))


NOTHING: Final = Remembered()


@dataclass(frozen=True, slots=True)
class Life:
    """How many slots a policy asks for, and how they live.

    `once`: a slot is used up by its first pod. `delay`: for so many seconds it outlives its pod.
    """

    asked: int
    once: bool = False
    delay: float = 0.0


def advance(
    was: Remembered, life: Life, owners: Mapping[str, str], ended: Collection[str], now: float
) -> Remembered:
    """What is to be written next.

    `was`: what is written. `owners`: node by UID of the policy's pods that are bound, those that fill slots
    first; `ended`: which of `was.fillers` are known to be owners no more. `now`: seconds since the epoch.

    A new pod takes a slot that outlives another, else one that is free. Only what is written outlives: so a
    slot whose pod has just ended is nobody's until then, and what a crash interrupts is decided again alike.
    """
    still = {uid: node for uid, node in was.fillers.items() if uid not in ended}
    left = [(uid, node) for uid, node in was.fillers.items() if uid in ended]
    gone = was.gone if life.once else 0
    free = life.asked - gone - len(still) - (len(left) + len(was.outliving) if life.once else 0)
    outliving = {one.pod_uid: one for one in was.outliving}
    fillers = dict(still)
    for uid, node in owners.items():
        if uid in was.fillers:
            continue
        taken = _taken(outliving, uid, node)
        if taken:
            del outliving[taken]
        elif free <= 0:
            continue
        fillers[uid] = node
        free -= not (taken and life.once)  # the slot it takes over is none of those that are free
    latest_end = float(ceil(now + life.delay))
    # No longer than a pod's that ends now: the delay was made shorter, or a clock that was ahead is set back.
    kept = [replace(one, until=min(one.until, latest_end)) for one in outliving.values() if one.until > now]
    if life.delay:
        kept += [Outliving(uid, node, latest_end) for uid, node in left]
    if life.once:
        gone += len(outliving) + len(left) - len(kept)
        return Remembered(gone, fillers, tuple(kept))
    most = max(life.asked, len(was.fillers) + len(was.outliving)) - len(fillers)
    latest = sorted(kept, key=lambda one: (-one.until, one.pod_uid))[: max(0, min(most, MOST))]
    return Remembered(0, dict(list(fillers.items())[:MOST]), tuple(sorted(latest, key=_order)))


def _order(one: Outliving) -> tuple[float, str]:
    return one.until, one.pod_uid


def _taken(outliving: Mapping[str, Outliving], uid: str, node: str) -> str:
    """Which of these slots a pod takes: its own, one on its node, the first to be let go; "" none."""
    if uid in outliving:
        return uid
    there: Iterable[Outliving] = [one for one in outliving.values() if one.node == node] or outliving.values()
    return min(there, key=_order).pod_uid if outliving else ""
