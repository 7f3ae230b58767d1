"""What each cgroup got while all of them wanted more, measured until enough has happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from lab.contention.groups import Group

_POLL_SECONDS = 0.05
_DEADLINE_SECONDS = 240.0
_LONGEST = 40
"""The most times the first window for which a measurement goes on that is not yet what was asked for."""


def deltas(
    read: Mapping[str, Callable[[], int]], enough: Callable[[Mapping[str, int]], bool]
) -> dict[str, int]:
    """The growth of each counter when it is enough; TimeoutError names what they reached."""
    begun = {name: counter() for name, counter in read.items()}
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        grown = {name: counter() - begun[name] for name, counter in read.items()}
        if enough(grown):
            return grown
        if time.monotonic() > deadline:
            raise TimeoutError(f"not enough happened within {_DEADLINE_SECONDS:g} s: {grown}")
        time.sleep(_POLL_SECONDS)


def cpus_used(
    groups: Sequence[Group],
    cpus: int,
    enough: Callable[[list[float]], bool] = lambda _: True,
    cpu_seconds: float = 3.0,
) -> list[float]:
    """How many of `cpus` CPUs each cgroup had while all of them together used this many CPU seconds.

    The cgroups must be all that is busy: what they used together counts as all CPUs. Where that is not
    `enough` (a busy host stops the guest's CPUs, and charges whoever ran then) it goes on, 40 times as long.
    """
    read = {str(group): _usage(group) for group in groups}

    def shares(grown: Mapping[str, int]) -> list[float]:
        return [cpus * grown[name] / max(sum(grown.values()), 1) for name in read]

    def settled(grown: Mapping[str, int]) -> bool:
        used = sum(grown.values()) / 1e6
        return used >= cpu_seconds and (enough(shares(grown)) or used >= _LONGEST * cpu_seconds)

    return shares(deltas(read, settled))


def _usage(group: Group) -> Callable[[], int]:
    return lambda: group.number("cpu.stat", "usage_usec")


def rate(counter: Callable[[], int], amount: int, enough: Callable[[float], bool] = lambda _: True) -> float:
    """How much a counter grows a second, measured until it has grown by the amount.

    Where that is not `enough` (while a busy host stops the guest, its clock goes on) it goes on, until it has
    grown 40 times as much.
    """
    begun, found = time.monotonic(), 0.0

    def settled(now: Mapping[str, int]) -> bool:
        nonlocal found
        found = now["counter"] / (time.monotonic() - begun)
        return now["counter"] >= amount and (enough(found) or now["counter"] >= _LONGEST * amount)

    deltas({"counter": counter}, settled)
    return found


class Waiting:
    """Time in which a cgroup's processes waited for a resource (PSI), since this was made."""

    def __init__(self, group: Group, resource: str, kind: str = "some") -> None:
        self._group, self._resource, self._kind = group, resource, kind
        self._begun = time.monotonic()
        self._before = group.pressure(resource, kind)

    def seconds(self) -> float:
        """Until now."""
        return (self._group.pressure(self._resource, self._kind) - self._before) / 1e6

    def part(self) -> float:
        """The part of all the time until now, 0 to 1."""
        return self.seconds() / (time.monotonic() - self._begun)
