"""What the agent costs a node: 250 pods of two containers with floors, on real cgroups and a real API server.

In one run: the first apply of everything, CPU and memory in steady state, how soon a foreign write is
repaired, CPU while ten of twice as many pods start and end a second, and what NRI adds to a container's start
(with a real containerd, against one without the agent).

Bounds are ratios to work of the same run, because machines differ by a factor of two: the first apply and the
CPU to a fixed work (fixed_work.py), a repair to a process that sleeps as long as a repair waits for more
writes and then works a little, a container's start to one without the agent. Memory has a plain bound.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.progress import track

from adapters.api import PODS
from adapters.kubernetes.client import KubernetesAPI
from benchmarks.figures import Figure, p99, show
from benchmarks.fixed_work import unit_seconds, work
from lab import binaries, cluster, crowd, node_programs
from lab.agent_process import AgentProcess
from lab.cluster import Cluster
from lab.crowd import Crowd, CrowdPod
from lab.processes import exit_on_sigterm
from lab.progress import build_progress
from lab.runtimes import cgroups
from lab.runtimes.containerd import Containerd, Options, containerd
from lab.runtimes.cri import Container, Pod

NODE = "bench"
POLICY = "crowd"
QUIET_SECONDS = 10.0
REPAIR_WAITS_SECONDS = 0.010
APPLY_UNITS = 200
SCRAPE_SECONDS = 30
STARTS_A_SECOND = 10
"""Pods, of two containers each; as many end."""
_ALIVE_SECONDS = 5
_DRAWS = 400
FLOOR_POLICY = {
    "apiVersion": "j10ce.io/v1alpha1",
    "kind": "MinimalReservationPolicy",
    "metadata": {"name": POLICY, "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"app": POLICY}},
        "floor": {"resources": {"cpu": "2m", "memory": "8Mi"}},
        "slots": {"count": 1},
    },
}


@contextlib.contextmanager
def agent(folder: Path, *arguments: str | Path) -> Iterator[AgentProcess]:
    """An agent of our own, ready, its folders below this one."""
    one = AgentProcess(folder, *arguments)
    one.start()
    try:
        yield one
    finally:
        one.end(signal.SIGTERM)


def bind_pods(here: Cluster, machine: Crowd, count: int) -> list[CrowdPod]:
    """Pods of a node that the API server knows, with cgroups of the uids it gave them."""
    policy = json.dumps(FLOOR_POLICY)
    here.kubectl("apply", "-f", "-", stdin=policy)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"bench": "agent"}}}
    here.kubectl("apply", "-f", "-", stdin=json.dumps(node))
    return more_pods(here, machine, count)


def more_pods(here: Cluster, machine: Crowd, count: int) -> list[CrowdPod]:
    """More of the same."""

    async def bind() -> list[CrowdPod]:
        async with KubernetesAPI.from_kubeconfig(here.kubeconfig) as api:
            return await _bind(api, machine, [f"crowd-{len(machine.pods) + one}" for one in range(count)])

    return asyncio.run(bind())


async def _bind(api: KubernetesAPI, machine: Crowd, names: list[str]) -> list[CrowdPod]:
    draft = CrowdPod("", "", {"c0": "", "c1": ""}, labels={"app": POLICY})
    bodies = []
    for name in names:
        manifest = draft.manifest(NODE)
        manifest["metadata"] |= {"name": name}
        bodies.append(manifest)
    made = await asyncio.gather(*(api.create(PODS, "default", body) for body in bodies))
    uids = [json.loads(raw)["metadata"]["uid"] for raw in made]
    pods = machine.add(len(names), uids=uids, names=names, labels={"app": POLICY})
    status = [(pod.name, {"status": pod.status()}) for pod in pods]
    await asyncio.gather(*(api.patch(PODS, "default", *one, subresource="status") for one in status))
    return pods


def churn(here: Cluster, machine: Crowd, running: AgentProcess, seconds: float) -> float:
    """Percent of one core that the agent takes while pods start and end all the time."""
    return asyncio.run(_churn(here, machine, running, seconds))


async def _churn(here: Cluster, machine: Crowd, running: AgentProcess, seconds: float) -> float:
    alive: deque[CrowdPod] = deque()
    began = used = 0.0
    async with KubernetesAPI.from_kubeconfig(here.kubeconfig) as api:
        first, at = time.monotonic(), 0
        while True:
            if at == _ALIVE_SECONDS * STARTS_A_SECOND:  # from here on as many end as start
                began, used = time.monotonic(), running.cpu_seconds()
            if began and time.monotonic() - began >= seconds:
                return 100 * (running.cpu_seconds() - used) / (time.monotonic() - began)
            alive += await _bind(api, machine, [f"comes-{at}"])
            if len(alive) > _ALIVE_SECONDS * STARTS_A_SECOND:
                gone = alive.popleft()
                await api.delete(PODS, "default", gone.name, grace_seconds=0)
                machine.remove(gone)
            at += 1
            await asyncio.sleep(max(0.0, first + at / STARTS_A_SECOND - time.monotonic()))


def settle(running: AgentProcess) -> None:
    """Until passes and the opening of meters are over."""
    quiet_since, passes = time.monotonic(), running.metrics()["j10ce_agent_passes_total"]
    while time.monotonic() - quiet_since < QUIET_SECONDS:
        time.sleep(1)
        now = running.metrics()["j10ce_agent_passes_total"]
        if now != passes:
            quiet_since, passes = time.monotonic(), now


def steady(running: AgentProcess, seconds: float) -> tuple[float, float]:
    """Percent of one core, and megabytes, while pods come and go not, and Prometheus asks as usual."""
    settle(running)
    before, began = running.cpu_seconds(), time.monotonic()
    for second in track(range(int(seconds)), description="steady state", transient=True):
        if second % SCRAPE_SECONDS == SCRAPE_SECONDS - 1:
            running.metrics()
        time.sleep(1)
    return 100 * (running.cpu_seconds() - before) / (time.monotonic() - began), running.memory()


def drift(machine: Crowd, pods: list[CrowdPod], writes: int) -> tuple[list[float], list[float]]:
    """Milliseconds from each foreign write to its repair, and of as many plain turns in between; sorted."""
    found, turns = [], []
    unified = cgroups.is_v2(machine.mounts)
    controller, name = ("", "cpu.weight") if unified else ("cpu", "cpu.shares")
    for _ in track(range(writes), description="drift", transient=True):
        pod = random.choice(pods)
        file = machine.file(pod, controller, name, random.choice(list(pod.containers)))
        planned = file.read_text()
        began = time.monotonic()
        file.write_text("3")
        while file.read_text() != planned:
            if time.monotonic() - began > 30:
                raise SystemExit(f"{file} was not repaired within 30 s")
            time.sleep(0.0005)
        found.append(1000 * (time.monotonic() - began))
        turns.append(1000 * turn())
    return sorted(found), sorted(turns)


def turn() -> float:
    """Seconds of a plain turn: as long a sleep as a repair waits, then ten units of the fixed work."""
    began = time.monotonic()
    time.sleep(REPAIR_WAITS_SECONDS)
    works(10)
    return time.monotonic() - began


def works(units: int) -> float:
    """Seconds that so many units of the fixed work take: of time, as what they are compared with."""
    began = time.monotonic()
    for _ in range(units):
        work()
    return time.monotonic() - began


def starts(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Ms from creating a container to its start, without and with the agent, in pairs of the same moment.

    A round is a pod of two containers of each kind, in an order of chance: what a start leaves behind for the
    next one falls on both kinds.
    """
    programs = node_programs.provide(os.environ, binaries.silent)
    policies = folder / "policies"
    policies.mkdir()
    (policies / "policy.yaml").write_text(json.dumps(FLOOR_POLICY))
    options = Options(parent=_memory_file_system())  # a disk's moods would be most of what is measured
    took: dict[str, list[float]] = {"without": [], "with": []}
    with (
        cgroups.scratch("bench") as scratch,
        containerd(programs, options) as plain,
        containerd(programs, options) as watched,
        agent(folder, "--standalone", policies, "--nri-socket", watched.nri_socket) as running,
    ):
        running.until(lambda: running.metrics()["j10ce_agent_nri_connected"], "containerd is reached")
        kinds = {"without": plain, "with": watched}
        for name, one in kinds.items():
            _start(one, *_pod(one, scratch, f"{name}-stays"), "app")  # no node is empty
        for index in track(range(rounds + 1), description="container starts", transient=True):
            pods = {name: _pod(one, scratch, f"{name}-{index}") for name, one in kinds.items()}
            for container in ("app", "sidecar"):
                for name in random.sample(list(kinds), len(kinds)):
                    seconds = _start(kinds[name], *pods[name], container)
                    if index:  # the first one finds nothing in any cache
                        took[name].append(1000 * seconds)
            for name, one in kinds.items():
                one.cri.remove_pod(pods[name][1])
                scratch.make("kubepods", "burstable", f"pod{pods[name][0].uid}").remove()  # as kubelet does
    return took


