"""Taking turns inside a quota that is used up: a pod that has waited for a turn takes the place of the one of
the same priority that has run longest, and that for a turn at least.

Round robin by time alone, one pod for one. A quota says how long a turn is; without that there are none.
"""

from __future__ import annotations

from collections.abc import Iterable

from qos.cluster.objects import Pod
from qos.cluster.quota import ElasticQuota, is_preemptible
from quota.returning import Place, Return
from quota.taking import Taking

_Size = tuple[tuple[str, int], ...]


def has_waited(quota: ElasticQuota, pod: Pod, now: float) -> bool:
    """Whether a pod of this quota has waited for a turn. now: seconds since the epoch."""
    return 0 < quota.turn_seconds <= now - pod.created


def is_over(taking: Taking, victim: Pod, now: float) -> bool:
    """Whether one had its turn, and may end for the pod that waits. Not one that nobody makes again."""
    turn = taking.own.quota.turn_seconds
    return (
        has_waited(taking.own.quota, taking.pod, now)
        and victim.priority == taking.pod.priority
        and 0 < victim.scheduled <= now - turn
        and victim.controller is not None
        and is_preemptible(victim.labels)
        and taking.is_own(victim)
    )


def plan(taking: Taking, places: Iterable[Place], now: float) -> Return | None:
    """The one that has run longest of those whose end lets the pod in; None: there is none, or the quota has
    room.
    """
    if not taking.refused():
        return None
    running = [(pod, place) for place in places for pod in place.pods if is_over(taking, pod, now)]
    running.sort(key=lambda one: (one[0].scheduled, one[0].uid))
    lets: dict[_Size, bool] = {}  # pods of one size leave the quota the same
    for pod, place in running:
        size = tuple(sorted(pod.requests.items()))
        if not _has_room(place, pod, taking.pod):
            continue
        if size not in lets:
            lets[size] = not taking.refused([pod])
        if lets[size]:
            return Return(place.node, (pod,))
    return None


def _has_room(place: Place, victim: Pod, pod: Pod) -> bool:
    """Whether the one fits there in the place of the other."""
    left, freed = place.left, victim.requests
    return all(left.get(name, 0) + freed.get(name, 0) >= amount for name, amount in pod.requests.items())
