"""Claims: capacity pods have taken, from the moment their bind is decided until they are gone (trap T01)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from ledger.demands import NO_DEMAND, Demands
from ledger.headcount import Headcount
from ledger.holds import Holds
from ledger.lost_nodes import LostNodes
from ledger.table import Table
from qos.cluster.objects import Pod, Resources


class ClaimState(Enum):
    """How sure a claim is."""

    BINDING = "binding"
    """Decided here; the API server has not answered."""
    BOUND = "bound"
    """The API server confirmed it; the watch has not shown it."""
    SEEN = "seen"
    """The watch shows the pod on its node."""


@dataclass(slots=True)
class Claim:
    """What one pod takes of one node; `owner` is the demand whose slot it fills, or one that was removed.

    `requests`: what it counts for, which can be more than the pod requests (Demands.counts). `away`: it fills
    none, because its node is lost, or gone, or not ready and the pod is on its way out. `misfit`: the demand
    whose slot it would fill, did it not ask for more.
    """

    pod: Pod
    row: int
    requests: Resources
    state: ClaimState
    since: float
    owner: int = NO_DEMAND
    away: bool = False
    misfit: int = NO_DEMAND


class Claims:
    """Claims by pod UID, kept in step with the table's free capacity and the holds' filled slots.

    `of`: those of each demand's owners, as they came; `misfits`: of pods that a demand selects, and that ask
    for more than its slot. `ending`: how many of a demand's filled slots are those
    of pods that are being deleted. `recounted`: demands whose owners, or what is said of them, may have
    changed since somebody looked and took them out.
    """

    def __init__(
        self, table: Table, demands: Demands, holds: Holds, lost: LostNodes, headcount: Headcount
    ) -> None:
        self._table = table
        self._demands = demands
        self._holds = holds
        self._lost = lost
        self._headcount = headcount
        self._owners: dict[int, dict[str, Claim]] = {}
        self.of: dict[int, dict[str, Claim]] = {}
        self.misfits: dict[int, dict[str, Claim]] = {}
        self.ending: Counter[int] = Counter()
        self.recounted: set[int] = set()
        self.by_uid: dict[str, Claim] = {}
        self.unseen: dict[str, Claim] = {}
        self._deleting: dict[int, dict[str, None]] = {}

    def put(self, pod: Pod, node: str, state: ClaimState, now: float) -> bool:
        """Claim, or correct a claim; True when anything changed."""
        claim = self.by_uid.get(pod.uid)
        owner = self._demands.owned_by(pod)
        requests = self._demands.counts(pod, owner)
        if claim is not None and self._same(claim, requests, node, owner):
            if (claim.pod.slot, claim.pod.deleting) != (pod.slot, pod.deleting):
                self._recounts(owner)
            self._count_ending(claim, -1)
            if (claim.pod.deleting, claim.pod.labels) != (pod.deleting, pod.labels):
                self._headcount.count(claim.pod, claim.row, -1)
                self._headcount.count(pod, claim.row, 1)
            self._note_deleting(claim, there=False)
            claim.pod = pod
            self._note_deleting(claim, there=True)
            self._count_ending(claim, 1)
            self._enter(claim, state)
            self._note_misfit(claim)
            return self._recount(claim)
        if claim is not None:
            self._subtract(claim)
        row = self._table.row(node)
        since = now
        if claim is not None and claim.row == row and claim.state is ClaimState.SEEN:
            since = claim.since  # it was there before, whatever it asks for now
        fresh = Claim(pod, row, requests, state, since)
        self._table.claim(row, requests, 1)
        self._headcount.count(pod, row, 1)
        self._own(fresh, owner)
        self._note_misfit(fresh)
        self.by_uid[pod.uid] = fresh
        self._note_deleting(fresh, there=True)
        self._enter(fresh, state)
        if claim is not None and claim.row != row:
            self._table.recycle(claim.row)
        return True

    def drop(self, uid: str) -> Claim | None:
        """Give the capacity back; returns what there was."""
        claim = self.by_uid.pop(uid, None)
        if claim is None:
            return None
        self.unseen.pop(uid, None)
        self._subtract(claim)
        self._table.recycle(claim.row)
        return claim

    def node_in_doubt(self, uid: str) -> str:
        """The node where a Binding of the pod, of unknown outcome, may still land; "" for none (T04)."""
        claim = self.by_uid.get(uid)
        if claim is None or claim.state is not ClaimState.BINDING:
            return ""
        return self._table.names[claim.row]

    def own_again(self, uid: str) -> None:
        """Find the owner's demand anew, after demands changed."""
        claim = self.by_uid.get(uid)
        if claim is not None:
            self._transfer(claim, self._demands.owned_by(claim.pod))

    def own(self, uids: Iterable[str], owner: int | None) -> int:
        """Claims of seen pods, all of whom are this demand's now; returns how many have changed.

        owner None: whose they are depends on what each requests.
        """
        owes, changed = owner is None or bool(self._demands.owed(owner)), 0
        for uid in uids:
            claim = self.by_uid.get(uid)
            if claim is None or claim.state is not ClaimState.SEEN:
                continue
            if claim.pod.reserved_by:
                changed += self._transfer(claim, self._demands.owned_by(claim.pod))
                continue
            if claim.owner != owner or owes or claim.requests is not claim.pod.requests:
                whose = self._demands.owned_by(claim.pod) if owner is None else owner
                changed += self._transfer(claim, whose)
            elif claim.misfit != NO_DEMAND:
                self._note_misfit(claim)
        return changed

    def _transfer(self, claim: Claim, owner: int) -> bool:
        """Give the claim to this demand, and count it for what that one owes; True when anything changed."""
        requests, moved = self._demands.counts(claim.pod, owner), claim.owner != owner
        if moved:
            self._own(claim, owner)
        self._note_misfit(claim)
        if requests == claim.requests:
            return moved
        self._recounts(claim.owner)
        self._table.claim(claim.row, claim.requests, -1)
        claim.requests = requests
        self._table.claim(claim.row, requests, 1)
        return True

    def recount(self, row: int) -> bool:
        """The node came, went or changed: count its owners anew; True when that changed anything."""
        changed = [self._recount(claim) for claim in self._owners.get(row, {}).values()]
        return any(changed)

    def suspend(self, uid: str, sign: int) -> None:
        """Leave a claim out of account (-1), or count it again (1), while its own pod is being judged."""
        claim = self.by_uid.get(uid)
        if claim is not None:
            self._table.claim(claim.row, claim.requests, sign)

    def _same(self, claim: Claim, requests: Resources, node: str, owner: int) -> bool:
        return self._table.names[claim.row] == node and claim.requests == requests and claim.owner == owner

    def _subtract(self, claim: Claim) -> None:
        self._note_deleting(claim, there=False)
        self._table.claim(claim.row, claim.requests, -1)
        self._headcount.count(claim.pod, claim.row, -1)
        self._own(claim, NO_DEMAND)
        self._set_misfit(claim, NO_DEMAND)

    def _own(self, claim: Claim, owner: int) -> None:
        """Fill a slot of another demand than before, or of none."""
        if claim.owner != NO_DEMAND:
            there = self._owners[claim.row]
            del there[claim.pod.uid]
            if not there:
                del self._owners[claim.row]
            self._leave(claim)
            self._count_ending(claim, -1)
            if not claim.away:
                self._fill(claim, -1)
        claim.owner, claim.away = owner, self._is_away(claim)
        if owner != NO_DEMAND:
            self._owners.setdefault(claim.row, {})[claim.pod.uid] = claim
            self.of.setdefault(owner, {})[claim.pod.uid] = claim
            self._recounts(owner)
            self._count_ending(claim, 1)
            if not claim.away:
                self._fill(claim, 1)

    def _leave(self, claim: Claim) -> None:
        there = self.of[claim.owner]
        del there[claim.pod.uid]
        if not there:
            del self.of[claim.owner]
        self._recounts(claim.owner)

    def _note_misfit(self, claim: Claim) -> None:
        """What is said of a pod that asks for more than a slot may have to be corrected."""
        if self._demands.restricted or claim.misfit != NO_DEMAND:
            self._set_misfit(claim, self._demands.misfit_of(claim.pod))
            self._recounts(claim.misfit)

    def _set_misfit(self, claim: Claim, demand: int) -> None:
        if claim.misfit == demand:
            return
        if claim.misfit != NO_DEMAND:
            there = self.misfits[claim.misfit]
            del there[claim.pod.uid]
            if not there:
                del self.misfits[claim.misfit]
        claim.misfit = demand
        if demand != NO_DEMAND:
            self.misfits.setdefault(demand, {})[claim.pod.uid] = claim

    def ending_on(self, row: int) -> list[str]:
        """UIDs of the pods there that are being deleted."""
        return [*self._deleting.get(row, ())]

    def _note_deleting(self, claim: Claim, *, there: bool) -> None:
        if not claim.pod.deleting:
            return
        if there:
            self._deleting.setdefault(claim.row, {})[claim.pod.uid] = None
        elif uids := self._deleting.get(claim.row):
            uids.pop(claim.pod.uid, None)
            if not uids:
                del self._deleting[claim.row]

    def _recounts(self, owner: int) -> None:
        if owner != NO_DEMAND:
            self.recounted.add(owner)
            if self._demands.reservations.shares(owner):
                self._demands.reservations.unreckoned.add(owner)

    def of_namespace(self, uids: Iterable[str], namespace: str) -> Iterator[tuple[Pod, int]]:
        """Claims of these seen pods of a namespace, and of those not seen yet: each pod, and its row."""
        for uid in uids:
            claim = self.by_uid.get(uid)
            if claim is not None and uid not in self.unseen:
                yield claim.pod, claim.row
        for claim in self.unseen.values():
            if claim.pod.namespace == namespace:
                yield claim.pod, claim.row

    def _count_ending(self, claim: Claim, sign: int) -> None:
        if claim.owner != NO_DEMAND and claim.pod.deleting and not claim.away:
            self.ending[claim.owner] += sign

    def _fill(self, claim: Claim, count: int) -> None:
        """A removed demand's slots are counted no more."""
        if self._demands.there(claim.owner) and not self._demands.reservations.shares(claim.owner):
            self._holds.fill(claim.owner, claim.row, count)

    def _is_away(self, claim: Claim) -> bool:
        row, table = claim.row, self._table
        unready = not table.usable[row]
        return bool(row in self._lost.rows or not table.present[row] or (unready and claim.pod.deleting))

    def _recount(self, claim: Claim) -> bool:
        if claim.owner == NO_DEMAND or claim.away == self._is_away(claim):
            return False
        self._count_ending(claim, -1)
        claim.away = not claim.away
        self._count_ending(claim, 1)
        self._recounts(claim.owner)
        self._fill(claim, -1 if claim.away else 1)
        return True

    def _enter(self, claim: Claim, state: ClaimState) -> None:
        if claim.state is not ClaimState.SEEN:
            claim.state = state
        if claim.state is ClaimState.SEEN:
            self.unseen.pop(claim.pod.uid, None)
        else:
            self.unseen[claim.pod.uid] = claim
