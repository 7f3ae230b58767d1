"""What the agent reports of its node's network: which promises it keeps, and of which pods it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from agent.network import seen
from agent.network.standing import (
    NOT_YET,
    Standing,
    floor_obstacle,
    limit_obstacle,
    network_state,
    promise_states,
)
from agent.network.unkept import NOT_SHAPED, Problem
from agent.network.uplink import Uplink
from agent.node_network import NodeNetwork
from agent.readiness import LASTING_SECONDS
from qos.bandwidth import UNLIMITED
from qos.cluster.needs import NETWORK_FLOOR, NETWORK_LIMIT
from qos.cluster.network_state import NetworkState, Obstacle
from qos.cluster.node_report import PromiseState
from qos.keys import BANDWIDTHS
from qos.network.wanted import Direction, Unkept
from qos.pods.decision import Decided
from qos.quantity import render

OFF: Final = Obstacle("Off", "network floors are off on this node: start its agent with --network-floors")
OBSERVES: Final = Obstacle("Observing", "the agent only observes: nothing was tried")
_PASSING: Final = frozenset({NOT_SHAPED, NOT_YET.reason, Unkept.NOT_IDENTIFIED.value})
"""Reasons that mean nothing in the first moments: a pod that starts, a request that was refused once."""


class NetworkReport:
    """network: None where this agent shapes nothing, and `why` says it. clock: monotonic."""

    def __init__(
        self,
        network: NodeNetwork | None,
        uplink: Uplink,
        clock: Callable[[], float],
        why: Obstacle = OFF,
    ) -> None:
        self._network, self._uplink, self._clock, self._why = network, uplink, clock, why
        self._since: dict[str, float] = {}
        """Promise, or a pod's uid -> since when a passing reason keeps it."""
        self._before: dict[str, Obstacle | None] = {}
        self._written: seen.SeenNetwork | None = None

    def known(self) -> bool:
        """Whether there is something to report: before, what was reported of this node holds on."""
        if self._network is None:
            return True
        now = self._standing(self._network)
        passing = [name for name, obstacle in self._obstacles(now) if self._passes(name, obstacle)]
        return now.known and self._before.keys() >= set(passing)

    def promises(self) -> tuple[PromiseState, ...]:
        """`floor (network)` and `limit (network)`."""
        if self._network is None:
            return promise_states(self._why, self._why, None)
        now = self._standing(self._network)
        settled = {name: self._settled(name, obstacle) for name, obstacle in self._obstacles(now)}
        return promise_states(settled[NETWORK_FLOOR], settled[NETWORK_LIMIT], now.choices)

    def state(self) -> NetworkState | None:
        """The node's link and how it is shaped; None where it is not."""
        if self._network is None:
            return None
        now = self._standing(self._network)
        return network_state(now, self._settled(NETWORK_FLOOR, floor_obstacle(now)))

    def of_pod(self, decided: Decided) -> str | None:
        """Why what its policy promises of the network is not kept; "": it is, or promises nothing of it.

        None: that is under way.
        """
        promised = frozenset(_promised(decided))
        if not promised:
            return ""
        if self._network is None:
            return f"{_name(promised)}: {self._why}"
        if less := next(_less(decided), ""):
            return less
        found = self._network.unkept(decided)
        if found is None:
            return None
        uid = decided.pod.uid
        problem = next((one for one in found if (one.direction, one.floor) in promised), None)
        if problem is not None and self._passes(uid, problem):
            return None
        if problem is None:
            self._since.pop(uid, None)
        return f"{_name([problem[:2]])}: {problem}" if problem else ""

    async def write(self, run: Path, names: Mapping[str, tuple[str, str]]) -> None:
        """RUN/network.json, where it is not as it was written. names: as seen.seen_network. OSError."""
        if self._network is None or not (now := self._standing(self._network)).known:
            return
        floors, limits = (self._settled(name, obstacle) for name, obstacle in self._obstacles(now))
        found = seen.seen_network(now, floors, limits, names)
        if found != self._written:
            await asyncio.to_thread(seen.write, run, found)
            self._written = found

    def keep(self, uids: Iterable[str]) -> None:
        """Forget all pods but these."""
        kept = {*uids, NETWORK_FLOOR, NETWORK_LIMIT}
        self._since = {name: since for name, since in self._since.items() if name in kept}

    def _standing(self, network: NodeNetwork) -> Standing:
        return network.standing(self._uplink.link, self._uplink.problem, self._uplink.sources)

    @staticmethod
    def _obstacles(now: Standing) -> Iterator[tuple[str, Obstacle | None]]:
        yield NETWORK_FLOOR, floor_obstacle(now)
        yield NETWORK_LIMIT, limit_obstacle(now)

    def _settled(self, name: str, obstacle: Obstacle | None) -> Obstacle | None:
        """The obstacle; one that may pass only when it has lasted, until then what there was before."""
        if self._passes(name, obstacle):
            return self._before.get(name, obstacle)
        self._before[name] = obstacle
        return obstacle

    def _passes(self, name: str, why: Obstacle | Problem | None) -> bool:
        if why is None or why.reason not in _PASSING:
            self._since.pop(name, None)
            return False
        return self._clock() - self._since.setdefault(name, self._clock()) < LASTING_SECONDS


def _promised(decided: Decided) -> Iterator[tuple[Direction, bool]]:
    """What its policy and its profile promise it: of which direction, and whether that is a floor. What an
    annotation of its own limits is nobody's promise, and a CNI plugin may keep it.
    """
    for direction in Direction:
        name = BANDWIDTHS[direction.value]
        if (decided.floor or {}).get(name):
            yield direction, True
        limited = decided.policy is not None and name in decided.policy.limit
        of_profile = decided.profile.limits if decided.profile else UNLIMITED
        if limited or of_profile.of(direction.value) is not None:
            yield direction, False


def _less(decided: Decided) -> Iterator[str]:
    """What does not count of its floor."""
    for name in BANDWIDTHS.values():
        whole, kept = (decided.floor or {}).get(name, 0), decided.kept.get(name, 0)
        if kept < whole:
            why = f"class {decided.expected.class_name} has no floor"
            if name in decided.bound:
                bound = render(name, decided.bound[name])
                why = f"the pod requests {bound}, so no more of its floor counts: request the floor"
            yield f"{NETWORK_FLOOR}: {render(name, kept)} of {render(name, whole)} {name} can be kept: {why}"


def _name(promised: Iterable[tuple[Direction, bool]]) -> str:
    """Of a floor where one is among them."""
    return NETWORK_FLOOR if any(floor for _, floor in promised) else NETWORK_LIMIT
