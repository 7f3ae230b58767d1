"""Everything the ledger knows, and how changes enter it.

Holds are not touched here: `placement.settle` does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ledger import quotas as quoted
from ledger import sharing
from ledger.anchors import Anchors
from ledger.board import Board
from ledger.claims import Claims, ClaimState
from ledger.daemons import Daemons
from ledger.decisions import Mode
from ledger.demands import NO_DEMAND, Demands
from ledger.flights import Flights
from ledger.headcount import Headcount
from ledger.holds import Holds
from ledger.lost_nodes import LostNodes
from ledger.nominations import Nominations
from ledger.offers import Offers
from ledger.ownership import Ownership
from ledger.pools import Pools
from ledger.portions import Portions
from ledger.refuge import Refuge
from ledger.rooms import Rooms
from ledger.spread import Spreads
from ledger.table import Columns, Flags, Table, Vector
from qos.cluster.needs import Enforcement
from qos.cluster.objects import DaemonSet, Demand, Node, OwnerFit, Pod, Resources
from qos.keys import SYSTEM_CRITICAL_PRIORITY

if TYPE_CHECKING:
    from ledger.vacancies import Vacancy

_MOST_KINDS = 256
_MOST_GONE = 10_000
_MOST_ASKED = 1_000
SHORT_SECONDS: Final = 3.0
"""So far the watch may be behind kube-scheduler's."""
COUNTERS: Final = ("moves", "displaced", "refusals", "withheld", "exempt", "quota_refusals")


def exempt(pod: Pod) -> bool:
    """Pods that always pass: system-critical, DaemonSets' and mirror pods (traps T15, T20)."""
    if pod.priority >= SYSTEM_CRITICAL_PRIORITY or pod.mirror:
        return True
    return pod.controller is not None and pod.controller.kind == "DaemonSet"


def _kept(pod: Pod) -> tuple[object, ...]:
    """By what known pods are kept."""
    return pod.namespace, pod.labels, pod.reserved_by


def _claim_to_pods(demand: Demand) -> tuple[object, ...]:
    """What decides which pods are its owners, and for how much they count."""
    limit = demand.vector if demand.owner_fit is OwnerFit.RESTRICTED else None
    return demand.selector, demand.priority, demand.created, demand.owed, limit


def _way_of_use(demand: Demand) -> tuple[str, bool] | None:
    """Whose pods use it, and whether several do; None of a policy."""
    reserved = demand.reserved
    return None if reserved is None else (reserved.uid, reserved.shared is not None)


