"""Pods that wait although the bounded promise admits them: a search of the checker's own.

The promise (design: Holding capacity): an ordinary pod is refused only if no plan of at most eight moves of
holds, one hop each, lets it in. A plan found here is complete, move by move; where several shapes must move
together their new places are found by best fit, so one may be missed, never invented.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from lab.occupancy import add
from lab.packing import UNBOUNDED, Want, pack
from lab.promises import Promise
from lab.situation import Situation
from qos.cluster.objects import NodePredicate, Pod
from qos.cluster.selectors import admits

MOST_MOVES = 8

Holds = Mapping[str, Mapping[str, int]]
"""Policy -> node -> slots held there."""


def plan_for(situation: Situation, holds: Holds, pod: Pod, where: NodePredicate) -> str:
    """How a waiting pod could be let in, in words; empty when there is no plan within the bound."""
    promises = [p for p in situation.promises() if pod.priority <= p.priority]
    if any(p.owned(pod) for p in promises):
        return ""
    slack = _slack(situation, holds, promises)
    for name, place in sorted(situation.occupancy.places.items()):
        if not (place.node.ready and admits(where, place.node)):
            continue
        for moved in _leaving(slack[name], [(p, holds.get(p.key, {}).get(name, 0)) for p in promises], pod):
            if _elsewhere(situation, holds, slack, moved, name):
                moves = ", ".join(f"{n} of {p.key}" for p, n in moved) or "nothing"
                return f"{pod.key} fits on {name} when these holds move: {moves}"
    return ""


def _slack(situation: Situation, holds: Holds, promises: Sequence[Promise]) -> dict[str, dict[str, int]]:
    """What is free on each node beside the holds."""
    occupancy = situation.occupancy
    slack = {name: occupancy.free(name, cautious=True) for name in occupancy.places}
    for promise in promises:
        for name, count in holds.get(promise.key, {}).items():
            if name in slack:
                add(slack[name], {r: v * count for r, v in promise.vector.items()}, -1)
    return slack


def _leaving(
    slack: Mapping[str, int], here: Sequence[tuple[Promise, int]], pod: Pod
) -> Iterator[list[tuple[Promise, int]]]:
    """Smallest sets of holds whose leaving a node makes room for the pod, the fewest moves first."""
    movable = [(p, min(n, MOST_MOVES)) for p, n in here if n and not p.pinned]
    sets = sorted(product(*(range(n + 1) for _, n in movable)), key=sum)
    enough: list[tuple[int, ...]] = []
    for counts in sets:
        if sum(counts) > MOST_MOVES or any(
            all(a <= b for a, b in zip(e, counts, strict=True)) for e in enough
        ):
            continue
        left = dict(slack)
        for (promise, _), n in zip(movable, counts, strict=True):
            add(left, {r: v * n for r, v in promise.vector.items()}, 1)
        if all(left.get(r, 0) >= v for r, v in pod.requests.items() if v > 0):
            enough.append(counts)
            yield [(p, n) for (p, _), n in zip(movable, counts, strict=True) if n]


def _elsewhere(
    situation: Situation,
    holds: Holds,
    slack: Mapping[str, Mapping[str, int]],
    moved: Sequence[tuple[Promise, int]],
    source: str,
) -> bool:
    """Whether the holds that leave a node find room on others."""
    others = {name: left for name, left in slack.items() if name != source}
    wants = [Want(p.key, p.vector, n, _room(situation, holds, p, source)) for p, n in moved]
    packed = pack(others, wants)
    return all(packed.count(want.key) == want.count for want in wants)


def _room(situation: Situation, holds: Holds, promise: Promise, source: str) -> dict[str, int]:
    occupancy = situation.occupancy
    names = [n for n in occupancy.places if n != source and occupancy.eligible(promise, n)]
    keys = [one.key for one in promise.spread if one.required]  # within their domains holds may always move
    if keys and source in occupancy.places:
        own, places = occupancy.places[source].node.labels, occupancy.places
        names = [n for n in names if all(places[n].node.labels.get(key) == own.get(key) for key in keys)]
    if promise.per_node is None:
        return dict.fromkeys(names, UNBOUNDED)
    held = holds.get(promise.key, {})
    return {n: max(0, promise.per_node - occupancy.owners_on(n, promise) - held.get(n, 0)) for n in names}
