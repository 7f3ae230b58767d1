"""Whether a pod wanted its floor between two samples, and whether it received it. Pure.

A **deficit second** is a second in which the pod wanted its floor and received less than 98 % of it.

CPU. Received: the CPU time it used. It wanted its floor if it got it; or if the part of the time that others
kept it waiting is the part of its floor that it missed, nearly: then it was, all along, either served or kept
waiting. A pod that uses little and waits a little did not want more. Only waiting counts while nothing of the
pod ran, for threads that queue behind each other are not kept from anything: PSI "full", else what is left of
"some" or of its threads' waits when what the pod used is taken off. And while the node had idle CPU time
enough for what was missed, nobody kept the pod from it.

Its own limit: below the floor, used up and throttling it is a deficit, whatever the node had. Above, it is
none.

Memory. Received: what it holds. It wanted more if it waited for memory (PSI), or where the kernel has no PSI,
if pages that had been taken from it were needed again.

Network. Received: what it sent (or was sent), in frames. It wanted its floor if it got it, or if its packets
waited all the time. Of a pod that sends in bursts something waits now and then; that is no floor missed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from agent.monitor.samples import PodSample

RECEIVED: Final = 0.98
"""The part of the floor that counts as having received it. Kernels round, and clocks are read one after the
other.
"""
RECEIVED_NETWORK: Final = 0.95
"""The same of a network floor: rates are kept within 5 %."""
WANTED: Final = 0.9
"""The waiting, as a part of what the floor missed, that must have taken place."""
LONGEST_SECONDS: Final = 10.0
"""A longer interval is not judged: nobody looked, and what happened within it averages out."""
LONGEST_DETAIL_SECONDS: Final = 25.0
"""The longest interval judged of what is read each ten seconds only."""
STALLED: Final = 0.01
"""The part of the interval that must be spent waiting for memory to count. Less is the odd page fault."""
REFAULTS: Final = 10.0
"""Pages a second that were needed again after they had been taken; 10 are 40 KiB/s."""


class Judged(NamedTuple):
    """Seconds in which the floor was wanted, and of these the ones in which it was not received."""

    wanted: float = 0.0
    deficit: float = 0.0


NOTHING: Final = Judged()


def cpu(before: PodSample, after: PodSample, millicores: int, idle: float) -> Judged:
    """Judges a CPU floor in millicores; NOTHING where it cannot be judged.

    idle: seconds that the node's CPUs had nothing to do between both, summed over CPUs.
    """
    seconds = after.at - before.at
    used = after.cpu - before.cpu
    if millicores <= 0 or not _comparable(before, after, seconds, LONGEST_SECONDS) or used < 0:
        return NOTHING
    cpus = millicores / 1000
    received = used / seconds / cpus
    if received >= RECEIVED:
        return Judged(seconds, 0.0)
    if _limited(before, after, cpus):
        return Judged(seconds, seconds)
    missed = cpus * seconds - used
    if idle < missed and _waited(before, after) / seconds >= WANTED * (1 - received):
        return Judged(seconds, seconds)
    return NOTHING


def memory(before: PodSample, after: PodSample, floor: int) -> Judged:
    """Judges a memory floor in bytes; NOTHING where it cannot be judged.

    What it held is the more of both ends. Without PSI both samples need details, and those of different
    times: what is judged is the time between these.
    """
    seconds, longest, wanted = _memory_wanted(before, after)
    if floor <= 0 or not _comparable(before, after, seconds, longest):
        return NOTHING
    if max(before.memory, after.memory) >= RECEIVED * floor:
        return Judged(seconds, 0.0)
    return Judged(seconds, seconds) if wanted else NOTHING


def network(sent: int, seconds: float, floor: int, *, waited: bool) -> Judged:
    """Judges a network floor in bytes a second; NOTHING where it cannot be judged.

    sent: bytes of frames in these seconds. waited: whether packets waited all along.
    """
    if floor <= 0 or sent < 0 or not 0 < seconds <= LONGEST_SECONDS:
        return NOTHING
    if sent >= RECEIVED_NETWORK * floor * seconds:
        return Judged(seconds, 0.0)
    return Judged(seconds, seconds) if waited else NOTHING


def _memory_wanted(before: PodSample, after: PodSample) -> tuple[float, float, bool]:
    """The interval, the longest that may be judged, and whether more memory was wanted in it."""
    if before.memory_stalled is not None and after.memory_stalled is not None:
        seconds = after.at - before.at
        stalled = after.memory_stalled - before.memory_stalled
        return seconds, LONGEST_SECONDS, stalled > 0 and stalled >= STALLED * seconds
    if before.detail is None or after.detail is None:
        return 0.0, 0.0, False
    seconds = after.detail.at - before.detail.at
    refaults = after.detail.refaults - before.detail.refaults
    return seconds, LONGEST_DETAIL_SECONDS, refaults > 0 and refaults >= REFAULTS * seconds


def _comparable(before: PodSample, after: PodSample, seconds: float, longest: float) -> bool:
    """Whether two samples are of one cgroup, at different times, and not too far apart."""
    return before.made == after.made and 0 < seconds <= longest


def _limited(before: PodSample, after: PodSample, cpus: float) -> bool:
    """Whether the pod's own limit kept it below its floor: it is lower, it throttled, and it was used up."""
    limit = after.limit
    if limit is None or limit >= RECEIVED * cpus:
        return False
    return after.cpu - before.cpu >= WANTED * limit * (after.at - before.at)


def _waited(before: PodSample, after: PodSample) -> float:
    """Seconds that others kept it waiting, at the least, and at most those of the interval."""
    waited = 0.0
    if before.cpu_full is not None and after.cpu_full is not None:
        waited = after.cpu_full - before.cpu_full
    elif before.cpu_stalled is not None and after.cpu_stalled is not None:
        waited = after.cpu_stalled - before.cpu_stalled - (after.cpu - before.cpu)
    elif before.cpu_delayed is not None and after.cpu_delayed is not None:
        waited = after.cpu_delayed - before.cpu_delayed
    return min(max(waited, 0.0), after.at - before.at)
