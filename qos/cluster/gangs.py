"""Gangs: pods of which some number run together, or none, as Koordinator and scheduler-plugins have it. Pure.

Source: koordinator-sh/koordinator, apis/extension (gang.scheduling.koordinator.sh/*); kubernetes-sigs/
scheduler-plugins, apis/scheduling/v1alpha1 (PodGroup).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from qos import keys
from qos.cluster.objects import NodePredicate, Pod

EVERYWHERE: Final = NodePredicate()
WAITING_SECONDS: Final = 600.0
"""How long a gang's places are kept for it, unless it says otherwise."""


class Match(Enum):
    """Which pods count towards the least number: those that wait; those that have a node, too; or, once it
    was reached, nobody asks any more.
    """

    WAITING = "only-waiting"
    RUNNING = "waiting-and-running"
    ONCE = "once-satisfied"


@dataclass(frozen=True, slots=True)
class Rules:
    """What a gang says of itself. `least`: how many of its pods run, or none. `groups`: keys of the gangs
    that start together, itself among them; empty: it is alone. `problem`: why it cannot start; "" if it can.
    """

    least: int
    waiting_seconds: float = WAITING_SECONDS
    match: Match = Match.ONCE
    groups: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a gang. `gang`: namespace/name. `gates`: of a pod without a node. `where`: which nodes admit
    it, while it is gated. `rules`: as its annotations say them; None: its PodGroup does.
    """

    pod: Pod
    gang: str
    gates: tuple[str, ...] = ()
    where: NodePredicate = EVERYWHERE
    rules: Rules | None = None


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A PodGroup; `uid` for Events."""

    namespace: str
    name: str
    uid: str
    rules: Rules

    @property
    def key(self) -> str:
        """namespace/name, by which its gang is called."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Muster:
    """Who of a gang is there. `gated`: those that wait for their gate, the most important first; `begun`: how
    many are past it, or done; `lacks`: how many of the gated ones must get a place for the gang to run;
    `foreign`: gates of others that keep pods back. `priority`, `created`: the highest, and oldest, of gated
    pods; `nominated`: those that are.
    """

    key: str
    rules: Rules
    gated: tuple[Member, ...] = ()
    begun: int = 0
    lacks: int = 0
    foreign: tuple[str, ...] = ()
    priority: int = 0
    created: float = 0.0
    nominated: tuple[Pod, ...] = ()

    @property
    def absent(self) -> int:
        """How many pods are still to be made, or let go by others' gates."""
        return max(0, self.lacks - len(self.gated))


def muster(key: str, rules: Rules, members: Iterable[Member], gate: str, *, satisfied: bool) -> Muster:
    """Count a gang's pods. gate: ours. satisfied: it has run before. Pods that are being deleted, and those
    that failed, do not count.
    """
    gated, held, begun, running = list[Member](), set[str](), 0, 0
    for one in members:
        pod = one.pod
        if pod.deleting or pod.phase == "Failed":
            continue
        if gate not in one.gates:
            begun += 1
            running += bool(pod.node_name)
        elif one.gates == (gate,):
            gated.append(one)
        else:
            held.update(name for name in one.gates if name != gate)
    counted = begun - running if rules.match is Match.WAITING else begun
    done = rules.match is Match.ONCE and satisfied
    lacks = 0 if done else max(0, rules.least - counted)
    gated.sort(key=lambda one: (-one.pod.priority, one.pod.created, one.pod.name))
    return Muster(
        key,
        rules,
        tuple(gated),
        begun,
        lacks,
        tuple(sorted(held)),
        max((one.pod.priority for one in gated), default=0),
        min((one.pod.created for one in gated), default=0.0),
        tuple(one.pod for one in gated if one.pod.nominated_node_name),
    )


