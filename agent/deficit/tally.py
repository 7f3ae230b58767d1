"""The tally of floors on this node: seconds wanted and missed, of each pod and policy, tick by tick."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.deficit import judge
from agent.deficit.budget import MOST_POLICIES, Budgets, Spent
from agent.deficit.judge import NOTHING, Judged
from agent.monitor.monitor import Tick, Watched
from agent.monitor.samples import PodSample
from qos import keys

Seconds = dict[str, Judged]
"""Wanted and missed since the agent began, by resource: cpu, memory, egress-bandwidth, ingress-bandwidth;
without those never wanted.
"""


@dataclass(slots=True)
class PodTally:
    """One pod's seconds, and the samples that the next ones are compared with."""

    watched: Watched
    seconds: Seconds = field(default_factory=dict)
    cpu: PodSample | None = None
    idle: float = 0.0
    """The node's idle CPU time at that sample."""
    memory: PodSample | None = None


class Tally:
    """The seconds in which floors were wanted, and missed.

    budgets: as they were kept. offset: what makes a monotonic time one of the budgets' clock. `pods` by uid,
    `policies` by namespace/name ("" for floors of no policy), for as long as their budget is known.
    """

    def __init__(self, budgets: Budgets | None = None, offset: float = 0.0) -> None:
        self.kept = budgets or Budgets()
        self.offset = offset
        self.pods: dict[str, PodTally] = {}
        self.policies: dict[str, Seconds] = {}

    def take(self, tick: Tick, watched: Mapping[str, Watched]) -> None:
        """Judge what passed since the last tick, of all pods that it saw; forget those no longer watched.

        watched: those of which only the network is judged, too.
        """
        for uid in [uid for uid in self.pods if uid not in watched]:
            del self.pods[uid]
        totals: defaultdict[tuple[str, str], Judged] = defaultdict(lambda: NOTHING)
        for uid, sample in tick.pods.items():
            pod = watched.get(uid)
            if pod is None:
                continue
            tally = self._tally(uid, pod)
            for resource, judged in (
                (keys.CPU, _cpu(tally, sample, tick.node.idle)),
                (keys.MEMORY, _memory(tally, sample)),
            ):
                _add(tally, resource, judged, totals)
        self._charge_all(totals, tick.at)

    def take_network(
        self, at: float, judged: Mapping[tuple[str, str], Judged], watched: Mapping[str, Watched]
    ) -> None:
        """What was judged of the network: by uid and resource, of an interval that ended at `at`."""
        totals: defaultdict[tuple[str, str], Judged] = defaultdict(lambda: NOTHING)
        for (uid, resource), one in judged.items():
            if uid in watched:
                _add(self._tally(uid, watched[uid]), resource, one, totals)
        self._charge_all(totals, at)

    def budgets(self, now: float) -> dict[str, dict[str, Spent]]:
        """By policy and window (1h, 24h, 28d), at monotonic time `now`."""
        return self.kept.spent(self.offset + now)

    def deficit_seconds(self, policy: str) -> float:
        """The policy's deficit seconds: of all its pods here and all resources, since the agent began."""
        return sum(one.deficit for one in self.policies.get(policy, {}).values())

    def _tally(self, uid: str, pod: Watched) -> PodTally:
        tally = self.pods.get(uid)
        if tally is None:
            tally = self.pods[uid] = PodTally(pod)
        if tally.watched.floor != pod.floor:
            # What passed until now was not promised this floor, and the plan for it has only just been made.
            tally.cpu = tally.memory = None
        tally.watched = pod
        return tally

    def _charge_all(self, totals: Mapping[tuple[str, str], Judged], at: float) -> None:
        """totals: by policy and resource."""
        for (policy, resource), judged in totals.items():
            self._charge(policy, resource, judged, self.offset + at)
        if len(self.policies) > MOST_POLICIES:
            self._forget_unused()

    def _charge(self, policy: str, resource: str, judged: Judged, now: float) -> None:
        seconds = self.policies.setdefault(policy, {})
        seconds[resource] = _plus(seconds.get(resource, NOTHING), judged)
        if policy:
            self.kept.add(policy, now, judged.wanted, judged.deficit)

    def _forget_unused(self) -> None:
        """Counters of policies without pods here, whose budget is forgotten, too."""
        used = {one.watched.policy_key for one in self.pods.values()}
        for policy in [one for one in self.policies if one not in used and one not in self.kept.policies]:
            del self.policies[policy]


def _add(
    tally: PodTally, resource: str, judged: Judged, totals: defaultdict[tuple[str, str], Judged]
) -> None:
    if judged.wanted:
        tally.seconds[resource] = _plus(tally.seconds.get(resource, NOTHING), judged)
        key = tally.watched.policy_key, resource
        totals[key] = _plus(totals[key], judged)


def _plus(one: Judged, other: Judged) -> Judged:
    return Judged(one.wanted + other.wanted, one.deficit + other.deficit)


def _cpu(tally: PodTally, sample: PodSample, idle: float) -> Judged:
    """Judged between samples that are settled."""
    if not sample.settled:
        return NOTHING
    before, tally.cpu = tally.cpu, sample
    since, tally.idle = tally.idle, idle
    if before is None:
        return NOTHING
    return judge.cpu(before, sample, tally.watched.floor.get(keys.CPU, 0), idle - since)


def _memory(tally: PodTally, sample: PodSample) -> Judged:
    """Judged each tick with PSI, and without as often as details are read."""
    before = tally.memory
    if before is not None and sample.memory_stalled is None and sample.detail is before.detail:
        return NOTHING
    tally.memory = sample
    if before is None:
        return NOTHING
    return judge.memory(before, sample, tally.watched.floor.get(keys.MEMORY, 0))
