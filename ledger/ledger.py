"""The ledger: the in-memory account of every node, and the four verbs' decisions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ledger import report
from ledger.beside import fits_beside
from ledger.bind import bind_pod
from ledger.budgets import Budgets
from ledger.claims import ClaimState
from ledger.clearing import Clearance, left_at, survey
from ledger.decisions import BindDecision, DemandReport, Filtered, Mode
from ledger.demands import NO_DEMAND, losers
from ledger.filter import filter_nodes, prioritize_nodes
from ledger.gangs import Gangs
from ledger.latecomers import Latecomers
from ledger.lost_nodes import NOT_READY_SECONDS
from ledger.placement import settle, unfinished, unsettled
from ledger.preempt import candidates, open_hole
from ledger.quotas import Quotas
from ledger.quotas import ahead as quotas_ahead
from ledger.quotas import settle as settle_quotas
from ledger.report import Holding
from ledger.reserving import Account, account
from ledger.retries import within_cap
from ledger.seats import Occupants, Openings, Untrue, gather_untrue, occupants, openings
from ledger.state import State
from ledger.waiting import SAMPLE, Waiting
from qos.cluster.budget import Budget, Part, Scope
from qos.cluster.needs import Enforcement
from qos.cluster.objects import DaemonSet, Demand, Node, Pod, Resources, Toleration
from qos.cluster.quota import ElasticQuota

_MOST_TURNS = 100_000


class Ledger:
    """Allocatable, claims and holds of every node. Synchronous and deterministic; time is passed in:
    every `now`, and `warmup_until`, in seconds of one monotonic clock, never compared with times of objects.

    `binds` False: bind does not come through us (trap T09): a pod in flight is charged on the union of its
    answers. Until `warmup_until` filter gives ordinary pods no held node: what pods in flight were answered
    before the start is not known. After `not_ready_seconds` owners on a node that is not ready fill no slot.
    `reservations`: pods use Koordinator's Reservations, and say which. `sample`: a pod that is shown as many
    nodes may have been shown a part of them. `most_nodes`: filter answers so many at the most to a pod that
    prefers none; 0: all. `answers` False: no scheduler asks us; a pod is in flight to where a hold has moved
    for it, and is refused there as long as that has not come true. `quotas`: what refuses pods beside; None:
    nothing does.
    """

    def __init__(
        self,
        mode: Mode,
        *,
        cap_percent: int = 40,
        binds: bool = True,
        settle_seconds: float = 600.0,
        warmup_until: float = 0.0,
        not_ready_seconds: float = NOT_READY_SECONDS,
        pool_labels: Sequence[str] = (),
        sample: int = SAMPLE,
        most_nodes: int = 0,
        reservations: bool = False,
        answers: bool = True,
        quotas: Quotas | None = None,
    ) -> None:
        self.mode = mode
        self._state = State(
            mode,
            cap_percent=cap_percent,
            binds=binds,
            settle_seconds=settle_seconds,
            warmup_until=warmup_until,
            not_ready_seconds=not_ready_seconds,
            pool_labels=pool_labels,
            most_nodes=most_nodes,
            reservations=reservations,
            answers=answers,
            quotas=quotas,
        )
        self._budgets = Budgets(self._state)
        self._waiting = Waiting(sample)
        self.gangs = Gangs(self._state, self._waiting)
        self._reports = report.Reports()

    def set_node(self, node: Node) -> None:
        """Take a node as it is now."""
        self._state.set_node(node)

    def remove_node(self, name: str) -> None:
        """Forget a node; its holds are placed elsewhere."""
        self._state.remove_node(name)

    def set_enforcement(self, node: str, said: Enforcement | None) -> None:
        """Take a node's report of what it enforces, whether the node is known or not; None: it reports
        nothing any more.
        """
        self._state.set_enforcement(node, said)

    def set_pod(self, pod: Pod) -> bool:
        """Take a pod as it is now, pending or bound. False when it runs as it is known already."""
        if self._state.settled(pod):
            return False
        self._state.set_pod(pod)
        if pod.node_name or pod.terminal or pod.deleting:
            self._stop_waiting(pod.uid)
        elif pod.nominated_node_name and pod.uid in self._state.offers.by_uid:
            open_hole(self._state, pod)
        return True

    def remove_pod(self, uid: str) -> None:
        """The pod is gone: its claim and its charges too."""
        self._stop_waiting(uid)
        self._state.remove_pod(uid)

    def _stop_waiting(self, uid: str) -> None:
        if self._waiting.forget(uid):
            self._state.changed()  # those that were not woken beside it are to be judged again

    def set_demand(self, demand: Demand) -> None:
        """Take a policy's demand as it is now; what budgets do not give of it is not held."""
        self._budgets.set_demand(demand)

    def restore(self, key: str, holds: Iterable[tuple[str, int]]) -> None:
        """Place a new demand's holds (node, slots) where they were before a restart, if there is room."""
        self._budgets.restore(key, holds)

    def keep(self, key: str, nodes: Iterable[str]) -> None:
        """On these nodes, and on no other, somebody keeps room for one more slot of a demand from others: a
        hold that looks for a place lies there first. Nothing is placed anew for that.
        """
        self._state.set_kept(key, nodes)

    def within_cap(self, asked: Mapping[str, int]) -> dict[str, int]:
        """How many of the slots that demands lack, by key, the cap lets all of them hold together."""
        return within_cap(self._state, asked)

    def remove_demand(self, key: str) -> None:
        """Release all holds of a demand."""
        self._budgets.remove_demand(key)

    def set_budget(self, budget: Budget) -> None:
        """Take a budget as it is now."""
        self._budgets.set_budget(budget)

    def remove_budget(self, name: str) -> None:
        """Nobody must keep it any more."""
        self._budgets.remove_budget(name)

    def set_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Take a namespace's labels: they say which budgets concern it."""
        self._budgets.set_namespace(name, labels)

    def remove_namespace(self, name: str) -> None:
        """The namespace is gone."""
        self._budgets.remove_namespace(name)

    def budget_parts(self) -> Mapping[Scope, Part]:
        """What is used of each budget, as policies were last given slots."""
        return self._budgets.parts

    def set_quota(self, quota: ElasticQuota) -> None:
        """Take a quota as it is now; nothing where there are no quotas."""
        if self._state.quotas is not None and self._state.quotas.set(quota):
            self._state.changed()

    def remove_quota(self, key: str) -> None:
        """The quota (namespace/name) is gone."""
        if self._state.quotas is not None:
            self._state.quotas.remove(key)
            self._state.changed()

    def set_daemon_set(self, daemon_set: DaemonSet) -> None:
        """Expect this DaemonSet's pod on each node that admits it."""
        self._state.set_daemon_set(daemon_set)

    def remove_daemon_set(self, uid: str) -> None:
        """Expect it no longer."""
        self._state.remove_daemon_set(uid)

    def filter(
        self,
        pod: Pod,
        names: Sequence[str],
        now: float,
        tolerations: tuple[Toleration, ...] | None = None,
        *,
        prefers: bool = False,
        unfiltered: bool = False,
    ) -> Filtered:
        """Which of the nodes kube-scheduler found fitting may be used. `tolerations`: the pod's, if known;
        `prefers`: it would rather have some than others; `unfiltered`: kube-scheduler was not asked, so what
        no policy holds is looked at here.
        """
        self._budgets.settle()
        state, waiting = self._state, self._waiting
        return filter_nodes(
            state, waiting, pod, names, now, tolerations, prefers=prefers, unfiltered=unfiltered
        )

    def prioritize(self, pod: Pod, names: Sequence[str], now: float) -> list[int]:
        """Scores 0..10, one for each name."""
        return prioritize_nodes(self._state, pod, names, now)

    def preempt(
        self,
        pod: Pod,
        victims: Mapping[str, Sequence[str]],
        now: float,
        violations: Mapping[str, int] | None = None,
    ) -> list[str]:
        """The candidate nodes (name -> victims' UIDs) where evicting would really lead to a bind.

        `violations`: how many of these evictions a PodDisruptionBudget forbids, by node.
        """
        return candidates(self._state, pod, victims, now, violations)

    def bind(self, pod: Pod, node: str, now: float, gone: Collection[str] = ()) -> BindDecision:
        """Check, move, claim: the commit point. `gone`: UIDs of its victims that are known to be."""
        self._budgets.settle()
        return bind_pod(self._state, self._waiting, pod, node, now, gone)

    def bound(self, uid: str, node: str) -> None:
        """The API server confirmed the Binding, to `node`."""
        claim = self._state.claims.by_uid.get(uid)
        pod = self._state.pods.get(uid) if claim is None else claim.pod
        if pod is not None and not pod.terminal:
            self._state.settle_flight(uid)
            self._state.put_claim(pod, node, ClaimState.BOUND, self._state.now)

    def release(self, uid: str) -> None:
        """The Binding certainly did not happen: roll the claim back."""
        claim = self._state.claims.by_uid.get(uid)
        if claim is not None and claim.state is not ClaimState.SEEN:
            self._state.drop_claim(uid)
        self._state.settle_flight(uid)

    def expired(self, now: float) -> list[Pod]:
        """Pods whose fate is unknown for longer than settle_seconds.

        GET each, then set_pod, release or settle.
        """
        self.advance(now)
        due = now - self._state.settle_seconds
        flights = [flight.pod for flight in self._state.flights.by_uid.values() if flight.since <= due]
        return flights + [claim.pod for claim in self._state.claims.unseen.values() if claim.since <= due]

    def unlisted(self, began: float) -> list[Pod]:
        """Pods in flight or claimed that must be gone when all pods were listed, by a list that began then.

        The scheduler saw them before, and no watch has shown them here: one that broke off may have missed
        how they came and went.
        """
        state = self._state
        flights = [flight.pod for flight in state.flights.by_uid.values() if flight.since < began]
        claims = [claim.pod for claim in state.claims.unseen.values() if claim.since < began]
        return list({pod.uid: pod for pod in (*flights, *claims) if pod.uid not in state.pods}.values())

    def in_flight_since(self, uid: str) -> float:
        """When the pod was answered nodes that are charged until it is bound; -inf: none are."""
        flight = self._state.flights.by_uid.get(uid)
        return float("-inf") if flight is None else flight.since

    def settle(self, uid: str) -> None:
        """Forget a pod's in-flight charge."""
        self._state.settle_flight(uid)

    def known(self, uid: str) -> Pod | None:
        """The pod as last seen: by the watch, or as filter was asked about it before that."""
        return self._state.pods.get(uid) or self._state.asked.get(uid)

    def gone(self, uid: str) -> bool:
        """Whether the pod was there and is not any more; only the latest are remembered."""
        return uid in self._state.gone

    def policy_of(self, pod: Pod) -> str:
        """Key of the demand the pod is an owner of, or would be, did it not ask for more than a slot.

        "" of none.
        """
        demands = self._state.demands
        owner = demands.owned_by(pod)
        number = demands.misfit_of(pod) if owner == NO_DEMAND else owner
        return "" if number == NO_DEMAND else demands[number].key

    def overlaps(self) -> Mapping[str, str]:
        """Demand key -> key of the demand it loses pods to."""
        *_, lost = self.gather_overlaps()
        return lost

    def tend(self) -> bool:
        """Place missing holds, as many as a few milliseconds allow; True when more is left to be tried."""
        if self._budgets.weigh():
            return True  # hundreds of policies: that is enough for one pass
        given = self._budgets.settle()
        settle(self._state, thorough=True)
        return given or unfinished(self._state)

    @property
    def unsettled(self) -> bool:
        """Whether `tend` has work to do. Where not, only what is told here can bring some, or time."""
        return self._budgets.unsettled or unsettled(self._state)

    def gather_overlaps(self) -> Iterator[Mapping[str, str]]:
        """The same in steps of a millisecond or so: what is known of it after each; the last is all of it."""
        lost: dict[str, str] = {}
        yield lost
        for found in losers(self._state.demands, self._state.ownership.kinds):
            lost = found | lost
            yield lost

    def report(self) -> dict[str, DemandReport]:
        """Each demand's account, once every missing hold had its turn: however long that takes."""
        for _ in range(_MOST_TURNS):
            if not self.tend():
                break
        *_, last = self.gather_report()
        return last

    def gather_report(self) -> Iterator[dict[str, DemandReport]]:
        """The account as it is, in steps of some milliseconds; the last is all of it."""
        return self._reports.gather(self._state)

    def gather_holdings(self) -> Iterator[Holding | None]:
        """Each demand and where its holds lie; None between two steps of a millisecond or so."""
        return self._reports.gather_holdings(self._state)

    @property
    def stamp(self) -> object:
        """Differs when anything has changed on which it depends where there is room."""
        return self._state.stamp

    def gather_replaced(self) -> Iterator[Mapping[str, Mapping[str, int]]]:
        """Slots that are filled where no other slot of their policy fits, by policy and node, in steps of a
        millisecond or so; the last is all of it.
        """
        return self._reports.gather_replaced(self._state)

    def gather_clearances(
        self,
        pod: Pod,
        admits: Callable[[Node], bool],
        worth: Callable[[Pod], bool],
        leaving: Collection[str] = (),
    ) -> Iterator[list[Clearance]]:
        """Where there is, or could be, room for a pod (ledger.clearing), in steps of a millisecond or so;
        the last is all of it.
        """
        return survey(self._state, pod, admits, worth, leaving)

    def left_for(self, pod: Pod, node: str, leaving: Collection[str] = ()) -> Resources:
        """What of each resource that it asks for is left to a pod on one node; leaving: as in
        gather_clearances.
        """
        return left_at(self._state, pod, node, leaving)

    def fits_beside(self, pod: Pod, node: str, slots: Mapping[str, int]) -> bool:
        """Whether there is room for a pod beside those that are there, those of no lower priority nominated
        there, and so many slots of each demand, by key, whatever is held there: in all that it requests.
        """
        return fits_beside(self._state, pod, node, slots)

    def ends_on(self, node: str) -> bool:
        """Whether a pod that has this node, or may any moment, is being deleted."""
        return bool(self._state.claims.ending_on(self._state.table.index.get(node, -1)))

    def ahead_of(self, pod: Pod) -> list[Pod]:
        """Pods that wait for others to end, and that are served before this one."""
        return quotas_ahead(self._state, pod)

    def waits(self, pod: Pod) -> bool:
        """Whether a pod has no node yet, and is not about to have one."""
        state = self._state
        return pod.uid in state.pending and not pod.deleting and pod.uid not in state.claims.by_uid

    def make_room(self, pod: Pod, node: str, now: float) -> bool:
        """The leader makes room for a pod there, or goes on with that: what others leave is its own, and
        kube-scheduler is to preempt nobody for it. False: it does so already, or the pod does not wait.
        """
        state = self._state
        self.advance(now)
        if not self.waits(pod) or not state.rooms.evict(pod.uid, now):
            return False
        if state.nominations.foresee(state.counted(pod), node, now):
            state.changed()
        return True

    def makes_room(self, uid: str, now: float) -> bool:
        """Whether the leader does, and has said so lately."""
        return self._state.rooms.evicts(uid, now)

    def preempts(self, uid: str, now: float) -> bool:
        """Whether kube-scheduler was answered whom to evict for a pod, so lately that it need not show."""
        return self._state.rooms.preempts(uid, now)

    def made_room(self, uid: str) -> None:
        """The leader does so no longer."""
        self._state.rooms.done(uid)
        if self._state.nominations.is_foreseen(uid) and self._state.nominations.drop(uid):
            self._state.changed()

    def settle_quotas(self) -> None:
        """Bring quotas up to date with what is held and offered."""
        if self._state.quotas is not None:
            settle_quotas(self._state, self._state.quotas)

    def gather_untrue(self) -> Iterator[Untrue | None]:
        """Pods whose annotations do not say whether they fill a slot, a policy that changed at a time; None
        between two steps of a millisecond.
        """
        return gather_untrue(self._state)

    def occupants(self, key: str, asked: Iterable[str]) -> Occupants | None:
        """Who has a policy's slots, and what became of the pods with these UIDs; None: not known yet."""
        return occupants(self._state, key, asked)

    def given(self, key: str) -> int:
        """How many slots budgets give a policy, as soon as that is known; 0 of one that is not there."""
        return self._budgets.gives(key)

    def owner_not_of(self, key: str, scheduler: str) -> Pod | None:
        """A pod of another scheduler that fills a slot of the demand; None where there is none."""
        number = self._state.demands.numbers.get(key)
        owners = self._state.claims.of.get(number, {}) if number is not None else {}
        pods = (claim.pod for claim in owners.values())
        return next((pod for pod in pods if pod.scheduler_name != scheduler), None)

    def openings(self, key: str) -> Openings | None:
        """What the next pods of a policy may get; None of a policy that is not there."""
        return openings(self._state, key)

    def reservation(self, key: str) -> Account:
        """What became of a Reservation's demand; `key` as the demand has it."""
        return account(self._state, key)

    def exposed(self, nodes: Collection[str]) -> frozenset[str]:
        """Keys of the demands that may hold slots on one of these nodes."""
        demands = self._state.demands
        rows = self._state.table.rows_of(list(nodes))
        there = demands.eligible[:, rows[rows >= 0]]
        return frozenset(demands[number].key for number in demands.order if there[number].any())

    def holds_on(self, node: str) -> Mapping[str, int]:
        """How many holds of each demand lie on a node, by key."""
        return report.holds_on(self._state, node)

    def advance(self, now: float) -> None:
        """Take the time: nobody may call a verb for long, and what comes next is to be known to come now."""
        self._state.now = max(self._state.now, now)

    def latecomers(self, seconds: float) -> Latecomers:
        """Who came in the last `seconds`, and what they took."""
        return Latecomers(self._state, seconds)

    def held_nodes(self) -> frozenset[str]:
        """Nodes with at least one hold."""
        return report.held_nodes(self._state)

    @property
    def moved(self) -> int:
        """How many holds have moved until now."""
        return self._state.counters["moves"]

    def waiting(self, now: float = 0.0) -> list[Pod]:
        """Pods refused by filter which would now pass; each once per change, later if that proved vain."""
        *_, woken = self.gather_waiting(now)
        return woken

    def gather_waiting(self, now: float) -> Iterator[list[Pod]]:
        """The same in steps of some milliseconds; the last is all of it."""
        self.advance(now)
        if self._waiting.lapse(self._state.now):
            self._state.changed()
        return self._waiting.gather(self._state)

    def may_wake(self, now: float) -> bool:
        """Take the time; whether `gather_waiting` has pods to judge. Where not, only what is told here can
        bring some, or time.
        """
        self.advance(now)
        return self._waiting.unjudged(self._state)

    def gauges(self) -> Mapping[str, float]:
        """Totals for /metrics."""
        return report.gauges(self._state, len(self._waiting), self._budgets.withheld)