@dataclass(frozen=True, slots=True)
class Band:
    """Gangs that start together: one, or those of a group. `absent`: those of the group without pods, or
    that do not name the same group.
    """

    musters: tuple[Muster, ...]
    absent: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """Of its gangs."""
        return tuple(one.key for one in self.musters)

    @property
    def chosen(self) -> tuple[Member, ...]:
        """Who must have a place, all of them, for the band to run."""
        return tuple(member for one in self.musters for member in one.gated[: one.lacks])

    @property
    def obstacle(self) -> str:
        """Why nobody need look for places yet; "" where one may."""
        for one in self.musters:
            if one.rules.problem:
                return f"gang {one.key}: {one.rules.problem}"
        if self.absent:
            return f"gang {self.absent[0]} of its group has no pods, or names another group"
        for one in self.musters:
            if one.absent and one.foreign:
                return f"{one.absent} of {one.rules.least} pods wait for schedulingGate {one.foreign[0]}"
            if one.absent:
                there = one.rules.least - one.absent
                return f"{there} of {one.rules.least} pods are there"
        return ""

    @property
    def begun(self) -> bool:
        """Whether some of its pods run, or may any moment, that cannot do without the rest."""
        return any(one.begun and one.lacks for one in self.musters)

    @property
    def order(self) -> tuple[bool, int, float, tuple[str, ...]]:
        """Bands that have begun first, then by priority (their highest), then by age (their oldest pod)."""
        waiting = [one for one in self.musters if one.gated]
        highest = max((one.priority for one in waiting), default=0)
        return not self.begun, -highest, min((one.created for one in waiting), default=0.0), self.key

    @property
    def patience(self) -> float:
        """Seconds for which its places are kept, and after which it keeps others from starting."""
        return max(one.rules.waiting_seconds for one in self.musters)


def one_ask(pods: Iterable[Pod]) -> list[Pod]:
    """For each quota that these pods name, one of them as a pod that asks for what they all do."""
    sums: dict[tuple[str, str | None, str | None], tuple[Pod, dict[str, int]]] = {}
    for pod in pods:
        labels = pod.labels
        key = pod.namespace, labels.get(keys.QUOTA_NAME_LABEL), labels.get(keys.QUOTA_PREEMPTIBLE_LABEL)
        _, total = sums.setdefault(key, (pod, {}))
        for name, amount in pod.requests.items():
            total[name] = total.get(name, 0) + amount
    return [replace(first, requests=total) for first, total in sums.values()]


class Line:
    """Whether one that has waited for its patience keeps those behind it from starting: for as long, then
    nobody does for as long at least, whoever waits, and those come first that had no turn. So nobody starves,
    and nobody blocks for good, nor do several in turn. Each scope is a line of its own.
    """

    def __init__(self) -> None:
        self._shut: dict[str, tuple[Hashable, float, float]] = {}
        self._had: dict[str, set[Hashable]] = {}

    def keep(self, waiting: Collection[Hashable]) -> None:
        """All others wait no more."""
        self._had = {scope: who.intersection(waiting) for scope, who in self._had.items()}

    def closes(self, scope: str, who: Hashable, since: float, patience: float, now: float) -> bool:
        """Whether it does now; since: when it began to wait."""
        if patience <= 0 or now - since < patience:
            return False
        last, until, again = self._shut.get(scope, (None, now, now))
        if now < again:
            return who == last and now < until
        had = self._had.setdefault(scope, set())
        if who in had:
            if now < again + patience:
                return False
            had.clear()
        had.add(who)
        self._shut[scope] = who, now + patience, now + 2 * patience
        return True


def in_order_of_need(members: Sequence[Member], places: Sequence[int]) -> list[Member]:
    """Those that fit on the fewest nodes first, then the largest: places[n] is how many admit members[n]."""
    return [
        member
        for _, _, member in sorted(
            zip(places, range(len(members)), members, strict=True),
            key=lambda one: (one[0], [-amount for _, amount in sorted(one[2].pod.requests.items())], one[1]),
        )
    ]
