"""Watches a history with an extender: the checker of floors, beside what is judged with every keeper.

It sees everything at once, the API server's objects as well as decisions that are under way. What a mode does
not promise is left out by name: see `blind` and `unasked`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from adapters.api import (
    BUDGETS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    RESERVATIONS,
    Resource,
)
from adapters.kubernetes import decode, reserving
from lab.changes import Change, Namespace, PriorityClass, Watched
from lab.checker import Checker, Finding, Kind, Terms
from ledger.decisions import DemandReport
from ledger.demands import NO_SLOT
from qos.cluster.objects import Demand, PlacementMode, Pod
from qos.cluster.selectors import matches
from qos.keys import BANDWIDTHS
from simulation import invariants, lives, parsed
from simulation.books import SCHEDULER, WATCHED
from simulation.facts import ordered
from simulation.history import World
from simulation.invariants import Facts, Preemption
from simulation.on_their_way import before_their_end, costs_a_slot, with_whole_holds
from simulation.reserved_watch import ReservedWatch
from simulation.store import EPOCH, Body, Entry, Store
from simulation.watching import Waiting, Watching

if TYPE_CHECKING:
    from simulation.extender import Extender

UNASKED = "unasked"
"""In place of the scheduler's name, for pods that went by because the extender gave no answer."""


