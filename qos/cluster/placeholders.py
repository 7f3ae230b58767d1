"""Placeholders: pods of ours that stand where holds lie, so that every scheduler respects them.

What is to be done for one policy is decided here, from where its holds lie and which placeholders are there;
extender.placeholders does it. A placeholder is the hold itself, never a claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, TypeVar

from qos.cluster.objects import Demand
from qos.keys import BANDWIDTHS, HIGHEST_USER_PRIORITY

T = TypeVar("T")

_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder as it is: whose hold it stands for, by key, in which form, on which node.

    `bound`: it takes its node's capacity; until then it only asks for it. `roams`: it was made for a slot
    without a place, and may be bound to any node; `node` is "" until then. `nominated`: it is not bound, and
    kube-scheduler keeps that room on the node from pods of no higher `priority`. `version`: the
    resourceVersion by which that is known.
    """

    uid: str
    name: str
    policy: str
    form: str
    node: str
    bound: bool
    roams: bool = False
    nominated: bool = False
    priority: int = 0
    version: str = field(default="", compare=False)

    @property
    def keeps(self) -> bool:
        """Whether nobody of no higher priority can take its room on the node, if there is any."""
        return self.bound or self.nominated


@dataclass(frozen=True, slots=True)
class Steps:
    """What is to be done for one policy now: nodes that get one placeholder each time they are named ("": it
    roams), placeholders that go, and those that are nominated to the node they wait for.
    """

    create: tuple[str, ...] = ()
    delete: tuple[Placeholder, ...] = ()
    nominate: tuple[Placeholder, ...] = ()


def form_of(demand: Demand, priority: int, image: str = "") -> str:
    """What must be the same of a demand's placeholders, in 16 characters: else they are replaced.

    `priority`: theirs. `image`: what they run, "" for nothing.
    """
    told = (sorted(demand.vector.items()), priority, [repr(one) for one in demand.where.tolerations], image)
    return blake2b(repr(told).encode(), digest_size=8).hexdigest()


def priority_of(demand: Demand) -> int:
    """The priority of a demand's placeholders: the policy's own, where a PriorityClass can have it. Of those
    that wait for an unplaced slot: extender.roaming.

    So a stranger of that priority takes no hold. Not more: a placeholder that waits would not see the owner
    that is nominated for the same place.
    """
    return min(demand.priority, HIGHEST_USER_PRIORITY)


def owner_priority_of(demand: Demand) -> int | None:
    """What the policy's owners are raised to while nobody hands holds over: one above its placeholders.

    None: no PriorityClass may be so high. Their own is one below (manifests/hand-over/raising.yaml).
    """
    raised = demand.priority + 1
    return raised if raised <= HIGHEST_USER_PRIORITY else None


def may_roam(demand: Demand) -> bool:
    """Whether kube-scheduler and autoscalers find the right node for one of its slots by themselves.

    Not where it depends on the policy's other slots, on what a node offers or says only once our agent runs,
    or on volumes of single pods: the ledger would not want it there, and the node that came would go again.
    Nor where no node may hold it.
    """
    together = demand.spread or demand.max_slots_per_node is not None
    strange = demand.needs is not None or demand.anchors
    nowhere = () in (demand.where.affinity, *demand.where.volumes)
    return not (together or strange or nowhere) and not any(
        name in demand.vector for name in BANDWIDTHS.values()
    )


def decide(
    wanted: Mapping[str, int],
    form: str,
    there: Iterable[Placeholder],
    crowded: Mapping[str, int] = _NOTHING,
    standby: Mapping[str, int] = _NOTHING,
    barred: Collection[str] = (),
    lost: Collection[str] = (),
    overcommitted: Collection[str] = (),
    unplaced: int = 0,
) -> Steps:
    """The least that brings one policy's placeholders to where its holds lie.

    wanted: holds by node. there: its placeholders, without those that go already or are handed over. As many
    as are not bound yet where they are wanted stay where they are meanwhile: there before here. crowded: how
    many of any policy's have waited for long to be bound to a node: as many that are not wanted there go at
    once, else two might wait for each other for ever. standby: by node, how many wait for a slot that is
    filled there now: nominated, they keep its room once its pod is gone. barred: nodes on which none is to
    be made now. lost: nodes on which none is of use to anybody: of those wanted elsewhere these go first.
    overcommitted: nodes where pods took the room of what is bound there, whom kubelet may refuse yet: as many
    as the policy has `unplaced` slots stay there.
    """
    bound, asking, useless = Counter[str](), Counter[str](), list[Placeholder]()
    standing, nominate = list[Placeholder](), list[Placeholder]()
    most = Counter(wanted) + Counter(standby)
    for one in sorted(there, key=lambda one: (not one.bound, not one.nominated, one.name)):
        node = one.node
        if one.bound and one.form == form and bound[node] < wanted.get(node, 0):
            bound[node] += 1
        elif one.bound:
            standing.append(one)
        elif one.form == form and bound[node] + asking[node] < most[node]:
            asking[node] += 1
            if node in standby and not one.nominated:
                nominate.append(one)
        else:
            useless.append(one)
    missed = {node: slots - bound[node] - asking[node] for node, slots in sorted(most.items())}
    create = [node for node, slots in missed.items() if node not in barred for _ in range(slots)]
    missing = sum(slots - bound[node] for node, slots in wanted.items())
    freed, others, room = list[Placeholder](), list[Placeholder](), Counter(crowded)
    for one in standing:
        (freed if room[one.node] > 0 else others).append(one)
        room[one.node] -= 1
    useful = [one for one in others if one.form == form and one.node not in lost]
    staying = {one.uid for one in useful if one.node in overcommitted}
    followed = {node for node, slots in wanted.items() if bound[node] < slots}  # by one of the right form
    others.sort(key=lambda one: (one.uid in staying, one.node in followed, one.node not in lost))
    kept = missing + min(unplaced, len(staying))
    gone = (*useless, *freed, *others[: max(0, len(others) - kept)])
    return Steps(tuple(create), gone, tuple(nominate))


