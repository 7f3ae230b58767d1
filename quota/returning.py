"""Giving back: which pods are to end, on which node, so that a pod that waits gets what its quota is owed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qos.cluster.objects import Pod, Resources
from quota.taking import Reckoning, Taking


@dataclass(frozen=True, slots=True)
class Place:
    """A node where the pod may run: what is left of each resource that it asks for, less than 0 where more is
    taken, and pods there of which some may end.
    """

    node: str
    left: Resources
    pods: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class Return:
    """These pods are to end, so that the pod fits on this node and its quota lets it in."""

    node: str
    victims: tuple[Pod, ...]


def plan(taking: Taking, places: Iterable[Place]) -> Return | None:
    """The way that harms least: whose most important victim matters least, then the fewest, then the least
    in sum, then the youngest. None: there is none, or nobody need end, because there is room already.
    """
    places = list(places)
    refused = taking.refused()
    if not refused and any(not _short(taking.pod, place, ()) for place in places):
        return None
    own = _in_order(taking, (pod for place in places for pod in place.pods if taking.is_own(pod)))
    found = (one for place in places if (one := _at(taking, place, own)) is not None)
    return min(found, key=_harm, default=None)


def worth(taking: Taking, pod: Pod) -> bool:
    """Whether a pod may end for the one that waits, as far as its quota is concerned."""
    if taking.is_own(pod):
        return pod.priority < taking.pod.priority
    return taking.debt(pod) > 0


def _at(taking: Taking, place: Place, own: Sequence[Pod]) -> Return | None:
    """On one node: by whoever matters least; where so many small ones would have to end that it is more than
    is owed, by the largest.
    """
    there = _in_order(taking, place.pods)
    found = _by(taking, place, there, own)
    if found is None and taking.owed:
        there.sort(key=lambda pod: -max(pod.requests.get(name, 0) for name in taking.owed))
        found = _by(taking, place, there, own)
    return found


def _by(taking: Taking, place: Place, there: Sequence[Pod], own: Sequence[Pod]) -> Return | None:
    """Room there, then room in the quota, in this order; then as many as need not end are spared, the most
    important first.
    """
    reckoning, ending = Reckoning(taking), list[Pod]()
    for pod in there:
        short = _short(taking.pod, place, ending)
        if not short:
            break
        if any(pod.requests.get(name, 0) for name in short) and reckoning.take(pod):
            ending.append(pod)
    for pod in own:
        if not taking.refused(ending):
            break
        if pod not in ending and reckoning.take(pod):
            ending.append(pod)
    if _short(taking.pod, place, ending) or taking.refused(ending):
        return None
    for pod in sorted(ending, key=lambda one: (-one.priority, one.uid)):
        spared = [one for one in ending if one is not pod]
        if not _short(taking.pod, place, spared) and not taking.refused(spared):
            ending = spared
    return Return(place.node, tuple(ending))


def _short(pod: Pod, place: Place, ending: Iterable[Pod]) -> list[str]:
    """The resources of which there is not enough once these have ended, those of them that are there."""
    there = {one.uid for one in place.pods}
    gone = [one.requests for one in ending if one.uid in there]
    return [
        name
        for name, amount in pod.requests.items()
        if place.left.get(name, 0) + sum(one.get(name, 0) for one in gone) < amount
    ]


def _in_order(taking: Taking, pods: Iterable[Pod]) -> list[Pod]:
    """Those of the quota that has most to give back first, and of each the least important, then the
    youngest; the pod's own quota last.
    """
    return sorted(
        pods,
        key=lambda pod: (taking.is_own(pod), -taking.debt(pod), pod.priority, -pod.created, pod.uid),
    )


def _harm(one: Return) -> tuple[int, int, int, float, str]:
    most = max((pod.priority for pod in one.victims), default=-(1 << 31))
    oldest = min((pod.created for pod in one.victims), default=0.0)
    return most, len(one.victims), sum(pod.priority for pod in one.victims), -oldest, one.node
