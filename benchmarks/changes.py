"""Changes that concern all policies at once, or a third of the nodes: how long any pass holds the loop.

The extender as it runs, with what tenants of a large cluster have: nodes in three zones, policies whose slots
are spread over them, a budget for each policy and one for all, and a Reservation for every fifth node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from adapters.api import BUDGETS, NAMESPACES, NODES, POLICIES, PRIORITY_CLASSES, RESERVATIONS
from benchmarks import clusters, pauses
from benchmarks.clusters import Size
from benchmarks.fleet import WatchedFleet
from benchmarks.loop_time import LoopTime
from qos.keys import NAMESPACE_NAME_LABEL

ZONE: Final = "topology.kubernetes.io/zone"
ZONES: Final = 3
RESERVED: Final = 5
"""A Reservation for every fifth node."""
GROUPS: Final = 50
"""Reservations have so many kinds of owners."""
EXPIRE_SECONDS: Final = 3_600.0
AMPLE: Final = "100k"
STARTED: Final = "tenants, first statuses"


class Tenants(WatchedFleet):
    """A Fleet with zones, spread constraints, budgets, Reservations; `wall` can be put forward."""

    def __init__(self, size: Size, times: LoopTime) -> None:
        super().__init__(size, times)
        self.ahead = 0.0
        for number in range(size.nodes):
            self.put(NODES, zoned(number))
        end = datetime.fromtimestamp(time.time() + EXPIRE_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for body in self.objects(POLICIES):
            body["spec"]["expirationTime"] = end
            body["spec"]["placement"]["topologySpreadConstraints"] = [_spread(body)]
            self.put(POLICIES, body)
        for policy in range(size.policies):
            name = clusters.namespace(policy)
            labels = {NAMESPACE_NAME_LABEL: name}
            meta = {"name": name, "labels": labels}
            self.put(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
            self.put(BUDGETS, budget(name, AMPLE, labels))
        self.put(BUDGETS, budget("all", AMPLE))
        for number in range(size.nodes // RESERVED):
            self.put(RESERVATIONS, reservation(number, clusters.node_name(number * RESERVED)))
        self.expire()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time() + self.ahead


class Changes(pauses.Play):
    """What changes; each phase goes on until all that was put has been read."""

    def phases(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """By name, in this order: what expires at last asks for nothing any more."""
        return {
            STARTED: self._nothing,
            "a zone is lost": self._zone_lost,
            "a budget of all is cut": lambda: self._budget("4k"),
            "a budget of all grows": lambda: self._budget(AMPLE),
            "a PriorityClass of all": self._priority_class,
            "all policies expire": self._expire,
        }

    async def _zone_lost(self) -> None:
        """Every third node is not ready."""
        for number in range(0, self._api.size.nodes, ZONES):
            self._api.put(NODES, zoned(number, ready=False))
        await self._read_all()

    async def _budget(self, cpu: str) -> None:
        self._api.put(BUDGETS, budget("all", cpu))
        await self._read_all()

    async def _priority_class(self) -> None:
        self._api.put(PRIORITY_CLASSES, {"metadata": {"name": "floors"}, "value": 1_001})
        await self._read_all()

    async def _expire(self) -> None:
        assert isinstance(self._api, Tenants)
        self._api.ahead = 2 * EXPIRE_SECONDS

    async def _read_all(self) -> None:
        while self._api.unread():
            await self._verbs_for(0.1)


def measure(size: Size, quiet: float) -> tuple[dict[str, float], dict[str, str]]:
    """Name -> units, and for each phase what held the loop longest."""
    times = LoopTime("start")
    api = Tenants(size, times)
    with times.watching():
        return asyncio.run(_measure(api, times, quiet))


async def _measure(api: Tenants, times: LoopTime, quiet: float) -> tuple[dict[str, float], dict[str, str]]:
    asyncio.current_task().set_name("bench")  # type: ignore[union-attr]
    heeded = {"koordinator": {"reservations": True}}
    async with pauses.running(api, times, Changes, config=heeded, wall=api.wall) as play:
        units = await play.all(quiet)
    longest = {phase: pause for phase, pause in times.longest.items() if phase in units}
    found = {f"pause, {phase}": pause.seconds / units[phase] for phase, pause in longest.items()}
    return found, {phase: pause.what for phase, pause in longest.items()}


def zoned(number: int, *, ready: bool = True) -> dict[str, Any]:
    """A node in its zone."""
    body = clusters.node_json(number, ready=ready)
    body["metadata"]["labels"][ZONE] = f"zone-{number % ZONES}"
    return body


def budget(name: str, cpu: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A ReservationBudget for all namespaces with these labels together."""
    spec = {"namespaceSelector": {"matchLabels": labels or {}}, "total": {"cpu": cpu}}
    kind = {"apiVersion": "j10ce.io/v1alpha1", "kind": "ReservationBudget"}
    return kind | {"metadata": {"name": name, "generation": 1}, "spec": spec}


def reservation(number: int, node: str) -> dict[str, Any]:
    """A Reservation, Available on a node; every second one is shared."""
    requests = {"cpu": "2", "memory": f"{1024 + number}Mi"}
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}
    owners = [{"labelSelector": {"matchLabels": {"group": f"g{number % GROUPS}"}}}]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": f"reserved-{number}", "generation": 1},
        "spec": {"template": template, "owners": owners, "ttl": "0s", "allocateOnce": bool(number % 2)},
        "status": {"phase": "Available", "nodeName": node},
    }


def _spread(policy: Mapping[str, Any]) -> dict[str, Any]:
    selector = policy["spec"]["selector"]
    return {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