class Watcher(Watching):
    """Of a history with an extender that kube-scheduler calls."""

    def __init__(self, world: World, store: Store, clock: Callable[[], float]) -> None:
        super().__init__(world, store, clock)
        self._terms = Terms(grace=world.grace, cap_percent=world.cap, schedulers=frozenset({SCHEDULER}))
        self._checker = Checker(self._terms)
        self._judged = 0
        self._shown: dict[str, Pod] = {}
        self._placed: dict[str, str] = {}
        self._claimed: set[str] = set()
        self._slots: dict[str, str] = {}
        self._reserved = ReservedWatch(self.say)
        self._unasked: set[str] = set()
        self._asked_about: dict[str, list[frozenset[str]]] = {}
        """The nodes that filter was shown since the last disturbance, call by call, by the pod's name."""
        self._chosen: dict[str, str] = {}
        self._given_up: dict[str, str] = {}
        """Pods whose Binding may land after kube-scheduler gave it up: where."""
        self._ending: dict[str, int] = {}
        """Pods whose end has begun, by UID: the resourceVersion that said so first."""
        self._foreign: dict[str, float] = {}
        self._resized: dict[str, float] = {}
        self._risky: dict[str, float] = {}
        self._had: Mapping[str, int] = {}
        """Slots of each policy that were filled or held when all was last at rest."""
        self._before_filter: dict[str, tuple[str, Mapping[str, int]]] = {}
        """Likewise, and where a hole was kept for a pod, before filter last decided on it, by its UID."""
        self._preemptions: dict[str, Preemption] = {}
        self._told_of: dict[str, set[str]] = {}
        """Pods that the status of a policy has named, by the policy's UID, until its spec changes."""
        store.listeners.append(self._see)

    @property
    def binds(self) -> int:
        """How many binds were judged."""
        return self._checker.verdict().binds

    def broken(self, text: str) -> None:
        """An answer that kube-scheduler cannot use."""
        self.wrong("protocol", text)

    # --- what the players say ---

    def answered(self, pod: Pod, shown: list[str], names: list[str]) -> None:
        """Filter was shown some nodes, and answered."""
        self.say(f"filter {pod.name} -> {' '.join(names) or 'nothing'}")
        self._unasked.discard(pod.uid)
        self._asked_about.setdefault(pod.name, []).append(frozenset(shown))

    def asked(self, uid: str, hole: str, had: Mapping[str, int]) -> None:
        """Filter is about to decide on a pod."""
        self._before_filter[uid] = hole, had

    def unasked(self, pod: Pod) -> None:
        """The extender gave no answer and is ignorable: the pod goes on without it."""
        self.say(f"{pod.name} goes on without the extender")
        self._unasked.add(pod.uid)

    def assumed(self, pod: Pod, node: str) -> None:
        """kube-scheduler has chosen. Where bind cannot refuse, this is where a pod is let in."""
        self.say(f"kube-scheduler chooses {node} for {pod.name}")
        self._chosen[pod.uid] = node
        if not self._refuses_at_bind and not self._reserved.may_be_used(pod):
            self._place(pod.uid, node)

    def unassumed(self, pod: Pod) -> None:
        """kube-scheduler takes its choice back; the Binding may land all the same."""
        self.say(f"kube-scheduler gives up binding {pod.name}")
        if not self._refuses_at_bind:
            self._unasked.add(pod.uid)
            self._given_up[pod.uid] = self._chosen.get(pod.uid, "")
        if pod.uid not in self._claimed:
            self._lift(pod.uid)

    def claimed(self, uid: str, node: str, slot: str, reservation: str) -> None:
        """The extender has decided to bind."""
        used = f", which uses {self._reserved.name_of(reservation)}" if reservation else ""
        self.say(f"extender claims {node} for {self._name(uid)}{used}")
        self._claimed.add(uid)
        self._slots[uid], self._reserved.decided[uid] = slot, reservation
        if self._refuses_at_bind or (uid in self._shown and self._reserved.may_be_used(self._shown[uid])):
            self._place(uid, node)

    def released(self, uid: str) -> None:
        """The extender knows that a Binding did not happen."""
        self.say(f"extender releases {self._name(uid)}")
        self._claimed.discard(uid)
        if self._world.binds:  # otherwise it has only waited long enough
            self._given_up.pop(uid, None)
        self._lift(uid)

    def _name(self, uid: str) -> str:
        return self._shown[uid].name if uid in self._shown else uid

    def preempted(self, pod: Pod, node: str, victims: list[Pod], *, asked: bool) -> None:
        """kube-scheduler evicts. asked: the extender has answered, so that it does so with its leave."""
        self.say(f"{pod.name} preempts {' '.join(one.name for one in victims)} on {node}")
        if not asked or self._behind_on_policies():
            self._preemptions.pop(pod.name, None)
            return  # what nobody asked of, or it does not know of yet, may keep the pod out
        before = self._preemptions.get(pod.name)
        gone = frozenset(one.uid for one in victims) | (before.victims if before else frozenset())
        again = before is not None and gone != before.victims
        times = (before.times if before else 1) + again
        self._preemptions[pod.name] = Preemption(pod.name, pod.priority, node, times, gone)
        if again and times > invariants.MOST_PREEMPTIONS:
            self.wrong("evictions lead to binds", f"{pod.name} preempted {times} times")

    def restarted(self) -> None:
        """The extender is another one: what the first had decided and not sent is void."""
        self.blind(self._world.warmup)
        self._reserved.forgotten()
        for uid in list(self._claimed):
            self._lift(uid)
        self._claimed.clear()

    @property
    def _refuses_at_bind(self) -> bool:
        return self._world.binds and self._world.mode == "Strict"

    def _place(self, uid: str, node: str) -> None:
        pod = self._shown.get(uid)
        if pod is None or pod.node_name or self._placed.get(uid) == node:
            return
        self._placed[uid] = node
        if self._clock() - self._resized.get(uid, -1e9) <= self._world.grace:
            self._foreign[node] = self._clock()  # it may have been let in as large as it was
        if self.extender is not None and self.extender.behind(0.5 * self._world.grace):
            self.blind()
        self._feed(self._as_placed(pod))

    def _lift(self, uid: str) -> None:
        if self._placed.pop(uid, None) and uid in self._shown:
            self._feed(self._as_placed(self._shown[uid]))

    def _as_placed(self, pod: Pod) -> Pod:
        """With where it goes. Until its Binding is decided nobody knows whether it fills a slot."""
        node = pod.node_name or self._placed.get(pod.uid, "")
        name = UNASKED if pod.uid in self._unasked else pod.scheduler_name
        return (
            pod
            if (node, name) == (pod.node_name, pod.scheduler_name)
            else replace(
                pod,
                node_name=node,
                scheduler_name=name,
                slot=pod.slot if pod.node_name else self._slots.get(pod.uid, NO_SLOT),
                reserved_by=pod.reserved_by if pod.node_name else self._reserved.decided.get(pod.uid, ""),
            )
        )

    # --- what the API server says ---

    def _see(self, resource: Resource, entry: Entry, before: Body | None) -> None:
        gone = entry.type == "DELETED"
        if resource is PODS:
            (self._see_gone if gone else self._see_pod)(parsed.pod(entry.raw))
            return
        if resource is POLICIES and not gone:
            self._see_lives(entry.body, before)
        if resource is RESERVATIONS:
            self._all_wrong("reservations", self._reserved.see(entry.body, before, gone=gone))
        if resource is NODES and gone:
            self._reserved.lost.add(entry.body["metadata"]["name"])
        lasts = resource is POLICIES and "releaseDelaySeconds" in entry.body["spec"]
        if (
            resource is not POLICIES
            or before is None
            or before["spec"] is not entry.body["spec"]
            or gone
            or lasts
        ):
            thing = _decoded(resource, entry.raw)
            if gone and resource not in (NODES, RESERVATIONS):
                self.blind(self._world.reference_grace + 1.0)  # what policies refer to counts on for a while
            if resource is NODES:
                self._foreign[entry.body["metadata"]["name"]] = self._clock()
                self.say(f"node {entry.type.lower()}: {entry.body['metadata']['name']}")
            self._feed(thing, gone=gone)

    def _see_lives(self, body: Body, before: Body | None) -> None:
        """A policy's status says who fills slots, and which outlive their pods."""
        uid = body["metadata"]["uid"]
        if before is None:
            self._told_of[uid] = set()
        elif before["spec"] != body["spec"]:
            self._told_of.pop(uid, None)  # other slots than those that were told of
        else:
            restricted = body["spec"].get("ownerFit") == "Restricted"
            sure = (p for p in self._shown.values() if not (restricted and p.uid in self._resized))
            alive = lives.running(body, sure)
            for problem in lives.wrong_write(before, body, alive, EPOCH + self._clock()):
                self.wrong("lives", f"{body['metadata']['name']}: {problem}")
        told = self._told_of.get(uid)
        if told is not None:
            told.update(lives.fillers(body))
            for problem in lives.wrong_count(body, told):
                self.wrong("lives", f"{body['metadata']['name']}: {problem}")

    def _see_pod(self, pod: Pod) -> None:
        before = self._shown.get(pod.uid)
        self._shown[pod.uid] = pod
        if pod.deleting:
            self._ending.setdefault(pod.uid, self._store.version)
        if pod.terminal and before is not None and not before.terminal:
            self._reserved.ended(pod, heard=self.extender is not None and self.extender.ready)
        if before is None:
            self.say(f"{pod.name} is created, {pod.requests.get('cpu', 0)}m, priority {pod.priority}")
        if pod.node_name and (before is None or not before.node_name):
            self.say(f"{pod.name} is bound to {pod.node_name}")
            self._claimed.discard(pod.uid)
            if self._placed.pop(pod.uid, pod.node_name) != pod.node_name:
                self._foreign[pod.node_name] = self._clock()
            self._hole_taken(pod)
            if pod.reserved_by:
                problems = self._reserved.bound(pod, self._shown.values(), self._resized)
                self._all_wrong("reservations", problems)
        if before is not None and before.requests != pod.requests:
            self._resized[pod.uid] = self._clock()
        if pod.node_name and (not pod.bound_by or (before and before.requests != pod.requests)):
            self._foreign[pod.node_name] = self._clock()
        if before is None or _takes(before) != _takes(pod):
            self._feed(self._as_placed(pod))

    def _see_gone(self, pod: Pod) -> None:
        self.say(f"{pod.name} is gone")
        self._reserved.ended(pod, heard=self.extender is not None and self.extender.ready)
        self._shown.pop(pod.uid, None)
        self._ending.pop(pod.uid, None)
        self._claimed.discard(pod.uid)
        self._slots.pop(pod.uid, None)
        self._feed(self._as_placed(pod), gone=True)
        self._reserved.decided.pop(pod.uid, None)
        self._placed.pop(pod.uid, None)
        self._unasked.discard(pod.uid)
        self._given_up.pop(pod.uid, None)
        self._chosen.pop(pod.uid, None)

    def _hole_taken(self, pod: Pod) -> None:
        """A pod is bound: its own preemption has led to that; it may have taken another's hole."""
        self._preemptions = {
            name: one
            for name, one in self._preemptions.items()
            if name != pod.name and not (one.node == pod.node_name and pod.priority >= one.priority)
        }

    def _feed(self, thing: Watched, *, gone: bool = False) -> None:
        """Tell the checker, and judge what it finds."""
        self._checker.feed(Change(self._store.version, EPOCH + self._clock(), thing, gone))
        findings = self._checker.findings
        for finding in findings[self._judged :]:
            if finding.violation and not self._excused(finding, thing):
                self.wrong(
                    finding.kind.value, finding.message + (f" ({finding.policy})" if finding.policy else "")
                )
        self._judged = len(findings)

    def _excused(self, finding: Finding, thing: Watched) -> bool:
        """What the mode does not promise."""
        if isinstance(thing, Pod) and (_of_a_daemon_set(thing) or self._takes_nothing_more(thing)):
            return True  # a DaemonSet's pod always passes
        if finding.kind is Kind.MISUSED:
            return True  # simulation.reserved judges that, and knows who left no trace
        if finding.kind is Kind.OVER_COMMITTED:
            recent = self._clock() - self._foreign.get(finding.node, -1e9) <= self._world.grace
            blind = recent or self._clock() < self._blind_until or self._owes_unheard(finding)
            return not self._refuses_at_bind or blind or not self._concerns(finding)
        blind = self._clock() < self._blind_until
        if blind or self._uninformed() or self._owners_away():
            return True
        if isinstance(thing, Pod) and not self._refuses_at_bind and self._reserved.may_be_used(thing):
            return True  # which Reservation it uses is known only now, and bind must let it in
        if self._comes_before(finding.policy):
            return True
        at_risk = self._was_at_risk(finding.policy) or self._pinned_in_the_way(finding.policy)
        never = self._never_held(finding.policy) or self._in_its_hole(finding.policy, thing)
        if at_risk or never or self._kept_for_first(finding.policy):
            return True
        return self._kept_as_known(finding, thing)

    def _comes_before(self, key: str) -> bool:
        """Whether a Reservation comes first that the checker has still to hear of."""
        if self.extender is None or not self.extender.part.alive or not self._world.reservations:
            return False
        reports = self._reports()
        return self._reserved.being_placed(key, ordered(self.extender.books.demands(), reports), reports)

    def _takes_nothing_more(self, pod: Pod) -> bool:
        """Whether it comes where a Binding given up before may land all the same: the extender holds nothing
        in its place while it waits for that, and cannot know of one that it was not asked about, or that
        comes later.
        """
        return self._given_up.get(pod.uid, "") == pod.node_name != ""

    def _uninformed(self) -> bool:
        """Whether the extender has still to hear of a pod that ended or was resized, or of what is no pod."""
        if self.extender is None:
            return True
        unseen = self.extender.api.unseen
        changed = any(
            entry.type == "DELETED" or _ended(entry.body) or entry.body["metadata"]["uid"] in self._resized
            for entry in unseen(PODS.plural)
        )
        return changed or self._behind_on_policies()

    def _behind_on_policies(self) -> bool:
        """Whether the extender has still to hear of what is no pod."""
        if self.extender is None:
            return True
        unseen = self.extender.api.unseen
        return any(next(unseen(kind.plural), None) for kind in WATCHED if kind is not PODS)

    def _owners_away(self) -> bool:
        """Pods on nodes that are gone or not ready fill slots for the checker, but none for the ledger."""
        nodes = self._ready_nodes()
        return any(pod.node_name and pod.node_name not in nodes for pod in self._shown.values())

    def _ready_nodes(self) -> set[str]:
        return {e.body["metadata"]["name"] for e in self._store.entries(NODES) if parsed.node(e.raw).ready}

    def _was_at_risk(self, key: str) -> bool:
        """Whether the report said that pods in flight may cost a slot: where bind cannot refuse."""
        if self._refuses_at_bind:
            return False
        if self._clock() - self._risky.get(key, float("-inf")) <= 2 * self._world.grace:
            return True
        reports = self._reports()  # since the last look a slot may have been held again, at risk at once
        return key in reports and reports[key].at_risk > 0

    def _reports(self) -> Mapping[str, DemandReport]:
        """What the extender reports now."""
        extender = self.extender
        return extender.ledger.report() if extender is not None and extender.part.alive else {}

    def _concerns(self, finding: Finding) -> bool:
        """Whether some policy holds what is over-committed: all else is kube-scheduler's business (T17)."""
        if self.extender is None or not self.extender.part.alive:
            return False
        demands = self.extender.books.demands().values()
        held = {name for demand in demands for name in demand.vector}
        return any(f"{name} by " in finding.message for name in held)

    def _owes_unheard(self, finding: Finding) -> bool:
        """Whether owners are owed bandwidth by a policy as the extender has still to hear of it."""
        return self._behind_on_policies() and any(
            f"{name} by " in finding.message for name in BANDWIDTHS.values()
        )

    def _never_held(self, key: str) -> bool:
        """Whether as many slots are kept as were held: the checker packs all anew, and may find a place for a
        slot that the search for moves reports as Fragmented.
        """
        return self._had.get(key, 1 << 40) <= self._checker.verdict().kept.get(key, 0)

    def _kept_for_first(self, key: str) -> bool:
        """Whether the extender keeps more slots of a policy that comes before, for which the checker, packing
        anew, found no place (of maxSlotsPerNode), and of those before that as many.
        """
        reports, promised = self._reports(), self._checker.promised(EPOCH + self._clock())
        kept_by_all = self._checker.verdict().kept
        for first in takewhile(lambda one: one != key, kept_by_all):
            if first.startswith("/"):
                continue  # it has no slots of one size
            report = reports.get(first)
            kept, counted = report.filled + report.held if report else 0, promised.get(first, 0)
            if kept != counted:
                return kept > counted
        return False

    def _in_its_hole(self, key: str, thing: Watched) -> bool:
        """Whether a pod goes into the hole that its victims left, and as many slots are kept as were held
        before: the checker takes a hole for room.
        """
        if not isinstance(thing, Pod):
            return False
        hole, had = self._before_filter.get(thing.uid, ("", {}))
        there = hole == thing.node_name != ""
        return there and had.get(key, 1 << 40) <= self._checker.verdict().kept.get(key, 0)

    def _kept_as_known(self, finding: Finding, thing: Watched) -> bool:
        """Whether no slot is lost by what the extender can know: it has still to hear that the end of some
        pods has begun, which topology spread counts until then; and owners on their way may not come, so the
        holds that they go to are kept whole until they are there, where bind cannot refuse.
        """
        if self.extender is None or not isinstance(thing, Pod):
            return False
        others = [self._as_placed(pod) for pod in self._shown.values() if pod.uid != thing.uid]
        known = before_their_end(others, self._ends_unheard(self.extender))
        if not self._refuses_at_bind:
            coming = [pod for pod in known if pod.node_name and pod.uid in self._placed]
            reports = self._reports()
            demands = ordered(self.extender.books.demands(), reports)
            whole = {pod.uid: pod for pod in with_whole_holds(coming, demands, reports)}
            known = [whole.get(pod.uid, pod) for pod in known]
        if known == others:
            return False
        kinds = (kind for kind in WATCHED if kind is not PODS)
        things = [_decoded(kind, entry.raw) for kind in kinds for entry in self._store.entries(kind)]
        things += known
        return not costs_a_slot(self._terms, things, thing, finding.policy, now=EPOCH + self._clock())

    def _ends_unheard(self, extender: Extender) -> set[str]:
        """Pods whose end has begun, of which the extender has still to hear, by UID."""
        unseen = {entry.version for entry in extender.api.unseen(PODS.plural)}
        return {uid for uid, version in self._ending.items() if version in unseen}

    def _pinned_in_the_way(self, key: str) -> bool:
        """Pinned holds do not move, so slots that a packing from nothing has a place for may be unplaced."""
        extender = self.extender
        if extender is None or not extender.part.alive:
            return False
        demands, reports = extender.books.demands().values(), self._reports()
        pinned = any(demand.mode is PlacementMode.PINNED for demand in demands)
        return pinned and key in reports and reports[key].missing > 0

    # --- the invariants, between steps ---

    def disturbed(self) -> None:
        """Something happened from outside: earlier preemptions may have been in vain for that."""
        self._preemptions.clear()
        self._asked_about.clear()

    def counted_out(self, node: str) -> None:
        """From now on owners on a node that is not ready fill no slot: what their policies' others preempted
        for before was less than they are owed now.
        """
        if self.extender is None:
            return
        pods, demands = self._shown.values(), self.extender.books.catalog.demands().values()
        theirs = [d for d in demands if any(pod.node_name == node and _owns(d, pod) for pod in pods)]
        owed = {pod.name for pod in pods if any(_owns(demand, pod) for demand in theirs)}
        for name in owed & self._preemptions.keys():
            del self._preemptions[name]

    def _look_at_more(self, extender: Extender, facts: Facts) -> None:
        risky = (key for key, report in facts.reports.items() if report.at_risk)
        self._risky.update(dict.fromkeys(risky, self._clock()))
        self._had = {key: report.filled + report.held for key, report in facts.reports.items()}
        if not extender.busy:
            self._all_wrong("reservations", self._reserved.misplaced(facts.reports))

    def look_after_quiet(self, waiting: Waiting, uneven: AbstractSet[tuple[str, str]]) -> None:
        """What must be true once nothing has happened for long enough.

        `uneven`: pods and nodes, by name, where topology spread alone is in the way, or cost a nomination.
        """
        extender, again = self.extender, self._look_as_rebuilt()
        if extender is None or again is None:
            return
        for entry in self._store.entries(POLICIES):
            alive = lives.running(entry.body, self._shown.values())
            for problem in lives.stale(entry.body, alive, EPOCH + self._clock()):
                self.wrong("lives", f"{entry.body['metadata']['name']}: {problem}")
        there, wall = {e.body["metadata"]["name"] for e in self._store.entries(NODES)}, EPOCH + self._clock()
        self._all_wrong("reservations", self._reserved.at_rest(self._shown.values(), there, now=wall))
        bound = {pod.name: bool(pod.node_name) for pod in self._shown.values()}
        for problem in invariants.evictions_lead_to_binds(self._usable_preemptions(uneven), bound):
            self.wrong("evictions lead to binds", problem)
        now = self._clock()
        for name, (pod, nodes) in waiting.items():
            would_now = extender.ledger.filter(pod, nodes, now, prefers=True).nodes
            # A Pinned hold may stand elsewhere than where a rebuilt ledger puts it.
            let_in = [node for node in self._passes(again, pod, nodes, now) if node in would_now]
            let_in = [node for node in let_in if node not in self._kept_back(name)]
            if let_in:
                self.wrong("nobody waits for ever", f"{name} would be let in to {' '.join(let_in)}")

    def _kept_back(self, name: str) -> frozenset[str]:
        """The nodes that a pod was not shown although it tried as often as shows every node: which of them
        kube-scheduler shows is not the extender's to say, but that the pod tries is.
        """
        nodes, size = (
            frozenset(e.body["metadata"]["name"] for e in self._store.entries(NODES)),
            self._world.sample,
        )
        samples = [shown for shown in self._asked_about.get(name, ()) if len(shown) >= size]
        if not size or len(samples) < -(-len(nodes) // size):
            return frozenset()
        return nodes.difference(*samples)

    def _usable_preemptions(self, uneven: AbstractSet[tuple[str, str]]) -> list[Preemption]:
        """Without those on nodes that are not ready: kube-scheduler had not heard of that; and those whose
        node others of the same workload, since then, put above the skew.
        """
        ready, all_of_them = self._ready_nodes(), self._preemptions.values()
        return [one for one in all_of_them if one.node in ready and (one.name, one.node) not in uneven]


def _owns(demand: Demand, pod: Pod) -> bool:
    selects = demand.namespace == pod.namespace and matches(demand.selector, pod.labels)
    return selects and demand.admits(pod.requests)


def _of_a_daemon_set(pod: Pod) -> bool:
    return pod.controller is not None and pod.controller.kind == "DaemonSet"


def _ended(body: Body) -> bool:
    return body["status"]["phase"] in ("Succeeded", "Failed")


def _takes(pod: Pod) -> tuple[object, ...]:
    return (
        pod.node_name,
        pod.nominated_node_name,
        pod.terminal,
        pod.deleting,
        pod.requests,
        pod.scheduler_name,
    )


def _decoded(resource: Resource, raw: bytes) -> Watched:
    if resource is NODES:
        return parsed.node(raw)
    if resource is POLICIES:
        return decode.policy(raw)
    if resource is PRIORITY_CLASSES:
        return PriorityClass(*decode.priority_class(raw))
    if resource is DAEMON_SETS:
        return decode.daemon_set(raw)
    if resource is BUDGETS:
        return decode.budget(raw)
    if resource is NAMESPACES:
        return Namespace(*decode.namespace(raw))
    if resource is RESERVATIONS:
        return reserving.reservation(raw)
    assert resource is DEPLOYMENTS, resource.plural
    return decode.workload(resource, raw)