def renewed_apart(create: Iterable[str], outdated: Counter[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Nodes that get a placeholder in place of one of another form, and those that get one more: that may be
    left to one that roams. outdated: by node, how many are bound there in another form.
    """
    left, renewed, fresh = Counter(outdated), list[str](), list[str]()
    for node in create:
        (renewed if left[node] > 0 else fresh).append(node)
        left[node] -= 1
    return tuple(renewed), tuple(fresh)


def to_be_replaced(there: Collection[Placeholder], roams: str, form: str) -> Counter[str]:
    """By node: how many were bound in the form of those that roam, and for how many of them one of the
    policy's own form waits. They make room at once.
    """
    if roams == form:
        return Counter()
    low = Counter(one.node for one in there if one.bound and one.form == roams)
    return low & Counter(one.node for one in there if not one.bound and one.form == form)


def apart(
    delete: Iterable[Placeholder], awaited: Collection[str]
) -> tuple[list[Placeholder], list[Placeholder]]:
    """Those that go at once, and those that keep their node's room until another's is nominated there.

    awaited: nodes where any is to be bound.
    """
    first, making_way = list[Placeholder](), list[Placeholder]()
    for one in delete:
        (making_way if one.bound and one.node in awaited else first).append(one)
    return first, making_way


def shared_out(asked: Mapping[str, Mapping[str, int]], most: int, a_node: int) -> dict[str, dict[str, int]]:
    """Who stands by: of what policies ask for, by key and node, `most` in all, `a_node` of a policy on one.

    One a node first, of each policy in turn, in their order; then a second one, and so on: several owners
    of a policy on one node seldom crash at once.
    """
    lines = {key: _in_turns(nodes, a_node) for key, nodes in asked.items()}
    given: dict[str, dict[str, int]] = {}
    while lines and most:
        for key in [*lines]:
            node = next(lines[key], None)
            if node is None:
                del lines[key]
            elif most:
                mine = given.setdefault(key, {})
                mine[node] = mine.get(node, 0) + 1
                most -= 1
    return given


def _in_turns(nodes: Mapping[str, int], most: int) -> Iterator[str]:
    """Each node as often as it says, `most` at the most; all of them once, before one comes again."""
    for turn in range(min(most, max(nodes.values(), default=0))):
        yield from (node for node in sorted(nodes) if nodes[node] > turn)


class InTurns:
    """Lets policies take turns over many rounds: one of each in turn, and whoever has waited longest first.

    Without the latter those that come first, if they ask in each round, would keep all others waiting.
    """

    def __init__(self) -> None:
        self._round = 0
        self._since: dict[str, int] = {}
        """By policy that asks and was not served: since which round."""

    def next(self, asked: list[T], of: Callable[[T], str], most: int) -> tuple[list[T], list[T]]:
        """What is served in this round, and what is left for later. of: whose it is, by key."""
        self._round += 1
        self._since = {of(one): self._since.get(of(one), self._round) for one in asked}
        turns = Counter[str]()

        def turn(one: T) -> tuple[int, int]:
            turns[of(one)] += 1
            return turns[of(one)], self._since[of(one)]

        line = sorted(asked, key=turn)
        for one in line[:most]:
            self._since.pop(of(one), None)
        return line[:most], line[most:]


def with_roaming(
    steps: Steps, roaming: list[Placeholder], form: str, awaited: int | None, *, patient: bool
) -> Steps:
    """The steps for those with a node, and those for the ones that roam, which are not bound yet.

    awaited: how many slots wait for room that nobody has yet; None: not known, they all stay. patient: a slot
    that has got its place just now leaves it to one of them: kube-scheduler is about to bind it there by
    itself.
    """
    good = sorted((one for one in roaming if one.form == form), key=lambda one: one.name)
    covered = min(len(good), len(steps.create)) if patient else 0
    if awaited is None:
        return Steps(steps.create[covered:], steps.delete, steps.nominate)
    kept = good[: covered + awaited]
    more = covered + awaited - len(kept)
    useless = [one for one in roaming if one not in kept]
    return Steps((*steps.create[covered:], *[""] * more), (*steps.delete, *useless), steps.nominate)
