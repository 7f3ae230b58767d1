"""Gives owners the places of placeholders, or of predecessors that are ending, so that nobody is evicted.

The owner is nominated, the placeholder deleted, the gate lifted: in this order each watch shows it, so nobody
else fits in between. One owner a node at a time: kube-scheduler counts a nominated owner beside the
placeholder that is not deleted yet, so another one that it tries there meanwhile would not fit, and preempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Final

from adapters.api import APIError, ClusterAPI, Conflict, NotFound, Unreachable
from adapters.loops import Changes
from extender.giving import Giving, Stays, Taken, without_a_place
from extender.metrics import Metrics
from extender.repeated import refused
from extender.standing import Gated, Standing
from extender.view import View
from ledger.eligibility import admits_node
from ledger.ledger import Ledger
from qos import keys
from qos.cluster.objects import NodePredicate, Pod
from qos.cluster.placeholders import Placeholder
from qos.cluster.refusals import Refusals

log = logging.getLogger(__name__)

_TRIES: Final = 4
"""Nodes that the ledger may choose in vain for an owner at a time: it counts less than kube-scheduler."""
AT_ONCE: Final = 16
BEGUN: Final = 2 * AT_ONCE
"""No owner has a place that cannot be handed to it soon: its node would be closed to others all the time."""
BIND_SECONDS: Final = 10.0
"""How long an owner may take from the hand-over to its node before its slot is held anew."""
UNGATED_SECONDS: Final = 12.0
"""Likewise without a gate: kube-scheduler may have tried it just now, and again in 10 s at worst."""
PATIENCE_SECONDS: Final = 10.0
"""How long an owner stays gated while places may come for it, and other owners of its policy get none."""
LONGEST_SECONDS: Final = 60.0
CLOSED_SECONDS: Final = 0.2
"""How long after a hand-over no placeholder is made on the node: the next one may be about to begin."""
UNPLACED_SECONDS: Final = 1.0
"""How long it stays gated when its slot has no place: a predecessor may just have gone."""


@dataclass(slots=True)
class _Place:
    """What an owner is given: a node, and the placeholder there, or the predecessor (UID) that is ending."""

    policy: str
    node: str
    given: Placeholder | None = None
    predecessor: str = ""


@dataclass(frozen=True, slots=True)
class _Handed:
    """An owner that kube-scheduler is to bind to `node`."""

    node: str
    since: float
    gated: bool


class HandOver:
    """Serves owners that are gated, or that kube-scheduler refused; 16 at once, and 16 that get no place.

    Thousands of these must not come before the others.

    `overcommitted`: nodes by policy where placeholders stay though their slots are lost: no owner fits there.
    `changes` tells of gated pods and of the account; `view`: of nodes. `clock`: seconds, monotonic.
    """

    def __init__(
        self,
        api: ClusterAPI,
        ledger: Ledger,
        standing: Standing,
        overcommitted: Mapping[str, frozenset[str]],
        metrics: Metrics,
        changes: Changes,
        view: View,
        *,
        namespace: str,
        clock: Callable[[], float],
    ) -> None:
        self._giving = Giving(api, standing, ledger.holds_on, namespace)
        self._ledger = ledger
        self._standing = standing
        self._overcommitted = overcommitted
        self._metrics = metrics
        self._changes = changes
        self._view = view
        self._clock = clock
        self._places, self._lifts = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(AT_ONCE)
        self._refused: dict[str, Gated] = {}
        self._under_way: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._lifting: dict[str, asyncio.Task[None]] = {}
        self._handed: dict[str, _Handed] = {}
        self._heirs: dict[str, _Place] = {}
        self._seen: dict[str, float] = {}
        self._progress: dict[str, float] = {}
        self._closed: dict[str, float] = {}
        self._in_vain = Refusals()
        """By policy and requests: kube-scheduler did not bind an owner where it had its place. By UID: one of
        its calls was refused.
        """
        self._unlifted = Refusals()
        """By UID: the API server refuses to lift its gate. It may get a place nevertheless."""
        self._crowded = float("-inf")

    def add(self, pod: Pod) -> bool:
        """An owner that kube-scheduler refused; False when its policy has nothing to hand over."""
        if pod.uid in self._handed or pod.uid in self._under_way:
            return True
        if pod.nominated_node_name:
            return False  # kube-scheduler makes room for it
        policy = self._ledger.policy_of(pod)
        where = self._standing.places.get(pod.uid, NodePredicate())
        if not (
            policy and any(one.bound and self._admits(where, one.node) for one in self._standing.of(policy))
        ):
            return False
        self._refused[pod.uid] = Gated(pod, (), where)
        self._changes.note()
        return True

    async def run_once(self) -> None:
        """Wait for a change, begin what can be begun, and release what came to nothing."""
        await self._changes.wait()
        self._look_who_is_bound()
        self._forget()
        line, idle = Counter[str](), dict[str, list[Placeholder]]()
        for uid, one in [*self._standing.gated.items(), *self._refused.items()]:
            if len(self._under_way) >= BEGUN:
                self._crowded = self._clock()
                break
            if uid in self._under_way or uid in self._lifting or uid in self._handed:
                continue
            if keys.GANG_GATE in one.gates:  # its gang gives it its place, and waits for this gate
                self._begin_lift(one)
            elif set(one.gates) <= {keys.HAND_OVER_GATE}:
                self._serve(one, line, idle)
            await asyncio.sleep(0)

    async def drain(self) -> None:
        """Finish what is under way."""
        places = [task for _, task in self._under_way.values()]
        await asyncio.gather(*places, *self._lifting.values(), return_exceptions=True)

    def _look_who_is_bound(self) -> None:
        """Who did not come to a node: its slot is held anew, or it is gone."""
        now = self._clock()
        for uid, one in [*self._handed.items()]:
            pod = self._ledger.known(uid)
            if pod is None or pod.node_name:
                self._closed[one.node] = now
                del self._handed[uid]
                continue
            # For one that it refuses and nominates kube-scheduler evicts: whom kubelet has refused, perhaps.
            refused = one.gated and pod.unschedulable_since and pod.nominated_node_name != one.node
            if refused or one.since + (BIND_SECONDS if one.gated else UNGATED_SECONDS) <= now:
                del self._handed[uid]
                self._ledger.release(uid)
                self._in_vain.note(_kind(self._ledger.policy_of(pod), pod), "in vain", now)

    def _forget(self) -> None:
        self._in_vain.forget(self._clock())
        self._unlifted.forget(self._clock())
        waiting = self._standing.gated.keys() | self._refused.keys()
        self._seen = {uid: since for uid, since in self._seen.items() if uid in waiting}
        self._heirs = {uid: place for uid, place in self._heirs.items() if self._inherits(uid, place)}
        for uid in [*self._refused]:
            pod = self._ledger.known(uid)
            if pod is None or pod.node_name or uid in self._standing.gated:
                del self._refused[uid]

    def _serve(self, one: Gated, line: Counter[str], idle: dict[str, list[Placeholder]]) -> None:
        """`line`: owners before it that wait for a place, by policy; `idle`: placeholders on nodes where no
        other owner is on its way.
        """
        uid, policy = one.pod.uid, self._ledger.policy_of(one.pod)
        if not one.gates and self._ungated_under_way():
            return
        busy = self.busy() - {self._heirs[uid].node if uid in self._heirs else ""}
        if policy not in idle:
            idle[policy] = [held for held in self._standing.of(policy) if held.keeps] if policy else []
        shut = busy.union(*self._overcommitted.values())
        idle[policy] = [held for held in idle[policy] if held.node not in shut]
        # What one of its kind could not use is not taken from the policy for each of them at once.
        now = self._clock()
        pauses = any(self._in_vain.bars(key, now) for key in (uid, _kind(policy, one.pod)))
        useful = [] if pauses else idle[policy]
        if (place := self._choose(one, policy, useful) or self._inherited(one.pod)) is not None:
            self._begin(one, self._carry_out(one, place), place.node)
        elif one.gates:
            waits = self._waits(one, line, busy, sum(held.bound for held in useful))
            if not (waits or uid in self._under_way):  # it has just become an heir
                self._begin_lift(one)
        else:
            self._refused.pop(uid, None)  # it is asked about again

    def _ungated_under_way(self) -> bool:
        """An owner without a gate is tried whenever a placeholder goes, and an attempt that fails takes its
        nomination back: so the next one waits for it.
        """
        return any(uid in self._refused for uid in self._under_way) or any(
            not one.gated for one in self._handed.values()
        )

    def closed(self) -> set[str]:
        """Nodes where a placeholder that waits might take what an owner is to get."""
        due = self._clock() - CLOSED_SECONDS
        self._closed = {node: since for node, since in self._closed.items() if since > due}
        return self.busy() | self._closed.keys()

    def busy(self) -> set[str]:
        """Nodes to which an owner is on its way."""
        handed = {one.node for one in self._handed.values()}
        heirs = {place.node for place in self._heirs.values()}
        return handed | heirs | {node for node, _ in self._under_way.values()}

    def _choose(self, one: Gated, policy: str, idle: list[Placeholder]) -> _Place | None:
        """The placeholder whose place the owner gets, by the ledger, which claims it for the owner.

        One that stands by may not be bound yet. Where others stand the ledger would move their holds.
        """
        there = [held for held in idle if self._admits(one.where, held.node)]
        there = [held for held in there if held.bound or self._has_room(one.pod, held.node, held)]
        by_node = {held.node: held for held in sorted(there, key=lambda held: held.bound)}
        node = self._claim(one.pod, by_node)
        if not node:
            return None
        self._standing.give(by_node[node])
        return _Place(policy, node, by_node[node])

    def _has_room(self, pod: Pod, node: str, held: Placeholder | None) -> bool:
        """Whether the owner fits there once what is `held` goes, by all that kube-scheduler counts."""
        holds = self._ledger.holds_on(node)
        beside = self._standing.counted_on(node, pod.priority, holds, held.uid if held is not None else "")
        return self._ledger.fits_beside(pod, node, beside)

    def _admits(self, where: NodePredicate, name: str) -> bool:
        """Whether the owner may run there: a place that it cannot take is lost to whoever waits."""
        node = self._view.nodes.get(name)
        return node is not None and admits_node(where, node)

    def _inherits(self, uid: str, place: _Place) -> bool:
        """Whether it may still: its node may be closed by now."""
        one = self._standing.gated.get(uid)
        return one is not None and (uid in self._under_way or self._admits(one.where, place.node))

    def _inherited(self, pod: Pod) -> _Place | None:
        """The place it was nominated to, once the predecessor is gone."""
        place = self._heirs.get(pod.uid)
        if place is None or self._is_there(place.predecessor):
            return None
        return place if self._claim(pod, {place.node: None}) else None

    def _is_there(self, uid: str) -> bool:
        pod = self._ledger.known(uid)
        return pod is not None and not pod.terminal

    def _claim(self, pod: Pod, places: Mapping[str, Placeholder | None]) -> str:
        """The node that the ledger has claimed for the owner: one with room for it once what is held goes.

        places: by node, what is held for it there. Others may still stand there whose holds have moved.
        """
        left = [*places]
        for _ in range(_TRIES):
            now = self._clock()
            found = self._ledger.filter(pod, left, now).nodes if left else []
            if not found or self._ledger.bind(pod, found[0], now).refusal:
                return ""
            if self._has_room(pod, found[0], places[found[0]]):
                return found[0]
            self._ledger.release(pod.uid)
            left.remove(found[0])
        return ""

    def _waits(self, one: Gated, line: Counter[str], busy: set[str], useless: int) -> bool:
        """Whether a place may still come for it; makes it the heir of a predecessor that is ending.

        `useless`: placeholders there that the ledger did not give it.
        """
        uid, policy, now = one.pod.uid, self._ledger.policy_of(one.pod), self._clock()
        since = self._seen.setdefault(uid, now)
        # While the API server is slow, nobody has got one because others are on their way.
        late = now - max(since, self._progress.get(policy, since), self._crowded) >= PATIENCE_SECONDS
        openings = self._ledger.openings(policy)
        if late or now - since >= LONGEST_SECONDS or openings is None:
            return False
        place = self._heirs.get(uid)
        if place is None:
            taken = {place.predecessor for place in self._heirs.values()}
            for predecessor, node in openings.ending:
                if predecessor not in taken and node not in busy and self._admits(one.where, node):
                    self._heirs[uid] = _Place(policy, node, predecessor=predecessor)
                    self._begin(one, self._nominate(one, node), node)
                    line[policy] += 1
                    return True
        before, line[policy] = line[policy], line[policy] + 1
        # Where the ledger refuses all of them, it does not fit, or they are about to move.
        held, unsure = (openings.held, 0) if useless < openings.held else (0, openings.held)
        coming = held + len(openings.ending)
        if place is not None and not self._is_there(place.predecessor):
            coming += 1  # its slot, until the ledger has a place for it
        soon = unsure + openings.missing
        if now - since >= UNPLACED_SECONDS:  # but for those that stay until kubelet has refused others
            soon = min(
                openings.missing, self._standing.bound_among(policy, self._overcommitted.get(policy, ()))
            )
        if before < coming + soon:
            return True
        if not self._unlifted.bars(uid, now):  # else it has been said
            text = "no place for an owner pod=%s policy=%s before=%d %s"
            log.info(text, one.pod.key, policy, before, openings)
        return False

    def _begin(self, one: Gated, work: Coroutine[None, None, None], node: str) -> None:
        self._seen.setdefault(one.pod.uid, self._clock())
        self._closed[node] = self._clock()
        self._under_way[one.pod.uid] = node, asyncio.create_task(self._watched(one, work, self._places))

    def _begin_lift(self, one: Gated) -> None:
        if self._unlifted.bars(one.pod.uid, self._clock()):
            return  # others' gates must not wait behind what never succeeds
        lift = self._watched(one, self._lift(one), self._lifts)
        self._lifting[one.pod.uid] = asyncio.create_task(lift)

    async def _watched(
        self, one: Gated, work: Coroutine[None, None, None], places: asyncio.Semaphore
    ) -> None:
        try:
            async with places:
                await work
        except Exception:
            log.exception("hand-over failed pod=%s", one.pod.key)
            self._metrics.handed_over("failed")
        finally:
            self._under_way.pop(one.pod.uid, None)
            self._lifting.pop(one.pod.uid, None)
            self._changes.note()

    async def _nominate(self, one: Gated, node: str) -> None:
        """Its predecessor's place is its own from now on."""
        try:
            await self._giving.clear(node, one.pod, comes=False)
            await self._giving.nominate(one.pod, node)
        except (APIError, Unreachable) as error:
            log.warning("owner not nominated pod=%s node=%s error=%s", one.pod.key, node, error)
            self._heirs.pop(one.pod.uid, None)

    async def _lift(self, one: Gated) -> None:
        """There is no place for it: it is an ordinary pod of its priority."""
        error = await without_a_place(self._giving.lift(one, {}), one, self._standing, self._metrics)
        if error is not None and refused(error):
            self._unlifted.note(one.pod.uid, "refused", self._clock())

    async def _carry_out(self, one: Gated, place: _Place) -> None:
        outcome = "handed"
        try:
            await self._giving.nominate(one.pod, place.node)
            await self._giving.clear(place.node, one.pod, comes=True, given=place.given)
            if place.given is not None:
                await self._giving.let_go(place.given, lambda: self._is_there(one.pod.uid))
                # Meanwhile a pod may have come, so that the owner does not fit beside all of them any more.
                await self._giving.clear(place.node, one.pod, comes=True)
            if one.gates:
                await self._giving.lift(one, {keys.POLICY_ANNOTATION: place.policy})
        except Taken:
            outcome = "taken"
        except (NotFound, Conflict, Stays):
            outcome = "gone"
        except (APIError, Unreachable) as error:
            log.warning("hand-over failed pod=%s node=%s error=%s", one.pod.key, place.node, error)
            outcome = "failed"
            if refused(error):
                self._in_vain.note(one.pod.uid, "refused", self._clock())
        self._metrics.handed_over(outcome)
        self._heirs.pop(one.pod.uid, None)
        self._refused.pop(one.pod.uid, None)
        if outcome == "handed":
            self._standing.gated.pop(one.pod.uid, None)
            self._progress[place.policy] = self._clock()
            self._handed[one.pod.uid] = _Handed(place.node, self._clock(), bool(one.gates))
            return
        self._ledger.release(one.pod.uid)
        if place.given is not None:
            self._standing.take_back(place.given)


def _kind(policy: str, pod: Pod) -> str:
    return f"{policy} {sorted(pod.requests.items())}"
