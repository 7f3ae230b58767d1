"""Pods that kube-scheduler refused: holds move out of their way, or an owner gets its placeholder's place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import nlargest
from time import perf_counter
from typing import Final

from adapters.loops import Changes, last_of
from extender.hand_over import HandOver
from extender.view import View
from ledger.eligibility import admits_node
from ledger.ledger import Ledger
from qos.cluster.objects import NodePredicate, Pod

AGAIN_SECONDS: Final = 5.0
"""A pod for which there was room and that still waits is looked at again, later each time."""
LONGEST_SECONDS: Final = 300.0
SHARE: Final = 0.05
"""The part of the time that looking for pods there is room for may take."""
_NAMES_SECONDS: Final = 1.0
_NODES_A_STEP: Final = 200
_PODS_A_STEP: Final = 500
A_ROUND: Final = 50
"""Pods asked about before the next look at who waits: an owner that comes waits for no more of them."""


class Refused:
    """Asks the ledger about each such pod as kube-scheduler would ask an extender: what its answer moves,
    placeholders follow. `places`: where pods that wait may run, by UID. `make_way`: has those that stand by
    leave one of these nodes. `changes` tells of pods. `clock`: seconds, monotonic. `looks`: it asks for pods
    there is room for by itself; else `again` is told of them.
    """

    def __init__(
        self,
        ledger: Ledger,
        view: View,
        hand_over: HandOver,
        places: Mapping[str, NodePredicate],
        changes: Changes,
        *,
        make_way: Callable[[Collection[str]], None],
        clock: Callable[[], float],
        looks: bool = True,
        timer: Callable[[], float] = perf_counter,
    ) -> None:
        self._ledger = ledger
        self._view = view
        self._hand_over = hand_over
        self._places = places
        self._changes = changes
        self._make_way = make_way
        self._clock = clock
        self._asked: dict[str, tuple[float, float]] = {}
        """UID -> when to ask again (inf: the ledger tells), and after how long."""
        self._charged: set[str] = set()
        self._offered: set[str] = set()
        """Owners that hand-over was told of when they were asked about last."""
        self._looks = looks
        self._shown: dict[str, list[str]] = {}
        """The nodes that pods were asked about with last, by UID: the ledger wakes them for these alone."""
        self._openings = view.openings
        self._names: dict[NodePredicate, list[str]] = {}
        self._names_until = 0.0
        self._timer = timer
        self._look_again = 0.0

    def again(self, pods: Iterable[Pod]) -> None:
        """There is room for these now."""
        for pod in pods:
            self._asked.pop(pod.uid, None)

    async def run_once(self) -> None:
        """Ask about the pods that were refused since, and those the ledger has room for now; wait while there
        are none.
        """
        if not self._view.unschedulable:
            for known in (self._asked, self._charged, self._offered, self._shown):
                known.clear()
            await self._changes.wait()
        if not self._view.unschedulable:
            return
        self.again(await self._look())
        waiting = self._view.unschedulable
        await self._look_for_nodes()
        now = self._clock()
        self._asked = {uid: one for uid, one in self._asked.items() if uid in waiting}
        self._charged &= waiting.keys()
        self._offered &= waiting.keys()
        due = [pod for uid, pod in waiting.items() if self._asked.get(uid, (0.0, 0.0))[0] <= now]
        for pod in nlargest(A_ROUND, due, key=lambda pod: pod.priority):
            if pod.uid in waiting:
                await self._ask(waiting[pod.uid])
            await asyncio.sleep(0)

    async def _look_for_nodes(self) -> None:
        """Ask again about who may run on more nodes: one came, is Ready again, or admits the pod now."""
        if self._view.openings == self._openings or self._clock() < self._names_until:
            return
        self._openings = self._view.openings
        more = dict[tuple[int, int], tuple[list[str], bool]]()  # with the names: their id is theirs as long
        for number, (uid, shown) in enumerate([*self._shown.items()]):
            if number % _PODS_A_STEP == 0:
                await asyncio.sleep(0)
            pod = self._view.unschedulable.get(uid)
            if pod is None:
                self._shown.pop(uid, None)
                continue
            names = await self._nodes_for(pod)
            which = id(names), id(shown)  # most share both
            if which not in more:
                more[which] = names, not set(names) <= set(shown)
            if more[which][1]:
                self._asked.pop(uid, None)

    async def _look(self) -> list[Pod]:
        """Pods the ledger has room for now; in a full cluster where thousands wait, finding them is work."""
        started = self._timer()
        if not self._looks or started < self._look_again:
            return []
        found = await last_of(self._ledger.gather_waiting(self._clock()))
        ended = self._timer()
        self._look_again = ended + (ended - started) / SHARE
        return found

    async def _ask(self, pod: Pod) -> None:
        pause = min(LONGEST_SECONDS, 2 * self._asked.get(pod.uid, (0.0, 0.0))[1] or AGAIN_SECONDS)
        now = self._clock()
        # An owner that got no place may have room like anybody else: that is looked at every second time.
        if pod.uid not in self._offered and self._hand_over.add(pod):
            self._offered.add(pod.uid)
            self._asked[pod.uid] = now + pause, pause
            return
        self._offered.discard(pod.uid)
        if pod.uid not in self._charged and now - self._ledger.in_flight_since(pod.uid) < AGAIN_SECONDS:
            self._asked[pod.uid] = now + AGAIN_SECONDS, pause
            return  # kube-scheduler has just been answered, and may be about to bind it
        nodes = self._shown[pod.uid] = await self._nodes_for(pod)
        if pod.uid not in self._view.unschedulable:
            return
        self._ledger.settle(pod.uid)  # else each answer would be charged on top of the one before
        moved = self._ledger.moved
        found = self._ledger.filter(pod, nodes, now, unfiltered=True)
        if self._ledger.moved == moved:
            self._ledger.settle(pod.uid)  # there is room without a move: for those who stand by it is kept
            self._make_way(found.nodes)
        else:
            self._charged.add(pod.uid)
        self._asked[pod.uid] = (now + pause if found.nodes else float("inf")), pause

    async def _nodes_for(self, pod: Pod) -> list[str]:
        """Nodes that admit it by its own words; of other in-tree filters the ledger looks at resources."""
        if self._clock() >= self._names_until:
            self._names.clear()
            self._names_until = self._clock() + _NAMES_SECONDS
        where = self._places.get(pod.uid, NodePredicate())
        found = self._names.get(where)
        if found is None:
            found, nodes = [], [*self._view.nodes.values()]
            for first in range(0, len(nodes), _NODES_A_STEP):
                some = nodes[first : first + _NODES_A_STEP]
                found += [node.name for node in some if node.ready and admits_node(where, node)]
                await asyncio.sleep(0)
            self._names[where] = found
        return found