def interval(more: list[float], less: list[float]) -> tuple[float, float]:
    """Between what the difference of the two middles is, 9 times of 10: of pairs drawn anew (bootstrap)."""
    drawn = []
    for _ in range(_DRAWS):
        chosen = random.choices(range(len(more)), k=len(more))
        drawn.append(middle([more[one] for one in chosen]) - middle([less[one] for one in chosen]))
    drawn.sort()
    return drawn[_DRAWS // 20], drawn[-_DRAWS // 20]


def middle(values: list[float]) -> float:
    """The mean of the middle half: steadier than the median where values scatter as starts do."""
    quarter = len(values) // 4
    return statistics.mean(sorted(values)[quarter : len(values) - quarter])


def _pod(one: Containerd, scratch: cgroups.Scratch, name: str) -> tuple[Pod, str]:
    uid = str(uuid.uuid4())
    scratch.make("kubepods", "burstable", f"pod{uid}")
    pod = Pod(name, uid, scratch.path("kubepods", "burstable", f"pod{uid}"), labels={"app": POLICY})
    return pod, one.cri.run_pod(pod)


def _start(one: Containerd, pod: Pod, sandbox: str, name: str) -> float:
    container = Container(name, ["sleep", "1000"], {"cpu_shares": 102})
    began = time.monotonic()
    one.cri.start(one.cri.create(sandbox, pod, container)).succeeded()
    return time.monotonic() - began


def _memory_file_system() -> Path | None:
    """As /run is, where the agent's files are on a node."""
    place = Path("/dev/shm")
    return place if place.is_dir() else None


def measure(count: int, seconds: float, writes: int, rounds: int) -> list[Figure]:
    """Everything, one after the other."""
    with build_progress() as report:
        programs = binaries.provide(os.environ, report=report)
    figures: list[Figure] = []
    place = tempfile.TemporaryDirectory(prefix="j10ce-bench-", dir=_memory_file_system())
    with place as name, crowd.crowd() as machine:
        folder = Path(name)
        here = cluster.up(f"bench-{os.getpid()}", binaries=programs)
        try:
            pods = bind_pods(here, machine, count)
            arguments = ("--node", NODE, "--kubeconfig", here.kubeconfig, "--nri-socket", "")
            with agent(folder, *arguments) as running:
                plain = 1000 * works(APPLY_UNITS)
                seen = running.metrics()
                first, containers = seen["j10ce_agent_first_pass_seconds"], seen["j10ce_agent_containers"]
                if containers != 2 * count:
                    raise SystemExit(f"the first pass saw {containers:.0f} containers of {2 * count}")
                cpu, memory = steady(running, seconds)
                repairs, turns = drift(machine, pods, writes)
                more_pods(here, machine, count)
                settle(running)
                churning = churn(here, machine, running, seconds)
        finally:
            cluster.down(here.name)
        unit = 1000 * unit_seconds(50)
        beside = f"x {APPLY_UNITS} units of fixed work, just after"
        figures.append(Figure(f"first apply of {count} pods", 1000 * first, plain, 5, "ms", beside))
        figures.append(Figure("CPU a second", 10 * cpu, unit, 20, "ms", "x a unit of fixed work"))
        name = f"CPU a second, {2 * count} pods, {2 * STARTS_A_SECOND} container starts"
        figures.append(Figure(name, 10 * churning, unit, 100, "ms", "x a unit of fixed work"))
        figures.append(Figure("memory", memory, 1.0, 80, "MB", "plain"))
        beside = f"x a plain turn; medians {statistics.median(repairs):.1f}, {statistics.median(turns):.1f}"
        figures.append(Figure("repair of a write, p99", p99(repairs), p99(turns), 5, "ms", beside))
        figures.append(start_figure(starts(folder, rounds)))
    return figures


def start_figure(took: dict[str, list[float]]) -> Figure:
    """What NRI adds to a container's start."""
    plain, watched = middle(took["without"]), middle(took["with"])
    least, most = interval(took["with"], took["without"])
    beside = f"x one without; {watched - plain:.1f} ms more, {least:.1f} to {most:.1f} at 90 %"
    return Figure("a container's start", watched, plain, 1.15, "ms", beside)


def main() -> None:
    """Print the figures; exit code 1 when one is out of its bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=60, help="of steady state")
    parser.add_argument("--writes", type=int, default=300, help="foreign writes")
    parser.add_argument(
        "--rounds", type=int, default=150, help="pods of two containers that start, of each kind"
    )
    given: Any = parser.parse_args()
    exit_on_sigterm()
    sys.exit(show(measure(given.pods, given.seconds, given.writes, given.rounds)))


if __name__ == "__main__":
    main()
