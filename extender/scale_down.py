"""Keeps autoscalers from removing nodes with holds (trap T22): they see held capacity as free.

Each has an annotation of its own: Karpenter for nodes that it made, cluster-autoscaler for all others. Our
mark beside it says which one we set: a person's is neither changed nor taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from adapters.api import NODES, APIError, ClusterAPI, NotFound, Unreachable
from adapters.pace import Pace
from extender.view import View, mark_of
from ledger.ledger import Ledger
from qos import keys

log = logging.getLogger(__name__)

PER_SECOND: Final = 5
LINGER_SECONDS: Final = 60.0
"""Holds float: a node keeps its annotation this long after its last hold went."""


class ScaleDownGuard:
    """Annotates nodes with holds and takes the annotation off again; at most 5 patches a second."""

    def __init__(self, api: ClusterAPI, ledger: Ledger, view: View, *, clock: Callable[[], float]) -> None:
        self._api = api
        self._ledger = ledger
        self._view = view
        self._clock = clock
        self._pace = Pace(PER_SECOND, PER_SECOND, clock)
        self._left: dict[str, float] = {}

    async def run_once(self) -> None:
        """Annotate and clean up what the rate allows now."""
        marked = self._view.annotated
        held = self._ledger.held_nodes() - self._view.guarded_by_others
        for name in sorted(held):
            node = self._view.nodes.get(name)
            if node is None or marked.get(name) == mark_of(node):
                continue
            if not await self._patch(name, mark_of(node)):
                return
        for name in self._abandoned(held, set(marked)):
            if not await self._patch(name, None):
                return

    def _abandoned(self, held: frozenset[str], marked: set[str]) -> list[str]:
        """Marked nodes that have had no hold for a while."""
        now = self._clock()
        bare = marked - held
        self._left = {name: self._left.get(name, now) for name in bare}
        return sorted(name for name, since in self._left.items() if now - since >= LINGER_SECONDS)

    async def _patch(self, name: str, mark: str | None) -> bool:
        """Set what a mark stands for, None: take ours back. False when the rate is used up."""
        if not self._pace.take():
            return False
        changes = changed(self._view.annotated.get(name), mark)
        try:
            await self._api.patch(NODES, "", name, {"metadata": {"annotations": changes}})
        except NotFound:
            self._view.remove_node(name)
        except (APIError, Unreachable) as error:
            log.warning("node not annotated node=%s error=%s", name, error)
        else:
            # The watch will say the same; until then do not patch again.
            if mark is None:
                self._view.annotated.pop(name, None)
                self._left.pop(name, None)
            else:
                self._view.annotated[name] = mark
        return True


def changed(before: str | None, mark: str | None) -> dict[str, str | None]:
    """What becomes of a node's annotations where our mark says `before` and is to say `mark`; None: no mark.

    A mark that this version does not know stands for nothing that we could take back.
    """
    changes: dict[str, str | None] = {keys.HELD_ANNOTATION: mark}
    if before in keys.HELD_FROM:
        changes[keys.HELD_FROM[before]] = None
    if mark is not None:
        changes[keys.HELD_FROM[mark]] = "true"
    return changes
