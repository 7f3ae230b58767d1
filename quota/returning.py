"""Giving back: which pods are to end, on which node, so that a pod that waits gets what its quota is owed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from qos.cluster.objects import Pod, Resources
from quota import fitting
from quota.node import Node
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
    *_, found = search(taking, places)
    return found


def search(taking: Taking, places: Iterable[Place]) -> Iterator[Return | None]:
    """The same in steps of some milliseconds: the best so far; the last is the best."""
    places, own, best = list(places), list[Pod](), None
    yield None
    if not taking.refused() and any(not _Ending(taking, place).short() for place in places):
        return
    for place in places:
        own += [pod for pod in place.pods if taking.is_own(pod)]
        yield None
    own.sort(key=_importance)
    for place in places:
        found = _at(taking, place, own)
        best = found if best is None or (found is not None and _harm(found) < _harm(best)) else best
        yield best


def worth(taking: Taking, pod: Pod) -> bool:
    """Whether a pod may end for the one that waits, as far as its quota is concerned."""
    if taking.is_own(pod):
        return pod.priority < taking.pod.priority
    return taking.debt(pod) > 0


def still(taking: Taking, place: Place, found: Return) -> bool:
    """Whether a way found before is one by now: these may end, they are enough, and each is needed."""
    ending, reckoning = _Ending(taking, place), Reckoning(taking)
    for pod in found.victims:
        if not reckoning.take(pod):
            return False
        ending.add(pod)
    if ending.short() or ending.refused():
        return False
    ending.spare()
    return len(ending.pods) == len(found.victims)


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
    reckoning, ending = Reckoning(taking), _Ending(taking, place)
    for pod in there:
        short = ending.short()
        if not short:
            break
        if any(pod.requests.get(name, 0) for name in short) and reckoning.take(pod):
            ending.add(pod)
    if ending.short():
        return None
    for pod in own:
        if not ending.refused():
            break
        if pod.uid not in ending.pods and reckoning.take(pod):
            ending.add(pod)
    if ending.refused():
        return None
    ending.spare()
    return Return(place.node, tuple(ending.pods.values()))


class _Ending:
    """Pods that are to end, by UID, for one that is to come to a place."""

    def __init__(self, taking: Taking, place: Place) -> None:
        self.pods: dict[str, Pod] = {}
        self._taking, self._place = taking, place
        self._there = {one.uid for one in place.pods}
        self._left = {name: place.left.get(name, 0) for name in taking.pod.requests}
        self._moved: dict[Node, dict[str, int]] = {}
        self._outlook = fitting.Outlook(moved=self._moved, before=taking.outlook)

    def add(self, pod: Pod) -> None:
        """One more."""
        self.pods[pod.uid] = pod
        self._count(pod, 1)

    def spare(self) -> None:
        """As many as need not end, the most important first."""
        for pod in sorted(self.pods.values(), key=lambda one: (-one.priority, one.uid)):
            self._count(pod, -1)
            if self.short() or self.refused():
                self._count(pod, 1)
            else:
                del self.pods[pod.uid]

    def short(self) -> list[str]:
        """The resources of which there is not enough at the place."""
        return [name for name, amount in self._taking.pod.requests.items() if self._left[name] < amount]

    def refused(self) -> bool:
        """Whether the pod's quota, or one above, refuses it."""
        taking = self._taking
        return fitting.refusal(taking.account, taking.pod, outlook=self._outlook) is not None

    def _count(self, pod: Pod, sign: int) -> None:
        fitting.move(self._taking.account, self._moved, pod, -1, sign)
        if pod.uid in self._there:
            for name in self._left:
                self._left[name] += sign * pod.requests.get(name, 0)


def _in_order(taking: Taking, pods: Iterable[Pod]) -> list[Pod]:
    """Those of the quota that has most to give back first, and of each the least important, then the
    youngest; the pod's own quota last.
    """
    return sorted(
        pods,
        key=lambda pod: (taking.is_own(pod), -taking.debt(pod), *_importance(pod)),
    )


def _importance(pod: Pod) -> tuple[int, float, str]:
    return pod.priority, -pod.created, pod.uid


def _harm(one: Return) -> tuple[int, int, int, float, str]:
    most = max((pod.priority for pod in one.victims), default=-(1 << 31))
    oldest = min((pod.created for pod in one.victims), default=0.0)
    return most, len(one.victims), sum(pod.priority for pod in one.victims), -oldest, one.node
