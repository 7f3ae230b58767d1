"""Who stands by: placeholders that keep an owner's room from everybody else once it is gone.

They wait for the owner's node, nominated to it (docs/keepers.md, "Standing by").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from adapters.loops import last_of
from ledger.ledger import Ledger
from qos.cluster.placeholders import shared_out

T = TypeVar("T")

LOOK_SECONDS: Final = 0.2
_SHARE: Final = 0.05
"""The part of the time that looks may take."""
MOST: Final = 100
"""Of all policies: kube-scheduler counts each of them whenever it looks at its node."""
A_NODE: Final = 4
"""Of one policy: they keep one another out, so that each owner that goes has all but one leave and come
again, and nominating eight of a node takes seconds where answers are late; but several may go at once.
"""
IN_VAIN_SECONDS: Final = 30.0
"""For so long nobody stands by for a policy on a node where one was bound in vain: there is room."""
AWAY_SECONDS: Final = 1.0
"""For so long nobody stands by on a node where a pod is to have the room beside owners."""
STAYS_SECONDS: Final = 10.0
"""Until so long after that they make way there again."""
FORGETS_SECONDS: Final = 86_400.0
"""For so long the nodes where they did not make way come first: a pod may fit on one alone, for a reason
that the ledger does not know.
"""


class StandingBy:
    """`kept`: whether placeholders keep a policy. `changed` is called when others are due. `clock`: seconds,
    monotonic.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        kept: Callable[[str], bool],
        changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._kept = kept
        self._changed = changed
        self._clock = clock
        self._wanted: Mapping[str, Mapping[str, int]] = {}
        self._in_vain: dict[tuple[str, str], float] = {}
        self._made_way: dict[str, float] = {}
        self._missing: dict[str, frozenset[str]] = {}
        self._missing_on: Counter[str] = Counter()
        self._look_again = 0.0
        self._looked_at: object = None

    async def look(self) -> None:
        """Now and then: whom nobody waits for yet is found at the next look."""
        now, at = self._clock(), (self._ledger.stamp, frozenset(self._missing))
        self._in_vain = _younger(self._in_vain, now - IN_VAIN_SECONDS)
        self._made_way = _younger(self._made_way, now - FORGETS_SECONDS)
        if now < self._look_again or at == self._looked_at:
            return
        self._looked_at = at
        found = await last_of(self._ledger.gather_replaced())
        ended = self._clock()
        asked = {key: dict(there) for key, there in found.items() if self._kept(key)}
        for key in self._missing.keys() & self._wanted.keys():
            # Nobody knows yet whether the slot has its place elsewhere: the room is kept until then.
            asked[key] = dict(self._wanted[key]) | asked.get(key, {})
        self._wanted = shared_out(asked, MOST, A_NODE)
        self._look_again = ended + max(LOOK_SECONDS, (ended - now) / _SHARE)

    def due(self, policy: str) -> dict[str, int]:
        """How many are to stand by for a policy now, by node.

        None where a placeholder is to be bound first: those that are nominated keep one another out, too.
        """
        wanted = self._wanted.get(policy)
        if not wanted:
            return {}
        away = self._away()
        return {
            node: slots
            for node, slots in wanted.items()
            if not (node in away or self._missing_on[node] or (policy, node) in self._in_vain)
        }

    def _away(self) -> set[str]:
        return {*_younger(self._made_way, self._clock() - AWAY_SECONDS)}

    def _nodes(self) -> set[str]:
        return {node for there in self._wanted.values() for node in there}

    def pauses(self, policy: str) -> bool:
        """Whether others will be due without a change."""
        there, away = self._wanted.get(policy, {}), self._away()
        return any(node in away or (policy, node) in self._in_vain for node in there)

    def misses(self, policy: str, nodes: Iterable[str]) -> None:
        """Where a policy's placeholders are not bound though its holds lie there."""
        nodes, before = frozenset(nodes), self._missing.pop(policy, frozenset[str]())
        if nodes:
            self._missing[policy] = nodes
        if nodes == before:
            return
        self._missing_on += Counter(nodes)
        self._missing_on -= Counter(before)
        if not (nodes ^ before).isdisjoint(self._nodes()):
            self._changed()

    def forget(self, policy: str) -> None:
        """The policy is gone."""
        self.misses(policy, ())

    def in_vain(self, policy: str, node: str) -> None:
        """One was bound where no hold lies, and goes."""
        if node in self._wanted.get(policy, {}):
            self._in_vain[policy, node] = self._clock()

    def make_way(self, nodes: Collection[str]) -> None:
        """A refused pod would fit on these by the ledger: on one of them nobody stands by for a while."""
        there = self._nodes().intersection(nodes)
        free = there - _younger(self._made_way, self._clock() - STAYS_SECONDS).keys()
        if free and self._away().isdisjoint(there):
            node = min(free, key=lambda one: (self._made_way.get(one, float("-inf")), one))
            self._made_way[node] = self._clock()
            self._changed()


def _younger(times: Mapping[T, float], since: float) -> dict[T, float]:
    return {where: at for where, at in times.items() if at > since}
