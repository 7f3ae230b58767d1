"""Watches a history with placeholders: they stand where holds lie, and nobody slips in between.

It sees everything at once, the API server's objects as well as hand-overs that are under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.api import NODES, PODS, Resource
from adapters.kubernetes import placeholders
from ledger.decisions import DemandReport
from ledger.unplaced import INSUFFICIENT
from qos.cluster.objects import Demand, Node, Pod
from qos.cluster.placeholders import Placeholder
from qos.cluster.selectors import admits
from simulation import parsed
from simulation.arrivals import Arrivals
from simulation.at_rest import wrongly_said, wrongly_standing
from simulation.books import PLACEHOLDERS, WATCHED
from simulation.handed import Handed, HandOvers
from simulation.history import World
from simulation.invariants import Facts
from simulation.store import Body, Entry, Store
from simulation.watching import Waiting, Watching

if TYPE_CHECKING:
    from simulation.extender import Extender

JUST_SECONDS = 0.3
GATED_SECONDS = 65.0
"""So long at most an owner waits for a hand-over while somebody is there who lifts gates, whatever fails."""
CROWDED_SECONDS = 0.9
"""From then on placeholders may go for one that waits to be bound (extender.standing)."""
_OTHERS = [resource.plural for resource in WATCHED if resource is not PODS]
_NOW = 1e-6
"""Seconds: what has happened just now nobody can have heard of."""
SETTLED_SECONDS = 10.0
MOST_WRITES = 10
"""So many in the last SETTLED_SECONDS of the quiet, beside two for each placeholder that was made and stays:
who stood by in vain does so again after a while.
"""


@dataclass(frozen=True, slots=True)
class _Standing:
    """A placeholder, also as a pod, and since when it has been there."""

    one: Placeholder
    pod: Pod
    since: float

    def waits_for(self, node: str) -> bool:
        """Whether it is to be bound there."""
        return not self.one.bound and self.one.node == node


class PlaceholderWatcher(Watching):
    """Told of everything by the players."""

    def __init__(self, world: World, store: Store, clock: Callable[[], float]) -> None:
        super().__init__(world, store, clock)
        self._bound = 0
        self._arrivals = Arrivals(clock)
        self._pods: dict[str, Pod] = {}
        self._standing: dict[str, _Standing] = {}
        self._gated: dict[str, float] = {}
        self._handed = HandOvers()
        self._assumed: dict[str, tuple[Pod, str]] = {}
        """Pods that kube-scheduler has chosen a node for and that are not bound."""
        self._unheeded: set[str] = set()
        """Nominated owners that kube-scheduler does not know to be."""
        self._evicted: set[str] = set()
        self._leaving: set[str] = set()
        """Placeholders whose DELETE was sent."""
        self._in_vain_at = float("-inf")
        """When an owner that had got a place was given up last."""
        self._leads_since = float("inf")
        self._changed_at = 0.0
        """When something other than a pod changed last."""
        self._written: list[tuple[float, int]] = [(0.0, 0)]
        """How many writes had been sent, look by look."""
        store.listeners.append(self._see)

    @property
    def binds(self) -> int:
        """How many pods were bound."""
        return self._bound

    def restarted(self) -> None:
        """The extender is another one: what the first one had not finished is over."""
        self._handed.restarted(self._clock(), lambda uid: uid in self._standing or uid in self._gated)
        self._leaving.clear()
        self._leads_since = float("inf")

    def scheduler_starts(self) -> None:
        """kube-scheduler is about to list pods: it does not heed the nomination of one with gates."""
        self._unheeded = {uid for uid in self._gated if self._pods[uid].nominated_node_name}
        for uid, one in self._handed:
            one.overtaken |= uid in self._gated

    def disturbed(self) -> None:
        """Something happened from outside."""

    # --- what the players say ---

    def claimed(self, uid: str, node: str, slot: str, reservation: str) -> None:  # noqa: ARG002 - of Told
        """A hand-over begins."""
        self.say(f"extender claims {node} for {self._name(uid)}")
        pod = self._pods.get(uid)
        policy = self._policy(pod) if pod is not None else ""
        demand = self._demands().get(policy)
        waits = [s.one for s in self._standing.values() if s.one.nominated and s.waits_for(node)]
        covered = any(there.policy == policy for there in waits)
        one = Handed(node, policy, demand, gated=uid in self._gated, covered=covered)
        if pod is not None and demand is not None:
            left = Counter(self._left(node))
            standing = [s for other, s in self._standing.items() if other not in self._leaving]
            for there in standing:  # that others' are there is no excuse
                left.update(there.pod.requests if there.one.bound and there.one.node == node else {})
            for other in self._coming(node, uid):
                left.subtract(other.requests if other.priority > pod.priority else {})
            one.overtaken = any(left[name] < pod.requests.get(name, 0) for name in demand.vector)
            one.overtaken |= uid in self._unheeded
        self._handed.begin(uid, one, pod)

    def released(self, uid: str) -> None:
        """It came to nothing."""
        self.say(f"extender releases {self._name(uid)}")
        self._in_vain_at = self._clock()
        self._handed.end(uid)

    def assumed(self, pod: Pod, node: str) -> None:
        """kube-scheduler has chosen."""
        self.say(f"kube-scheduler chooses {node} for {pod.name}")
        self._assumed[pod.uid] = pod, node
        placeholder = self._standing.get(pod.uid)
        if placeholder is None or not placeholder.one.roams:  # these must not be above any owner
            self._overtakes(node, pod.priority)

    def _overtakes(self, node: str, priority: float) -> None:
        """A pod is about to be on a node, whatever is kept there for owners of less priority."""
        for uid, one in self._handed:
            owner = self._pods.get(uid)
            if one.node == node and owner is not None and priority > owner.priority:
                left = self._left(node)
                one.overtaken |= any(left.get(name, 0) < amount for name, amount in owner.requests.items())

    def _left(self, node: str) -> Mapping[str, int]:
        """What nobody uses of a node, placeholders that go left out."""
        there = self._node(node)
        if there is None:
            return {}
        left = Counter(there.allocatable)
        bound = [one for one in self._pods.values() if one.node_name == node and not one.terminal]
        chosen = [one for one, where in self._assumed.values() if where == node]
        stay = [s.pod for uid, s in self._standing.items() if s.one.bound and uid not in self._leaving]
        for one in (*bound, *chosen, *(pod for pod in stay if pod.node_name == node)):
            left.subtract(one.requests)
        return left

    def unassumed(self, pod: Pod) -> None:
        """kube-scheduler takes its choice back."""
        self.say(f"kube-scheduler gives up binding {pod.name}")
        _, node = self._assumed.pop(pod.uid, (pod, ""))
        if pod.namespace == PLACEHOLDERS:
            self._not_bound(node)

    def _not_bound(self, node: str) -> None:
        """kube-scheduler gives a placeholder up, perhaps before it knows whom the place is given to."""
        for _, one in self._handed:
            one.overtaken |= one.node == node

    def preempted(self, pod: Pod, node: str, victims: list[Pod], *, asked: bool) -> None:  # noqa: ARG002
        """kube-scheduler evicts."""
        self.say(f"{pod.name} preempts {' '.join(one.name for one in victims)} on {node}")
        handed = self._handed.get(pod.uid)
        harmless = self._evicted | self._arrivals.refused | self._leaving
        more = [one for one in victims if one.uid not in harmless]
        self._evicted.update(one.uid for one in victims)
        if handed is None or not more or handed.overtaken or handed.until < self._clock():
            return
        if not handed.gated and self._pods[pod.uid].nominated_node_name != handed.node:
            return  # kube-scheduler had its turn before it could know
        demand = handed.demand
        if demand is None or not self._serves(demand, handed.node):
            return
        if not handed.takes_a_slot(pod, self._left(handed.node)):
            return
        names = " ".join(one.name for one in more)
        self.wrong("nobody is evicted", f"{pod.name}, handed over to {handed.node}, evicts {names} on {node}")

    def _name(self, uid: str) -> str:
        return self._pods[uid].name if uid in self._pods else uid

    # --- what the API server says ---

    def _see(self, resource: Resource, entry: Entry, before: Body | None) -> None:
        if resource is not PODS:
            self._changed_at = self._clock()
            if resource is NODES:
                self.say(f"node {entry.type.lower()}: {entry.body['metadata']['name']}")
            return
        pod, gone = parsed.pod(entry.raw), entry.type == "DELETED"
        if before is None:
            to = f" on {pod.node_name}" if pod.node_name else ""
            self.say(f"{pod.name} is created{to}, {pod.requests.get('cpu', 0)}m, priority {pod.priority}")
        elif gone:
            self.say(f"{pod.name} is gone")
        elif pod.node_name and not before["spec"].get("nodeName"):
            self.say(f"{pod.name} is bound to {pod.node_name}")
            self._bound += 1
        elif pod.nominated_node_name != before["status"].get("nominatedNodeName", ""):
            self.say(f"{pod.name} is nominated to {pod.nominated_node_name or 'no node'}")
        if pod.namespace == PLACEHOLDERS:
            self._see_placeholder(pod, entry, gone=gone)
        else:
            self._see_pod(pod, entry, before, gone=gone)

    def _see_pod(self, pod: Pod, entry: Entry, before: Body | None, *, gone: bool) -> None:
        if gone:
            self._pods.pop(pod.uid, None)
            self._handed.end(pod.uid)
        else:
            self._pods[pod.uid] = pod
            self._handed.see(pod)
        if gone or pod.node_name:
            self._assumed.pop(pod.uid, None)
        if before is None and pod.node_name:
            self._arrivals.bypass(pod.node_name)
            self._overtakes(pod.node_name, float("inf"))
        gated = parsed.wants(entry.raw).gated
        if before is None and not gated:
            self._judge_ungated(pod)
        if gone or not gated:
            self._gated.pop(pod.uid, None)
        elif pod.uid not in self._gated:
            self.say(f"{pod.name} is gated")
            self._gated[pod.uid] = self._clock()

    def _judge_ungated(self, pod: Pod) -> None:
        """A new owner of a policy with slots is gated: they may be asked for in vain."""
        extender = self.extender
        answers = extender is not None and extender.leads and extender.hung_until <= self._clock()
        policy = self._policy(pod)
        if extender is None or not answers or pod.node_name or self._unheard(policy):
            return
        report = extender.ledger.report().get(policy)
        if report is not None and report.filled + report.held:
            said = f"{report.filled} slots filled and {report.held} held"
            self.wrong("owners wait", f"{pod.name} is not gated, and its policy has {said}")

    def _see_placeholder(self, pod: Pod, entry: Entry, *, gone: bool) -> None:
        _, node = self._assumed.get(pod.uid, (pod, ""))
        if gone or pod.node_name:
            self._assumed.pop(pod.uid, None)
        if gone:
            self._not_bound(node)
            self._standing.pop(pod.uid, None)
            return
        known = self._standing.get(pod.uid)
        since = known.since if known is not None else self._clock()
        self._standing[pod.uid] = _Standing(placeholders.placeholder(entry.raw), pod, since)

    def deletes(self, uid: str, sent: bool) -> None:
        """Our service has sent a DELETE, or that came to nothing.

        A bound placeholder that is wanted goes only if an owner was nominated in its place.
        """
        if not sent:
            self._leaving.discard(uid)
        if not sent or uid not in self._standing or uid in self._leaving | self._arrivals.refused:
            return
        self._leaving.add(uid)
        one, extender = self._standing[uid].one, self.extender
        if not one.bound or extender is None or self._unheard(one.policy):
            return  # when that was decided, it was not bound perhaps
        if self._handed.heir(one.node, one.policy, uid) or self._clock() - self._changed_at < JUST_SECONDS:
            return
        demand = extender.books.demands().get(one.policy)
        known = extender.ledger.openings(one.policy)  # before a report, which looks for places anew
        if demand is None or known is None or one.form != extender.form_of(demand):
            return
        if not self._serves(demand, one.node) or self._makes_room(one):
            return
        wanted = known.desired - known.missing
        after = self._kept(demand, wanted - known.held, extender.ledger.claimed)
        left = self._left(one.node)
        there = [pod for pod in self._pods.values() if pod.node_name == one.node and not pod.terminal]
        if self._arrivals.are_in_the_way(left, there, demand.vector) or self._fits(demand, one.node):
            wanted = known.desired
        if after < wanted:
            said = f"{one.name} of {one.policy} on {one.node} goes"
            self.wrong("slots are kept", f"{said}: {after} are left of {wanted}")

    def _fits(self, demand: Demand, node: str) -> bool:
        """Whether a slot has room on a node, beside holds that want to be there and owners on their way, and
        is said to have none.
        """
        demands, left = self._demands(), Counter(self._left(node))
        reports = self._reports()
        other_reasons = any(one.reason != INSUFFICIENT for one in reports[demand.key].unplaced)
        unheard = self.extender is None or any(self.extender.api.unseen(PODS.plural))
        if unheard or other_reasons or demand.max_slots_per_node is not None:
            return False
        for key in reports.keys() & demands.keys():
            for _ in range(dict(reports[key].holds).get(node, 0) - self._stand(key, node)):
                left.subtract(demands[key].vector)
        for pod in self._coming(node):
            left.subtract(pod.requests)
        return all(left[name] >= amount for name, amount in demand.vector.items())

    def _coming(self, node: str, but: str = "") -> list[Pod]:
        """Owners that a place there is handed over to, and pods that are nominated to it, `but` this one."""
        coming = {uid for uid, one in self._handed if one.node == node}
        coming |= {p.uid for p in self._pods.values() if p.nominated_node_name == node and not p.node_name}
        return [self._pods[uid] for uid in coming & self._pods.keys() - {but}]

    def refused(self, pod: Pod, resource: str) -> None:
        """kubelet refuses a pod, and no owner but where pods have just come past kube-scheduler."""
        self.say(f"kubelet of {pod.node_name} refuses {pod.name}: OutOf{resource}")
        self._arrivals.refused.add(pod.uid)
        if self._policy(pod) and not self._arrivals.bypassed(pod.node_name):
            self.wrong("owners are admitted", f"kubelet of {pod.node_name} refuses {pod.name}")

    def _unheard(self, policy: str) -> bool:
        """Whether our service has still to hear of something that concerns a policy."""
        extender = self.extender
        if extender is None or extender.api.behind(_OTHERS, _NOW):
            return True
        before = self._clock() - _NOW
        unseen = (entry.raw for entry in extender.api.unseen(PODS.plural) if entry.at <= before)
        return any(self._is_of(policy, raw) for raw in unseen)

    def _is_of(self, policy: str, raw: bytes) -> bool:
        """Whether a pod is its owner or its placeholder."""
        pod = parsed.pod(raw)
        of = self._policy(pod) if pod.namespace != PLACEHOLDERS else placeholders.placeholder(raw).policy
        return of == policy

    def _makes_room(self, one: Placeholder) -> bool:
        """Whether it is not wanted on its node any more, and another one is, and has waited for that."""
        due = self._clock() - CROWDED_SECONDS
        waits = {s.one.policy for s in self._standing.values() if s.waits_for(one.node) and s.since <= due}
        holds = {key: dict(report.holds).get(one.node, 0) for key, report in self._reports().items()}
        stays = self._stand(one.policy, one.node) < holds.get(one.policy, 0)
        return not stays and any(self._stand(key, one.node) < holds.get(key, 0) for key in waits)

    def _demands(self) -> Mapping[str, Demand]:
        return self.extender.books.demands() if self.extender is not None else {}

    def _reports(self) -> Mapping[str, DemandReport]:
        return self.extender.ledger.report() if self.extender is not None else {}

    def _stand(self, policy: str, node: str) -> int:
        """How many of a policy's placeholders of the right form stand on a node, without those that go."""
        extender = self.extender
        demand = self._demands().get(policy)
        if extender is None or demand is None:
            return 0
        what = policy, extender.form_of(demand), node
        stay = [s.one for uid, s in self._standing.items() if s.one.bound and uid not in self._leaving]
        return sum((one.policy, one.form, one.node) == what for one in stay)

    def _kept(self, demand: Demand, filled: int, claimed: list[str]) -> int:
        """Slots of a policy that a bound pod fills, by the ledger, which invariants.fillings judges; that an
        owner gets that was nominated; or that have a bound placeholder.
        """
        coming = sum(uid in self._pods and self._policy(self._pods[uid]) == demand.key for uid in claimed)
        stay = [s.one for uid, s in self._standing.items() if uid not in self._leaving]
        held = [one for one in stay if one.policy == demand.key and one.bound]
        serve = sum(self._serves(demand, one.node) for one in held)
        return filled - coming + self._handed.count(demand.key, self._clock()) + serve

    def _policy(self, pod: Pod) -> str:
        return self.extender.ledger.policy_of(pod) if self.extender is not None else ""

    def _node(self, name: str) -> Node | None:
        there = self._store.find(NODES, "", name)
        return parsed.node(self._store.raw(NODES, "", name)) if there is not None else None

    def _serves(self, demand: Demand, name: str) -> bool:
        node = self._node(name)
        return node is not None and node.ready and admits(demand.where, node)

    # --- the invariants, between steps ---

    def look(self) -> None:
        """What must be true now."""
        super().look()
        now, extender = self._clock(), self.extender
        if extender is None or not extender.leads:
            self._leads_since = float("inf")
            return
        self._leads_since = min(self._leads_since, now)
        self._written.append((now, extender.api.writes))
        for uid, since in self._gated.items():
            if now - max(since, self._leads_since) > GATED_SECONDS + 6 * extender.api.latency:
                self.wrong("no gate stays", f"{self._name(uid)} has been gated since {since:.1f}")

    def waits_in_vain(self, waiting: Waiting) -> bool:
        """Or whether an owner has just got a place in vain: so it does again, later each time."""
        if self.extender is not None:
            self._written.append((self._clock(), self.extender.api.writes))
        return self._clock() - self._in_vain_at < SETTLED_SECONDS or super().waits_in_vain(waiting)

    def _look_at_more(self, extender: Extender, facts: Facts) -> None:  # noqa: ARG002 - of Watching
        """Room is claimed for an owner only while a place is handed over to it."""
        for uid in extender.ledger.claimed:
            if uid in self._pods and not self._pods[uid].node_name and self._handed.get(uid) is None:
                self.wrong("claims end", f"{self._name(uid)} has a claim, and no place is handed over to it")

    def look_after_quiet(self, waiting: Waiting, uneven: AbstractSet[tuple[str, str]]) -> None:  # noqa: ARG002
        """What must be true once nothing has happened for long enough."""
        extender, again = self.extender, self._look_as_rebuilt()
        if extender is None or again is None:
            return
        for uid in self._gated:
            self.wrong("no gate stays", f"{self._name(uid)} is gated after quiet")
        standing = [there.one for there in self._standing.values()]
        self._all_wrong("placeholders stand", wrongly_standing(extender, standing))
        self._all_wrong("Guarded is said", wrongly_said(extender, self._clock()))
        since = self._clock() - SETTLED_SECONDS
        before = max(writes for at, writes in self._written if at <= since)
        stay = sum(one.since >= since for one in self._standing.values())
        if (late := extender.api.writes - before) - 2 * stay > MOST_WRITES:
            self.wrong("all comes to rest", f"{late} writes since {since:.1f}, for {stay} that stay")
        now = self._clock()
        for name, (pod, nodes) in waiting.items():
            if pod.controller is not None and pod.controller.kind == "DaemonSet":
                continue  # it may wait for a node with placeholders (docs/limits.md)
            would_now = extender.ledger.filter(pod, nodes, now, prefers=True).nodes
            let_in = [node for node in self._passes(again, pod, nodes, now) if node in would_now]
            if let_in:
                self.wrong("nobody waits for ever", f"{name} would be let in to {' '.join(let_in)}")
