"""What an agent before this one left of the node's network."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from agent.network.bpf.pins import MOUNTED_AT
from agent.network.leaving import leave

log = logging.getLogger(__name__)


class LeftNetwork:
    """What an agent that shaped this node's network left behind, taken away by one that does not."""

    def __init__(self, run: Path, bpf_root: str = MOUNTED_AT) -> None:
        self._run, self._bpf_root = run, bpf_root
        self._told: list[str] = []

    async def take_away(self) -> None:
        """All of it that can be; what cannot is logged once. Where nothing is left it costs a look."""
        left = await asyncio.to_thread(leave, self._run, self._bpf_root)
        if left and left != self._told:
            log.warning(
                "the network is still shaped as an agent before this one left it: %s", "; ".join(left)
            )
        self._told = left