class State:
    """The parts of the account, and what has changed since they were last settled.

    `dirty`: something changed; `grown`: every hold that had no place may have one now (else only on the
    rows in `table.grown`, or of the demands in `holds.wanting`); `regraded`: rows,
    and `rejudged`: demands, whose eligibility changed since holds last left nodes that are lost;
    `recheck`: every node's holds must be measured again, not only the touched ones; `overdue`: the search
    for moves has not been tried since room has grown; `turns`: demands to be placed, True: with a search;
    `crowded`: those to be placed, with a search, as if no pod were in flight; `failed`: missing slots of
    each demand when it last failed; `capped`: what all holds up to a demand's amounted to when the cap last
    kept it from more, by column, last looked at when the holds and the demands were those of `capped_at`;
    `used`: what all holds up to each demand amount to, and as of when; `boards`: what searches for moves
    look at, by the level of those who ask, as of `boards_at`; `vacant`: what holds may use, by kind, as of
    `vacant_at`; `refuge`: places for holds at risk, and as of when; `short`: rows where pods in flight are
    charged for more than is free, since when; `uneven`: demands some of whose holds may be where by a spread
    constraint no owner can go; `gone`: UIDs of the pods removed last; `kept`: nodes where somebody keeps
    room for a demand's next hold; `promised`: UIDs of pods of gangs with a claim that the watch does not
    show bound yet; `version` counts the changes that are to be settled; `quotas`: who else counts pods, and
    `reoffered`: what nodes offer has changed since that was told there.
    """

    def __init__(
        self,
        mode: Mode,
        *,
        cap_percent: int,
        binds: bool,
        settle_seconds: float,
        warmup_until: float,
        not_ready_seconds: float,
        pool_labels: Sequence[str] = (),
        most_nodes: int = 0,
        reservations: bool = False,
        answers: bool = True,
        quotas: quoted.Quotas | None = None,
    ) -> None:
        self.mode = mode
        self.quotas = quotas
        self.reoffered = True
        self.cap_percent = cap_percent
        self.binds = binds
        self.answers = answers
        self.settle_seconds = settle_seconds
        self.warmup_until = warmup_until
        self.now = 0.0
        self.table = Table(self._resize, self._columns_changed)
        self.demands = Demands(self.table, reservations=reservations)
        self.pools = Pools(pool_labels, self.table)
        self.holds = Holds(self.table, self.demands, self.pools)
        self.lost = LostNodes(not_ready_seconds)
        self.headcount = Headcount(self.table)
        self.uneven: dict[int, None] = {}
        self.claims = Claims(self.table, self.demands, self.holds, self.lost, self.headcount)
        anchors = Anchors(self.demands, self.holds, self.claims)
        self.spreads = Spreads(self.demands, self.holds, self.headcount, anchors)
        self.nominations = Nominations(self.table)
        self.flights = Flights(self.table, self.holds, self.nominations)
        self.flights.followed = self.follow
        self.daemons = Daemons(self.table)
        self.pods: dict[str, Pod] = {}
        self.asked: dict[str, Pod] = {}
        self.pending: dict[str, Pod] = {}
        self.gone: dict[str, None] = {}
        self.rooms = Rooms()
        self.promised: set[str] = set()
        self.ownership = Ownership(self.claims, self.demands)
        self.offers = Offers()
        self.portions = Portions(most_nodes)
        self.counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self.dirty = False
        self.grown = False
        self.regraded: set[int] = set()
        self.rejudged: set[int] = set()
        self.recheck = False
        self.short: dict[int, float] = {}
        self.landed: set[int] = set()
        self.overdue = False
        self.turns: dict[int, bool] = {}
        self.crowded: dict[int, None] = {}
        self.risk_seen = -1
        self.failed: dict[int, int] = {}
        self.capped: dict[int, Vector] = {}
        self.capped_at = (-1, -1)
        self.boards: dict[int, Board] = {}
        self.boards_at = (-1, -1, -1)
        self.vacant: dict[tuple[bool, bool, tuple[int, ...]], Vacancy] = {}
        self.vacant_at = (-1, -1, -1)
        self.refuge: tuple[tuple[int, int, int], Refuge | None] | None = None
        self.used: tuple[tuple[int, int], Columns] | None = None
        self.version = 0
        self.kept: dict[int, frozenset[str]] = {}
        self._hopeless: dict[object, Flags] = {}
        self._hopeless_version = 0
        self._limits: list[int] | None = None

    def _resize(self) -> None:
        self.demands.resize()
        self.holds.resize()
        self.nominations.resize()
        self.headcount.resize()

    def _columns_changed(self, resources: AbstractSet[str]) -> None:
        """A node brought resources that no other had, or the last one took them away."""
        if resources <= self.table.dims.keys():
            self.flights.fill(resources)
            self.nominations.fill(resources)
        naming = self.demands.naming(resources)
        for number in naming:
            self.holds.weigh(number, -1)
        self.demands.follow_columns(naming)
        for number in naming:
            self.holds.weigh(number, 1)
        self.recheck = True
        self.failed.clear()
        self.capped.clear()

    def changed(self, *, grown: bool = False) -> None:
        """Note a change to be settled; `grown` as above."""
        self.dirty = True
        self.grown = self.grown or grown
        self.version += 1

    def follow(self, uid: str) -> None:
        """Tell quotas that a pod came, changed, was charged or claimed, or is gone."""
        quoted.follow(self, uid)

    @property
    def charges_win(self) -> bool:
        """True when a pod in flight will run where it was sent, whatever bind says, or no bind is asked.

        Holds make way at once.
        """
        return self.answers and (self.mode is not Mode.STRICT or not self.binds)

    def given_up(self) -> dict[object, Flags]:
        """Rows, by kind of pod, where the search for moves failed since the last change.

        It would fail again.
        """
        if self._hopeless_version != self.version or len(self._hopeless) > _MOST_KINDS:
            self._hopeless_version = self.version
            self._hopeless.clear()
        return self._hopeless

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Differs when anything has changed on which a search for moves depends."""
        return self.table.changes, self.holds.changes, self.demands.changes

    @property
    def moment(self) -> tuple[int, bool]:
        """Differs when a refused pod might pass: something changed, or the warm-up is over."""
        return self.version, self.now >= self.warmup_until

    def is_cold_to(self, owner: int) -> bool:
        """Whether a pod that is owned so must keep off holds: what pods were answered before the start is not
        known yet.
        """
        return owner == NO_DEMAND and self.now < self.warmup_until

    @property
    def lacking(self) -> bool:
        """Whether slots may be unplaced."""
        return bool(self.failed or self.capped or self.turns or self.holds.wanting)

    @property
    def limits(self) -> list[int]:
        """The most that all holds may amount to together, by column: a share of what ready nodes offer."""
        if self._limits is None or len(self._limits) != len(self.table.resources):
            capacity: list[int] = self.table.allocatable[:, self.table.usable].sum(axis=1).tolist()
            self._limits = [amount * self.cap_percent // 100 for amount in capacity]
        return self._limits

    # Nodes.

    def set_node(self, node: Node) -> None:
        """Take a node as it is now."""
        row = self.table.index.get(node.name)
        if row is not None and self.table.nodes[row] == node:
            return
        before = self.table.nodes[row] if row is not None else None
        judged = self.demands.changes
        row = self.table.set_node(node)
        if self.demands.judge_node(row, node, before):
            self.regraded.add(row)
        if self.demands.changes != judged:
            self.uneven |= dict.fromkeys(self.demands.spread)
        self.failed.clear()
        self.daemons.judge_row(row)
        self.holds.touch(row)
        self.lost.hear(row, node.ready)
        self.claims.recount(row)
        self.pools.put(row, node, [(d, int(self.holds.count[d, row])) for d in self.holds.on(row)])
        self._limits, self.holds.heavier, self.reoffered = None, True, True
        self.changed(grown=True)

    def remove_node(self, name: str) -> None:
        """Forget a node, the holds on it and the charges."""
        row = self.table.index.get(name)
        if row is None:
            return
        for demand in self.holds.on(row):
            self.holds.add(demand, row, -int(self.holds.count[demand, row]))
        self.flights.drop_row(row)
        self.daemons.drop_row(row)
        self.demands.judge_node(row, None, None)
        self.uneven |= dict.fromkeys(self.demands.spread)
        self.pools.put(row, None, ())
        self.table.remove_node(name)
        self.lost.hear(row, True)
        self.claims.recount(row)
        self.holds.touch(row)
        self._limits, self.holds.heavier, self.reoffered = None, True, True
        self.changed(grown=True)

    def short_for_long(self) -> list[int]:
        """Rows where more was charged than is free so long ago that it should be over; they are forgotten."""
        late = [row for row, since in self.short.items() if self.now - since >= SHORT_SECONDS]
        for row in late:
            del self.short[row]
        return late

    def lapse(self) -> None:
        """Notice what has changed only because time has passed, and go on with what is done in steps."""
        sharing.reckon(self)
        if self.short and self.now - next(iter(self.short.values())) >= SHORT_SECONDS:
            self.changed()
        if self.ownership.step():
            self.changed()
        if self.daemons.lapse(self.now):
            self.changed(grown=True)
        if self.nominations.lapse(self.now, self._victims_end):
            self.changed()
        for row in self.lost.lapse(self.now):
            if self.claims.recount(row):
                self.changed()

    def set_enforcement(self, name: str, said: Enforcement | None) -> None:
        """Take what a node says it enforces; None: nothing any more."""
        if self.demands.hear(name, said):
            self.regraded.add(self.table.index[name])
            self.failed.clear()
            self.changed(grown=True)

    # Pods.

    def set_pod(self, pod: Pod) -> None:
        """Take a pod as it is now.

        The last word wins, except that a claim outlives a watch that lags (T06).
        """
        self._remember(pod)
        if pod.terminal:
            self._forget_claims(pod.uid)
        elif pod.node_name:
            self._seen(pod)
        else:
            self._pending(pod)
        self.follow(pod.uid)

    def settled(self, pod: Pod) -> bool:
        """True when a pod runs as it is known already, and nothing waits to hear that: a heartbeat.

        A pod that has ended may be charged by a filter call that was answered too late.
        """
        if not pod.node_name or self.pods.get(pod.uid) != pod or pod.uid in self.flights.by_uid:
            return False
        claim = self.claims.by_uid.get(pod.uid)
        return claim is None if pod.terminal else claim is not None and claim.state is ClaimState.SEEN

    def ask(self, pod: Pod) -> None:
        """Filter is asked about a pod: keep it until the watch shows it, which bind need not wait for."""
        if pod.uid in self.pods or pod.uid in self.gone:
            return
        self.asked[pod.uid] = pod
        self.follow(pod.uid)
        if len(self.asked) > _MOST_ASKED:
            forgotten = next(iter(self.asked))
            del self.asked[forgotten]
            self.follow(forgotten)

    def _remember(self, pod: Pod) -> None:
        before = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        self.asked.pop(pod.uid, None)
        self.gone.pop(pod.uid, None)
        if pod.node_name or pod.terminal:
            self.pending.pop(pod.uid, None)
            self.rooms.forget(pod.uid)
        else:
            self.pending[pod.uid] = pod
        if before is None or _kept(before) != _kept(pod):
            if before is not None:
                self.ownership.forget(before)
            self.ownership.remember(pod)

    def _seen(self, pod: Pod) -> None:
        self.settle_flight(pod.uid)
        self.promised.discard(pod.uid)
        self.put_claim(pod, pod.node_name, ClaimState.SEEN, self.now)

    def _pending(self, pod: Pod) -> None:
        if pod.deleting:
            self.settle_flight(pod.uid)
        claim = self.claims.by_uid.get(pod.uid)
        if claim is not None:
            if claim.state is not ClaimState.SEEN and claim.pod.requests != pod.requests:  # resized meanwhile
                as_bound = replace(pod, slot=claim.pod.slot, reserved_by=claim.pod.reserved_by)
                self.put_claim(as_bound, self.table.names[claim.row], claim.state, claim.since)
            return
        if pod.nominated_node_name and not pod.deleting:
            if self.nominations.put(self.counted(pod), pod.nominated_node_name):
                self.changed()
                self._narrow(pod)
                self.offers.nominated(pod)
        elif pod.uid in self.nominations.refused and not pod.deleting:
            self.nominations.keep(self.counted(pod))
        elif self.rooms.evicts(pod.uid, self.now) and not pod.deleting:
            self.nominations.foresee_again(self.counted(pod), self.now)  # the leader will say it again
        elif self.nominations.is_foreseen(pod.uid) and not pod.deleting:
            pass  # this was written before the nomination
        elif self.nominations.drop(pod.uid):
            self.offers.drop(pod.uid)
            self.changed()

    def _victims_end(self, uid: str) -> bool:
        offer, claims = self.offers.by_uid.get(uid), self.claims.by_uid
        there = offer.victims.get(offer.node, ()) if offer is not None else ()
        return any(victim in claims and claims[victim].pod.deleting for victim in there)

    def counts(self, pod: Pod, owner: int) -> Resources:
        """What a pod that is to be placed would count for: at its floor only as long as there is a slot."""
        seated = self.demands.owed(owner) and self.has_seat(owner)
        return self.demands.counts(pod, owner) if seated else pod.requests

    def has_seat(self, owner: int) -> bool:
        """Whether one more pod of a demand, which is there, would fill a slot."""
        return self.seated(owner) < self.demands[owner].seats

    def seated(self, owner: int) -> int:
        """How many pods have, or had, slots of a demand, which is there: those that are being deleted leave
        theirs to the next, but where a slot is used up by its first pod.
        """
        used_by = self.demands[owner].used_by
        if used_by is None:
            return self.holds.filled_total[owner] - self.claims.ending[owner]
        there = self.claims.of.get(owner, {}).keys()
        return len(there) + len(used_by.difference(there))

    def counted(self, pod: Pod) -> Pod:
        """The pod as one that requests what it would count for."""
        requests = self.counts(pod, self.demands.owned_by(pod))
        return pod if requests is pod.requests else replace(pod, requests=requests)

    def _narrow(self, pod: Pod) -> None:
        row = self.table.rows.get(pod.nominated_node_name)
        if row is not None:
            self.flights.narrow(pod.uid, row)

    def put_claim(self, pod: Pod, node: str, state: ClaimState, now: float) -> None:
        """Claim a node's capacity for a pod; it waits for none any more."""
        before = self.claims.by_uid.get(pod.uid)
        row, owned = (before.row, before.owner) if before is not None else (-1, NO_DEMAND)
        changed = self.claims.put(pod, node, state, now)
        self.follow(pod.uid)
        sharing.use_up(self, pod.uid)
        if not changed:
            if self.headcount.touched:
                self.changed()
            return
        if row >= 0:
            self.daemons.cover(pod, row, -1)
        claim = self.claims.by_uid[pod.uid]
        self._anchor_anew(owned)
        self._anchor_anew(claim.owner)
        self.daemons.cover(pod, claim.row, 1)
        if pod.controller is not None and pod.controller.kind == "DaemonSet":
            self.landed.add(claim.row)
        if row != claim.row and claim.owner != NO_DEMAND and not claim.away:
            self._release_own(claim.owner, claim.row)
        self.nominations.drop(pod.uid)
        self.offers.drop(pod.uid)
        self.changed()

    def _release_own(self, owner: int, row: int) -> None:
        """The owner fills a slot: a hold there goes, unless an unplaced slot is filled and both fit."""
        if self.demands.reservations.shares(owner):
            return
        holds, table, dims = self.holds, self.table, self.demands.dims
        if not holds.movable(owner, row):
            return
        held = holds.all[dims, row]
        short = ((held > 0) & (held > table.free[dims, row] - table.charged[dims, row])).any()
        if holds.missing(owner) < 0 or short:
            holds.add(owner, row, -1)

    def drop_claim(self, uid: str) -> None:
        """Give a claim's capacity back."""
        claim = self.claims.by_uid.get(uid)
        if claim is None:
            return
        self._anchor_anew(claim.owner)
        self.promised.discard(uid)
        self.claims.drop(uid)
        self.follow(uid)
        self.daemons.cover(claim.pod, claim.row, -1)
        self.changed()

    def _anchor_anew(self, owner: int) -> None:
        """Other pods of the demand lack a slot now: its holds may be where the volumes of none are."""
        if self.demands.there(owner) and self.demands[owner].anchors:
            self.uneven[owner] = None

    def settle_flight(self, uid: str) -> None:
        """Forget a pod's in-flight charge."""
        if self.flights.drop(uid) is not None:
            self.changed()

    def _forget_claims(self, uid: str) -> None:
        self.settle_flight(uid)
        if uid in self.claims.by_uid:
            self._foresee(uid, self.table.names[self.claims.by_uid[uid].row])
        self.drop_claim(uid)
        self.offers.drop(uid)
        if self.nominations.drop(uid):
            self.changed()

    def _foresee(self, victim: str, node: str) -> None:
        """A victim is gone, and where its preemptor is nominated is not shown yet: most likely there."""
        for uid in self.offers.awaiting(victim, node, self.now):
            if uid in self.pending and not self._has_its_hole(self.pending[uid], node):
                self.nominations.foresee(self.counted(self.pending[uid]), node, self.now)

    def _has_its_hole(self, pod: Pod, node: str) -> bool:
        """Whether its victims are gone, or on their way out, where it was nominated before: to be nominated
        there once more changes nothing that a watch could show.
        """
        shown = pod.nominated_node_name
        if shown in ("", node):
            return False
        victims = self.offers.by_uid[pod.uid].victims.get(shown)
        claims = (self.claims.by_uid.get(victim) for victim in victims or ())
        there = [claim for claim in claims if claim is not None and self.table.names[claim.row] == shown]
        return victims is not None and all(claim.pod.deleting for claim in there)

    def remove_pod(self, uid: str) -> None:
        """The pod is gone; a scheduler whose watch lags may ask for it yet."""
        self.gone[uid] = None
        if len(self.gone) > _MOST_GONE:
            del self.gone[next(iter(self.gone))]
        pod = self.pods.pop(uid, None)
        self.asked.pop(uid, None)
        self.pending.pop(uid, None)
        self.rooms.forget(uid)
        if pod is not None:
            self.ownership.forget(pod)
        self._forget_claims(uid)
        self.follow(uid)

    # Demands and DaemonSets.

    def set_demand(self, demand: Demand) -> None:
        """Take a demand as it is now; what did not change of it costs nothing."""
        number = self._number_of(demand)
        if demand.reserved is not None and demand.reserved.uid in self.demands.reservations.used_up:
            demand = replace(demand, desired=0)
        if number is not None and demand.reserved is not None and demand.reserved.shared is not None:
            demand = sharing.remaining(self, demand, number)
        before = self.demands[number] if number is not None else None
        if before == demand:
            return
        weighs = before is None or (before.vector, before.priority) != (demand.vector, demand.priority)
        if number is not None and weighs:
            self.holds.weigh(number, -1)
        number = self.demands.add(demand)
        self._watch(demand, before)
        self.holds.resize()
        self.holds.follow(number)
        self.holds.follow_levels()
        if weighs:
            self.holds.weigh(number, 1)
            self.table.touched.update(row for row, _ in self.holds.of(number))
        if before is not None and before.vector != demand.vector:
            self.flights.bereave(number)
        if before is None or _claim_to_pods(before) != _claim_to_pods(demand):
            self.ownership.begin(demand.namespace)
            self.ownership.step()
            self._nominate_again()
        if demand.reserved is not None and (before is None or before.reserved != demand.reserved):
            sharing.find_users(self, demand.reserved.uid)
        if before is not None and (before.where, before.needs) != (demand.where, demand.needs):
            self.rejudged.add(number)
        self.failed.pop(number, None)
        self.holds.wanting.add(number)
        self.claims.recounted.add(number)
        self.holds.fuller.setdefault(number, set()).update(row for row, _ in self.holds.of(number))
        same = before is not None and replace(before, desired=demand.desired, withheld=demand.withheld)
        self.changed(grown=same != demand)

    def _number_of(self, demand: Demand) -> int | None:
        """The one that it has; none where its pods count for another thing from now on: it is made anew."""
        number = self.demands.numbers.get(demand.key)
        if number is None or _way_of_use(self.demands[number]) == _way_of_use(demand):
            return number
        self.remove_demand(demand.key)
        return None

    def set_kept(self, key: str, nodes: Iterable[str]) -> None:
        """Somebody keeps room for one more slot of a demand on these nodes."""
        number, there = self.demands.numbers.get(key), frozenset(nodes)
        if number is not None and there:
            self.kept[number] = there
        elif number is not None:
            self.kept.pop(number, None)

    def _watch(self, demand: Demand, before: Demand | None) -> None:
        """Count the pods that its constraints count, and no more those of the ones before."""
        stated = before.spread if before is not None else ()
        if (before.anchors if before is not None else ()) != demand.anchors:
            self.uneven[self.demands.numbers[demand.key]] = None
        if stated == demand.spread:
            return
        for spread in demand.spread:
            known = self.ownership.kinds.get(demand.namespace, {}).values()
            uids = (uid for same in known for uid in same)
            claimed = self.claims.of_namespace(uids, demand.namespace)
            self.headcount.watch(demand.namespace, spread, claimed)
        for spread in stated:
            self.headcount.forget(demand.namespace, spread)
        self.uneven[self.demands.numbers[demand.key]] = None

    def remove_demand(self, key: str) -> None:
        """Release all holds of a demand; its owners become the next demand's, or ordinary pods."""
        number = self.demands.numbers.get(key)
        if number is None:
            return
        namespace, reserved = self.demands[number].namespace, self.demands[number].reserved
        if reserved is not None:
            self.demands.reservations.used_up.pop(reserved.uid, None)
            self.flights.part(number)
        for spread in self.demands[number].spread:
            self.headcount.forget(namespace, spread)
        self.uneven.pop(number, None)
        self.flights.bereave(number)
        self.holds.forget(number)
        if self.quotas is not None:
            self.quotas.hold(key, ("", ""), {})
        self.demands.remove(key)
        for known in (self.failed, self.capped, self.turns, self.crowded, self.kept):
            known.pop(number, None)
        self.holds.follow_levels()
        self.ownership.begin(namespace, removed=number)
        self.ownership.step()
        self._nominate_again()
        self.changed(grown=True)

    def _nominate_again(self) -> None:
        """Pods that wait may have another policy by now, whose slots owe them more or less."""
        for uid, (row, before) in [*self.nominations.by_uid.items()]:
            pod = self.counted(self.pending.get(uid, before))
            if pod.requests != before.requests:
                self.nominations.put(pod, self.table.names[row])

    def set_daemon_set(self, daemon_set: DaemonSet) -> None:
        """Expect a DaemonSet's pod on each node that admits it."""
        if self.daemons.set(daemon_set):
            self.changed(grown=True)

    def remove_daemon_set(self, uid: str) -> None:
        """Expect it no longer."""
        if self.daemons.remove(uid):
            self.changed(grown=True)
