"""Watches a history with placeholders: they stand where holds lie, and nobody slips in between.

It sees everything at once, the API server's objects as well as hand-overs that are under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.api import NODES, PODS, Resource
from adapters.kubernetes import placeholders
from qos.cluster.objects import Demand, Pod
from qos.cluster.placeholders import Placeholder
from qos.cluster.selectors import admits
from simulation import parsed
from simulation.books import PLACEHOLDERS
from simulation.history import World
from simulation.invariants import Facts
from simulation.store import Body, Entry, Store
from simulation.watching import Waiting, Watching

if TYPE_CHECKING:
    from simulation.extender import Extender

JUST_SECONDS = 1.0
GATED_SECONDS = 65.0
"""So long at most an owner waits for a hand-over while somebody is there who lifts gates, whatever fails."""
CROWDED_SECONDS = 0.9
"""From then on placeholders may go for one that waits to be bound (extender.standing)."""
_NOW = 1e-6
"""Seconds: what has happened just now nobody can have heard of."""
SETTLED_SECONDS = 10.0
MOST_WRITES = 10
"""So many in the last SETTLED_SECONDS of the quiet: who stood by in vain does so again after a while."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """A placeholder, and since when it has been there, and bound."""

    one: Placeholder
    since: float
    bound_since: float


class PlaceholderWatcher(Watching):
    """Told of everything by the players. `taken`: placeholders that somebody else deletes, by UID."""

    def __init__(self, world: World, store: Store, clock: Callable[[], float]) -> None:
        super().__init__(world, store, clock)
        self.taken: set[str] = set()
        self._bound = 0
        self._pods: dict[str, Pod] = {}
        self._standing: dict[str, _Standing] = {}
        self._gated: dict[str, float] = {}
        self._handed: dict[str, str] = {}
        """Where owners go whose hand-over has begun."""
        self._overtaken: set[str] = set()
        """Those of them in whose place kube-scheduler put a pod of higher priority."""
        self._evicted: set[str] = set()
        self._leaving: dict[str, str] = {}
        """Placeholders whose DELETE is on its way, and the owner that gets the place, "" nobody."""
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
        """The extender is another one: what the first one had begun it knows nothing of."""
        self._handed.clear()
        self._leaving.clear()
        self._leads_since = float("inf")

    def disturbed(self) -> None:
        """Something happened from outside."""

    # --- what the players say ---

    def claimed(self, uid: str, node: str, slot: str, reservation: str) -> None:  # noqa: ARG002 - of Told
        """A hand-over begins."""
        self.say(f"extender claims {node} for {self._name(uid)}")
        self._handed[uid] = node

    def released(self, uid: str) -> None:
        """It came to nothing."""
        self.say(f"extender releases {self._name(uid)}")
        self._handed.pop(uid, None)

    def assumed(self, pod: Pod, node: str) -> None:
        """kube-scheduler has chosen."""
        self.say(f"kube-scheduler chooses {node} for {pod.name}")
        for uid, where in self._handed.items():
            if where == node and uid in self._pods and pod.priority > self._pods[uid].priority:
                self._overtaken.add(uid)

    def unassumed(self, pod: Pod) -> None:
        """kube-scheduler takes its choice back."""
        self.say(f"kube-scheduler gives up binding {pod.name}")

    def preempted(self, pod: Pod, node: str, victims: list[Pod], *, asked: bool) -> None:  # noqa: ARG002
        """kube-scheduler evicts."""
        self.say(f"{pod.name} preempts {' '.join(one.name for one in victims)} on {node}")
        where = self._handed.get(pod.uid)
        more = [one for one in victims if one.uid not in self._evicted]
        self._evicted.update(one.uid for one in victims)
        if where is None or not more or pod.uid in self._overtaken or not self._takes_a_slot(pod):
            return
        names = " ".join(one.name for one in more)
        self.wrong("nobody is evicted", f"{pod.name}, handed over to {where}, evicts {names} on {node}")

    def _takes_a_slot(self, pod: Pod) -> bool:
        """Whether our service and the node are there, and it asks for no more than a slot."""
        extender = self.extender
        if extender is None or not extender.part.alive:
            return False
        demand = extender.books.demands().get(extender.ledger.policy_of(pod))
        if demand is None or not self._serves(demand, self._handed[pod.uid]):
            return False
        return all(amount <= demand.vector.get(name, 0) for name, amount in pod.requests.items())

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
            self.say(f"{pod.name} is created, {pod.requests.get('cpu', 0)}m, priority {pod.priority}")
        elif gone:
            self.say(f"{pod.name} is gone")
        elif pod.node_name and not before["spec"].get("nodeName"):
            self.say(f"{pod.name} is bound to {pod.node_name}")
            self._bound += 1
        if pod.namespace == PLACEHOLDERS:
            self._see_placeholder(pod, entry, gone=gone)
        else:
            self._see_pod(pod, entry, before, gone=gone)

    def _see_pod(self, pod: Pod, entry: Entry, before: Body | None, *, gone: bool) -> None:
        if gone:
            self._pods.pop(pod.uid, None)
        else:
            self._pods[pod.uid] = pod
        if gone or pod.node_name:
            self._handed.pop(pod.uid, None)
            self._overtaken.discard(pod.uid)
        gated = parsed.wants(entry.raw).gated
        if before is None and not gated:
            self._judge_ungated(pod)
        if gone or not gated:
            self._gated.pop(pod.uid, None)
        elif pod.uid not in self._gated:
            self.say(f"{pod.name} is gated")
            self._gated[pod.uid] = self._clock()

    def _judge_ungated(self, pod: Pod) -> None:
        """A new owner is gated where more placeholders stand than owners wait or are on their way."""
        extender = self.extender
        answers = extender is not None and extender.leads and extender.hung_until <= self._clock()
        if extender is None or not answers or pod.node_name or extender.behind(_NOW):
            return
        if self._clock() - self._changed_at < JUST_SECONDS:
            return  # what stands may be on its way out
        policy = extender.ledger.policy_of(pod)
        stay = [s.one for uid, s in self._standing.items() if policy and uid not in self._leaving]
        there = sum(one.policy == policy and one.bound for one in stay)
        others = {uid for uid in (*self._gated, *self._handed) if uid in self._pods}
        waiting = sum(extender.ledger.policy_of(self._pods[uid]) == policy for uid in others)
        if there > waiting:
            self.wrong("owners wait", f"{pod.name} of {policy} is not gated: {there} stand, {waiting} wait")

    def _see_placeholder(self, pod: Pod, entry: Entry, *, gone: bool) -> None:
        one = placeholders.placeholder(entry.raw)
        if not gone:
            before, now = self._standing.get(pod.uid), self._clock()
            since = before.since if before is not None else now
            bound = before.bound_since if before is not None and before.one.bound else now
            self._standing[pod.uid] = _Standing(one, since, bound)
            return
        self._standing.pop(pod.uid, None)

    def deletes(self, uid: str, sent: bool) -> None:
        """Our service has sent a DELETE, or that came to nothing.

        A bound placeholder that is wanted goes only if an owner is nominated in its place.
        """
        if not sent:
            self._leaving.pop(uid, None)
        if not sent or uid not in self._standing or uid in self._leaving:
            return
        one, extender = self._standing[uid].one, self.extender
        settled = one.bound and self._clock() - self._standing[uid].bound_since >= JUST_SECONDS
        self._leaving[uid] = heir = self._heir(one) if settled else ""
        if not settled or heir or extender is None or extender.behind(_NOW):
            return
        if self._clock() - self._changed_at < JUST_SECONDS:
            return  # it may have been decided by what was true before
        demand, report = extender.books.demands().get(one.policy), extender.ledger.report().get(one.policy)
        waits = self._clock() - CROWDED_SECONDS
        there = [s for s in self._standing.values() if s.one.node == one.node]
        crowded = any(not s.one.bound and s.since <= waits for s in there)
        if demand is None or report is None or crowded or not self._serves(demand, one.node):
            return
        form = extender.form_of(demand)
        after, wanted = self._kept(demand, form), report.filled + report.held
        if one.form == form and after < wanted:
            said = f"{one.name} of {one.policy} on {one.node} goes"
            self.wrong("slots are kept", f"{said}: {after} are left of {wanted}")

    def _heir(self, one: Placeholder) -> str:
        """The owner that is nominated to the placeholder's place, "" nobody."""
        there = [uid for uid, node in self._handed.items() if node == one.node and uid in self._pods]
        for pod in (self._pods[uid] for uid in there if uid not in self._leaving.values()):
            if pod.nominated_node_name == one.node and self._policy(pod) == one.policy:
                return pod.uid
        return ""

    def _kept(self, demand: Demand, form: str) -> int:
        """Slots of a policy that are filled, being handed over, or have a bound placeholder."""
        own = [one for one in self._pods.values() if self._policy(one) == demand.key and not one.terminal]
        filled = sum(bool(one.node_name) and self._ready(one.node_name) for one in own)
        coming = (one for one in own if not one.node_name and one.uid in self._handed)
        handed = sum(one.nominated_node_name == self._handed[one.uid] for one in coming)
        stay = [s.one for uid, s in self._standing.items() if uid not in self._leaving]
        held = [one for one in stay if one.policy == demand.key and one.bound and one.form == form]
        return filled + handed + sum(self._serves(demand, one.node) for one in held)

    def _policy(self, pod: Pod) -> str:
        return self.extender.ledger.policy_of(pod) if self.extender is not None else ""

    def _ready(self, name: str) -> bool:
        body = self._store.find(NODES, "", name)
        return body is not None and body["status"]["conditions"][0]["status"] == "True"

    def _serves(self, demand: Demand, name: str) -> bool:
        for entry in self._store.entries(NODES):
            if entry.body["metadata"]["name"] == name:
                node = parsed.node(entry.raw)
                return node.ready and admits(demand.where, node)
        return False

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

    def _look_at_more(self, extender: Extender, facts: Facts) -> None:
        """Nothing between two moments of rest."""

    def look_after_quiet(self, waiting: Waiting, uneven: AbstractSet[tuple[str, str]]) -> None:  # noqa: ARG002
        """What must be true once nothing has happened for long enough."""
        extender, again = self.extender, self._look_as_rebuilt()
        if extender is None or again is None:
            return
        for uid in self._gated:
            self.wrong("no gate stays", f"{self._name(uid)} is gated after quiet")
        self._look_where_they_stand(extender)
        since = self._clock() - SETTLED_SECONDS
        before = max(writes for at, writes in self._written if at <= since)
        if (late := extender.api.writes - before) > MOST_WRITES:
            self.wrong("all comes to rest", f"{late} writes since {since:.1f}")
        now = self._clock()
        for name, (pod, nodes) in waiting.items():
            if pod.controller is not None and pod.controller.kind == "DaemonSet":
                continue  # it may wait for a node with placeholders (docs/limits.md)
            would_now = extender.ledger.filter(pod, nodes, now, prefers=True).nodes
            let_in = [node for node in self._passes(again, pod, nodes, now) if node in would_now]
            if let_in:
                self.wrong("nobody waits for ever", f"{name} would be let in to {' '.join(let_in)}")

    def _look_where_they_stand(self, extender: Extender) -> None:
        """A bound placeholder of the right form wherever a hold lies, and none beside."""
        demands, reports = extender.books.demands(), extender.ledger.report()
        wanted = {
            (key, extender.form_of(demands[key]), node): count
            for key, report in reports.items()
            for node, count in report.holds
        }
        there = Counter(
            (s.one.policy, s.one.form, s.one.node) for s in self._standing.values() if s.one.bound
        )
        for what in sorted(wanted.keys() | there.keys()):
            if wanted.get(what, 0) != there[what]:
                key, _, node = what
                self.wrong(
                    "placeholders stand", f"{key}: {wanted.get(what, 0)} holds, {there[what]} on {node}"
                )
        for standing in self._standing.values():
            if standing.one.policy not in reports:
                self.wrong(
                    "placeholders stand", f"{standing.one.name} is of {standing.one.policy}, which is gone"
                )
