"""Keeps cluster-autoscaler from removing nodes with holds (trap T22): it sees held capacity as free.

Our own mark beside its annotation tells ours from one that a user set; we take back only ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from adapters.api import NODES, APIError, ClusterAPI, NotFound, Unreachable
from adapters.pace import Pace
from extender.view import View
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
        held = self._ledger.held_nodes()
        marked = self._view.annotated
        for name in sorted(held - marked - self._view.guarded_by_others):
            if name in self._view.nodes and not await self._patch(name, keep=True):
                return
        for name in self._abandoned(held, marked):
            if not await self._patch(name, keep=False):
                return

    def _abandoned(self, held: frozenset[str], marked: set[str]) -> list[str]:
        """Marked nodes that have had no hold for a while."""
        now = self._clock()
        bare = marked - held
        self._left = {name: self._left.get(name, now) for name in bare}
        return sorted(name for name, since in self._left.items() if now - since >= LINGER_SECONDS)

    async def _patch(self, name: str, *, keep: bool) -> bool:
        """False when the rate is used up."""
        if not self._pace.take():
            return False
        value = "true" if keep else None
        marks: dict[str, Any] = {keys.SCALE_DOWN_DISABLED_ANNOTATION: value, keys.HELD_ANNOTATION: value}
        try:
            await self._api.patch(NODES, "", name, {"metadata": {"annotations": marks}})
        except NotFound:
            self._view.remove_node(name)
        except (APIError, Unreachable) as error:
            log.warning("node not annotated node=%s error=%s", name, error)
        else:
            # The watch will say the same; until then do not patch again.
            (self._view.annotated.add if keep else self._view.annotated.discard)(name)
            if not keep:
                self._left.pop(name, None)
        return True
