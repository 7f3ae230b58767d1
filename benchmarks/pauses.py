"""The whole program on a large cluster: how long any pass holds its loop, what ingest and memory cost.

The extender as it runs, on an API server in memory; then things happen, one kind after the other, and the
longest callback of each phase is kept with the task that it belongs to. While they happen verbs are called:
what the ledger puts off until then is paid there.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import statistics
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from adapters.api import DEPLOYMENTS, NODES, PODS, POLICIES
from adapters.memory import timestamp
from adapters.serving.addresses import listen
from benchmarks import clusters
from benchmarks.clusters import Size
from benchmarks.fixed_work import usual_seconds
from benchmarks.fleet import FOLLOWS, Fleet, WatchedFleet
from benchmarks.loop_time import LoopTime
from extender import server
from extender.config import ExtenderConfig
from extender.program import Program

QUIET_SECONDS: Final = 1.2
"""The slowest loop that reacts to changes waits 0.5 s."""
MOST_START_SECONDS: Final = 240
EVENTS: Final = 3_000
LIFE: Final = 5
"""Events of a pod that comes and goes."""
WAITING: Final = 300
PASSES: Final = ("start", "status", "wake", "nodes", "watch", "verb", "bind")
"""Tasks whose longest pass is shown, by the first word of their names."""
_NOTHING: Final[Mapping[str, Any]] = {}


class Play:
    """What happens to a running extender; each phase is named by its method's first line."""

    def __init__(self, program: Program, api: Fleet, times: LoopTime, address: str) -> None:
        self._program, self._api, self._times = program, api, times
        self._address = address
        self._app = server.VerbsApp(
            program.ledger, program.binder, program.readiness, program.metrics, time.monotonic
        )
        self._serial = itertools.count()
        self._nodes = clusters.node_names(api.size.nodes)

    async def all(self, quiet: float) -> dict[str, float]:
        """One phase after the other; each goes on for `quiet` seconds after its last change.

        Returns how many seconds a unit of the fixed work takes about each.
        """
        units = {}
        for name, phase in self.phases().items():
            self._times.phase = name
            await phase()
            await self._caught_up()
            await self._verbs_for(quiet)
            units[name] = usual_seconds()
        return units

    def phases(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """What happens, by name."""
        return {
            "first statuses": self._nothing,
            "pod events": self._pod_events,
            "owners crash": self._owners_crash,
            "flood": self._flood,
            "nodes lost": self._nodes_lost,
            "targets scaled": self._targets_scaled,
            "policies made and gone": self._policies,
            "pods wait": self._pods_wait,
            "pods by others": self._pods_by_others,
            "/holds": lambda: self._read("/holds"),
            "/metrics": lambda: self._read("/metrics"),
        }

    async def _caught_up(self) -> None:
        """Until the watch of pods has shown all that was put so far."""
        name = f"last-{next(self._serial)}"
        uid = self._api.put(PODS, clusters.new_pod(name, 0.1, self._nodes[0]))["metadata"]["uid"]
        while self._program.ledger.known(uid) is None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.005)

    async def _nothing(self) -> None:
        """The leader writes the first statuses."""

    async def _pod_events(self) -> None:
        """Pods live: made, bound by us, running, ended, deleted, each in its turn."""
        for number in range(EVENTS // LIFE):
            name, node = f"short-{number}", self._nodes[number % len(self._nodes)]
            self._api.put(PODS, clusters.new_pod(name, 0.5))
            self._api.put(PODS, clusters.new_pod(name, 0.5, node, phase="Pending"))
            self._api.put(PODS, clusters.new_pod(name, 0.5, node))
            self._api.put(PODS, clusters.new_pod(name, 0.5, node, phase="Succeeded"))
            self._api.remove(PODS, "batch", name)
            if number % 10 == 9:
                await asyncio.sleep(0)

    async def _owners_crash(self) -> None:
        """A hundred owners are gone at once; the pods that take their place wait, and are filtered."""
        for index, (policy, number) in itertools.islice(enumerate(clusters.owners(self._api.size)), 100):
            owner = self._api.owner(index, policy, number)
            self._api.put(PODS, owner)
            self._api.remove(PODS, owner["metadata"]["namespace"], owner["metadata"]["name"])
            await self._schedule(clusters.SLOT_CORES, owner_of=policy)

    async def _flood(self) -> None:
        for _ in range(200):
            await self._schedule(0.5)

    async def _nodes_lost(self) -> None:
        """Nodes with holds: two are not ready, two are gone."""
        held = sorted(self._program.ledger.held_nodes())[:4]
        for index, name in enumerate(held):
            number = self._nodes.index(name)
            if index % 2:
                self._api.remove(NODES, "", name)
            else:
                self._api.put(NODES, clusters.node_json(number, ready=False))
            await self._verbs_for(0.2)

    async def _targets_scaled(self) -> None:
        for policy in range(0, min(self._api.size.policies, 5 * FOLLOWS), FOLLOWS):
            more = self._api.size.slots_of(policy) + 3
            self._api.put(DEPLOYMENTS, clusters.deployment_json(policy, more))
            await self._verbs_for(0.1)

    async def _policies(self) -> None:
        made = [2 * self._api.size.policies + number for number in range(4)]
        for policy in made:
            self._api.put(POLICIES, clusters.policy_json(policy, 10))
            await self._verbs_for(0.1)
        for policy in made[::2]:
            self._api.remove(POLICIES, clusters.namespace(policy), clusters.app(policy))
            await self._verbs_for(0.1)

    async def _pods_wait(self) -> None:
        """Some hundred pods that no node has room for are refused; then pods end and capacity comes free."""
        for _ in range(WAITING):
            await self._schedule(clusters.CORES - 1)
        for number in range(20):
            node = self._nodes[number % len(self._nodes)]
            ended = clusters.new_pod(f"filler-{number}", 0.5, node, phase="Succeeded")
            self._api.put(PODS, ended)
            await asyncio.sleep(0.02)

    async def _pods_by_others(self) -> None:
        """Pods that another scheduler bound, and some that were bound while we were away."""
        for number in range(600):
            node = self._nodes[number % len(self._nodes)]
            scheduler = "another-scheduler" if number % 10 else "default-scheduler"
            how: dict[str, Any] = {
                "bound_by": "",
                "scheduler": scheduler,
                "scheduled": timestamp(time.time()),
            }
            self._api.put(PODS, clusters.new_pod(f"other-{number}", 0.1, node, **how))
            if number % 50 == 49:
                await asyncio.sleep(0)

    async def _read(self, path: str) -> None:
        """Asked once: readers share an answer for a second."""
        with await asyncio.to_thread(urllib.request.urlopen, f"http://{self._address}{path}") as answer:
            await asyncio.to_thread(answer.read)

    async def _verbs_for(self, seconds: float) -> None:
        """Pods come by as time goes on."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await self._schedule(0.5)
            await asyncio.sleep(0.02)

    async def _schedule(self, cores: float, *, owner_of: int | None = None) -> None:
        """A pod is made, filtered with 100 names, and bound if there is a node for it."""
        name = f"new-{next(self._serial)}"
        pod = clusters.new_pod(name, cores, owner_of=owner_of)
        self._api.put(PODS, pod)
        await asyncio.sleep(0)
        start = next(self._serial) * 89
        names = [self._nodes[(start + i) % len(self._nodes)] for i in range(min(100, len(self._nodes)))]
        found = await self._ask("/filter", {"Pod": pod, "Nodes": None, "NodeNames": names})
        if found["NodeNames"]:
            meta = pod["metadata"]
            where = {"PodName": name, "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
            await self._ask("/bind", where | {"Node": found["NodeNames"][0]})

    async def _ask(self, path: str, body: dict[str, Any]) -> Any:
        asked = self._app.ask(path, orjson.dumps(body))
        return orjson.loads((await asyncio.create_task(asked, name=f"verb {path[1:]}")).body)


def measure(size: Size, quiet: float = QUIET_SECONDS) -> tuple[dict[str, float], dict[str, str]]:
    """Name -> units (or MB, bytes), and for each phase what held the loop longest."""
    times = LoopTime("start")
    api = WatchedFleet(size, times)
    with times.watching():
        return asyncio.run(_measure(api, times, quiet))


async def _measure(api: Fleet, times: LoopTime, quiet: float) -> tuple[dict[str, float], dict[str, str]]:
    asyncio.current_task().set_name("bench")  # type: ignore[union-attr]
    gc.collect()
    before = _resident_bytes()
    async with running(api, times) as play:
        gc.collect()
        resident = _resident_bytes() - before
        units, ready = {"start": usual_seconds()}, times.of("start")
        units |= await play.all(quiet)
    found = {f"pause, {phase}": pause.seconds / units[phase] for phase, pause in times.longest.items()}
    found["longest pause once ready"] = max(value for name, value in found.items() if name != "pause, start")
    for task in PASSES:
        found[f"longest {task} pass"] = times.longest_of(task) / statistics.median(units.values())
    found["start, all CPU"] = ready / units["start"]
    found["ingest, a pod event"] = times.of("pod events", "watch pods") / units["pod events"] / EVENTS
    found["ingest, all pods"] = times.of("start", "watch pods") / units["start"]
    found["memory, MB"] = resident / 1e6
    found["memory, bytes a pod"] = resident / api.size.pods
    return found, {phase: pause.what for phase, pause in times.longest.items()}


@contextlib.asynccontextmanager
async def running(
    api: Fleet,
    times: LoopTime,
    play: type[Play] = Play,
    *,
    config: Mapping[str, Any] = _NOTHING,
    wall: Callable[[], float] = time.time,
) -> AsyncIterator[Play]:
    """The program, ready, on free ports, and what is played; `config`: more of its configuration."""
    sockets = listen("127.0.0.1:0"), listen("127.0.0.1:0")
    verbs_address, address = ("{}:{}".format(*one.getsockname()) for one in sockets)
    usual = ExtenderConfig(
        verbs_address=verbs_address,
        address=address,
        identity="bench",
        cap_percent=100,
        annotate_held_nodes=True,
        **config,
    )
    stop = asyncio.Event()
    program = Program(usual, api, wall=wall)
    # It makes the servers before anyone can call: no pause.
    task = asyncio.create_task(program.run(stop, sockets), name="bench program")
    bookmarks = asyncio.create_task(_bookmarks(api), name="bench bookmarks")
    try:
        began = time.monotonic()
        while program.readiness.problem():
            if task.done() or time.monotonic() - began > MOST_START_SECONDS:
                raise SystemExit(f"the extender is not ready: {program.readiness.problem()}")
            await asyncio.sleep(0.02)
        yield play(program, api, times, address)
    finally:
        bookmarks.cancel()
        stop.set()
        await task


async def _bookmarks(api: Fleet) -> None:
    """As the API server sends them: a watch that is silent is taken for dead."""
    while True:
        await asyncio.sleep(10)
        api.bookmark()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
