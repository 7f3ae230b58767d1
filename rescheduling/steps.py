"""One migration, step by step: what is done next follows from what is there, so a restart changes nothing.

A place is held first; then the pod is evicted; then the one that comes is followed until it is ready.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from qos.cluster.reservation import AVAILABLE, FAILED, SUCCEEDED
from qos.cluster.running import RunningPod


class Action(Enum):
    """What is done next."""

    WAIT = "Wait"
    EVICT = "Evict"
    FINISH = "Finish"
    FAIL = "Fail"


@dataclass(frozen=True, slots=True)
class Seen:
    """What is there. `target`: "" any node. `phase`: the Reservation's, "" before its first; `node`: of it.

    `leaves`: the pod that is moved, None where it is gone. `came`: UID of the one that uses the Reservation,
    "" none; `comer`: that pod, None where it is not known. `bound_by`, `ready_by`: until when that must have
    happened, on the clock of `now`.
    """

    target: str
    phase: str
    node: str
    leaves: RunningPod | None
    came: str
    comer: RunningPod | None
    bound_by: float
    ready_by: float


@dataclass(frozen=True, slots=True)
class Step:
    """What is done, and of a failure the reason and why, for people."""

    action: Action
    reason: str = ""
    why: str = ""


def next_step(seen: Seen, now: float) -> Step:
    """What is to be done; the same again until something changes."""
    if seen.phase == SUCCEEDED:
        return _used(seen, now)
    if seen.phase == FAILED:
        return _failed("HoldGone", "its place is not held any more")
    stays = seen.leaves is not None and not seen.leaves.pod.deleting
    if now > seen.bound_by:
        return _late(seen, stays)
    if seen.phase != AVAILABLE:
        return Step(Action.WAIT) if stays else _failed("PodGone", "the pod went before a place was held")
    if seen.target and seen.node != seen.target:
        return _failed("WrongNode", f"a place is held on {seen.node}, not on {seen.target}")
    return Step(Action.EVICT if stays else Action.WAIT)


def _used(seen: Seen, now: float) -> Step:
    """Another pod of the workload may have taken the place before this one was evicted: then it stays.

    Only where the one that came is seen: what was evicted before it was made is then seen to be gone, too.
    """
    if seen.comer is not None and seen.leaves is not None and not seen.leaves.pod.deleting:
        return _failed("PlaceTaken", "another pod of its workload came to the place; nothing was evicted")
    if seen.comer is not None and seen.comer.ready and not seen.comer.pod.deleting:
        return Step(Action.FINISH)
    if now > seen.ready_by:
        return _failed("NotReady", "the pod that came is not ready")
    return Step(Action.WAIT)


def _late(seen: Seen, stays: bool) -> Step:
    if seen.phase != AVAILABLE:
        return _failed("NoPlace", f"no place could be held on {seen.target or 'any node'}")
    if stays:
        return _failed("NotEvicted", "its eviction was refused, by a PodDisruptionBudget for instance")
    return _failed("NotCome", "the pod was evicted, and none came to the place that was held")


def _failed(reason: str, why: str) -> Step:
    return Step(Action.FAIL, reason, why)
