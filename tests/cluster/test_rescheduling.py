"""A hot node's pod moves to a cool one: real API server, kube-scheduler, controllers, extender and manager.

What nodes use is what the test writes, as metrics.k8s.io or as agents in NodeQoS: two CPUs for each pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML

from adapters.api import (
    EVENTS,
    MIGRATION_JOBS,
    NODE_METRICS,
    NODE_QOS,
    NODES,
    POD_METRICS,
    PODS,
    RESERVATIONS,
    NotFound,
    Resource,
)
from adapters.kubernetes import node_qos
from adapters.kubernetes.client import KubernetesAPI
from lab import extender_process, nodes, ports
from lab.cluster import Cluster
from qos.cluster.node_report import NodeReport, UsageState

pytestmark = [pytest.mark.cluster, pytest.mark.full]

ROOT = Path(__file__).parents[2]
STRICT = ROOT / "scheduler-config" / "strict.yaml"
HERE = Path(__file__).parent
METRICS = HERE / "metrics.yaml"
DEFINITIONS = (ROOT / "lab" / "reservations.yaml", HERE / "migration_jobs.yaml")
DEADLINE = 120.0
EACH_USES = 2
USED = {"cpu": 1000 * EACH_USES, "memory": 1 << 20}

POOL = {
    "name": "all",
    "lowThresholds": {"cpu": 45},
    "highThresholds": {"cpu": 65},
    "anomalyCondition": {"consecutiveAbnormalities": 2},
}
ROUNDS = {"intervalSeconds": 1, "settleSeconds": 2, "nodeMetricExpirationSeconds": 30, "ttlSeconds": 60}

Object = dict[str, Any]


class World:
    """The cluster as the test sees and changes it."""

    def __init__(self, cluster: Cluster, api: KubernetesAPI, folder: Path) -> None:
        self.cluster, self.api, self.folder = cluster, api, folder
        self.beat = 0
        self.port = 0

    async def objects(self, resource: Resource) -> list[Object]:
        return [json.loads(raw) for raw in (await self.api.list_page(resource)).items]

    async def where(self) -> dict[str, str]:
        """Running pods of the workload, and their nodes."""
        found = await self.objects(PODS)
        return {
            one["metadata"]["name"]: one["spec"].get("nodeName", "")
            for one in found
            if one["metadata"]["namespace"] == "default" and "deletionTimestamp" not in one["metadata"]
        }

    async def measure(self) -> None:
        """What metrics-server would say now."""
        self.beat += 1
        places = await self.where()
        for node in ("hot", "cool"):
            cpu = EACH_USES * sum(place == node for place in places.values())
            body = {"timestamp": str(self.beat), "usage": {"cpu": str(cpu), "memory": "1Gi"}}
            await self.write(NODE_METRICS, "", node, body)
        for name in places:
            body = {
                "timestamp": str(self.beat),
                "containers": [{"usage": {"cpu": str(EACH_USES), "memory": "1Mi"}}],
            }
            await self.write(POD_METRICS, "default", name, body)

    async def report(self, stamp: float) -> None:
        """What agents would write now of usage that was measured at `stamp`; their heartbeats go on."""
        places = await self.where()
        for node in ("hot", "cool"):
            pods = {f"default/{name}": USED for name, place in places.items() if place == node}
            used = {"cpu": 1000 * EACH_USES * len(pods), "memory": 1 << 30}
            report = NodeReport("1", "6.12", "v2", "c", usage=UsageState(stamp, used, pods))
            body = {"status": node_qos.status_of(report, (), time.time())}
            try:
                await self.api.patch(NODE_QOS, "", node, body, subresource="status")
            except NotFound:
                uid = node_qos.uid_in(await self.api.get(NODES, "", node))
                await self.api.create(NODE_QOS, "", node_qos.new(node, uid))

    async def rescheduling(self) -> Object:
        """What the manager shows of its last round; {} where it does not answer yet."""
        async with httpx.AsyncClient() as client:
            try:
                shown = await client.get(f"http://127.0.0.1:{self.port}/rescheduling", timeout=10)
            except httpx.TransportError:
                return {}
        found: Object = shown.json()
        return found

    async def write(self, resource: Resource, namespace: str, name: str, body: Object) -> None:
        try:
            await self.api.patch(resource, namespace, name, body)
        except NotFound:
            meta = {
                "apiVersion": "metrics.k8s.io/v1beta1",
                "kind": resource.kind,
                "metadata": {"name": name},
            }
            await self.api.create(resource, namespace, meta | body)

    async def wait(
        self, ready: Callable[[], Any], says: str, meanwhile: Callable[[], Any] | None = None
    ) -> None:
        """Measure on, or do this, until it is so."""
        deadline = time.monotonic() + DEADLINE
        while not await ready():
            assert time.monotonic() < deadline, f"not within {DEADLINE} s: {says}; {self.words()}"
            await (meanwhile or self.measure)()
            await asyncio.sleep(0.3)

    def words(self) -> str:
        log = self.folder / "manager.log"
        return log.read_text()[-3000:] if log.exists() else ""

    @contextlib.contextmanager
    def manager(self, mode: str, **changes: Any) -> Iterator[None]:
        """The manager as a process of its own."""
        config = self.folder / "manager.yaml"
        with config.open("w") as file:
            said = {"mode": mode, "nodePools": [POOL], "podMigrationJobs": mode == "Active"}
            YAML().dump({"rescheduling": said | ROUNDS | changes}, file)
        (self.port,) = (port,) = ports.reserve(self.folder, 1)
        argv = [sys.executable, "-P", "-c", "from manager.commands import main; main()"]
        argv += ["--config", str(config), "--kubeconfig", str(self.folder / "kubeconfig")]
        argv += ["--address", f"127.0.0.1:{port}", "--identity", mode]
        with (self.folder / "manager.log").open("a") as log, subprocess.Popen(argv, stderr=log) as process:
            try:
                yield
            finally:
                process.terminate()
                process.wait(60)

    async def reasons(self) -> list[str]:
        return [one["reason"] for one in await self.objects(EVENTS) if "reason" in one]


@pytest.fixture
async def world(
    request: pytest.FixtureRequest, make_cluster: Callable[..., Cluster], tmp_path: Path
) -> AsyncIterator[World]:
    """Two nodes, with four pods on one of them; metrics.k8s.io is served where the test asks for it."""
    cluster = make_cluster(STRICT)
    for path in (*DEFINITIONS, *request.param):
        cluster.kubectl("create", "-f", str(path))
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(path))
    config = {"koordinator": {"reservations": True}}
    extender = extender_process.start(cluster, mode="Strict", config=config, extra=["--cap-percent", "100"])
    extender.wait_ready()
    capacity = {"cpu": "10", "memory": "64Gi", "pods": "110"}
    made = [nodes.node(name, capacity) for name in ("hot", "cool")]
    cluster.kubectl("create", "-f", "-", stdin="\n---\n".join(map(json.dumps, made)))
    cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
    cluster.kubectl("cordon", "cool")
    container = {"name": "m", "image": "registry.invalid/none", "resources": {"requests": {"cpu": "1"}}}
    labels = {"app": "batch"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "batch", "namespace": "default"},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            },
        },
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(deployment))
    cluster.kubectl("rollout", "status", "deployment/batch", "--timeout=60s")
    cluster.kubectl("uncordon", "cool")
    give_rights(cluster, tmp_path / "kubeconfig")
    async with KubernetesAPI.from_kubeconfig(cluster.kubeconfig) as api:
        yield World(cluster, api, tmp_path)


def give_rights(cluster: Cluster, kubeconfig: Path) -> None:
    """A kubeconfig of the manager's account, which has what manifests give it."""
    cluster.kubectl("create", "namespace", "j10ce-system")
    for name in ("manager/account.yaml", "manager/rights.yaml"):
        cluster.kubectl("create", "-f", str(ROOT / "manifests" / name))
    cluster.kubectl("create", "-k", str(ROOT / "manifests" / "rescheduling-active"))
    document = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    token = cluster.kubectl("create", "token", "j10ce-manager", "-n", "j10ce-system").strip()
    for user in document["users"]:
        user["user"] = {"token": token}
    kubeconfig.write_text(json.dumps(document))


async def follow(api: KubernetesAPI, resource: Resource, seen: list[tuple[int, str, Object]]) -> None:
    """Every change, with its resourceVersion, which counts for all kinds together."""
    page = await api.list_page(resource)
    async for event in api.watch(resource, resource_version=page.resource_version):
        one = json.loads(event.object)
        seen.append((int(one["metadata"]["resourceVersion"]), event.type, one))


async def job_moves_a_pod(world: World, places: dict[str, str]) -> None:
    """A PodMigrationJob, as Koordinator's users write it: the pod goes anywhere else."""
    (name,) = (pod for pod, node in places.items() if node == "cool")
    job = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": "by-hand"},
        "spec": {"mode": "ReservationFirst", "podRef": {"namespace": "default", "name": name}},
    }
    world.cluster.kubectl("create", "-f", "-", stdin=json.dumps(job))

    async def over() -> bool:
        (job,) = await world.objects(MIGRATION_JOBS)
        return job.get("status", {}).get("phase") in ("Succeeded", "Failed")

    await world.wait(over, "the job ends")
    (job,) = await world.objects(MIGRATION_JOBS)
    status = job["status"]
    assert (status["phase"], status["nodeName"]) == ("Succeeded", "hot")
    assert (await world.where())[status["podRef"]["name"]] == "hot"
    kinds = [one["type"] for one in status["conditions"]]
    assert kinds[:3] == ["ReservationCreated", "ReservationScheduled", "Eviction"]


@pytest.mark.parametrize("world", [[METRICS]], indirect=True, ids=["metrics.k8s.io"])
async def test_a_hot_nodes_pod_has_its_place_before_it_is_evicted_and_nothing_moves_twice(
    world: World,
) -> None:
    before = await world.where()
    assert set(before.values()) == {"hot"}

    with world.manager("Preview"):

        async def told() -> bool:
            return "WouldMigrate" in await world.reasons()

        await world.wait(told, "what would be moved is told")
    assert await world.where() == before
    assert await world.objects(RESERVATIONS) == []

    changes: list[tuple[int, str, Object]] = []
    tasks = [asyncio.create_task(follow(world.api, kind, changes)) for kind in (PODS, RESERVATIONS)]
    spec = {"minAvailable": 4, "selector": {"matchLabels": {"app": "batch"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "batch"}}
    world.cluster.kubectl("create", "-f", "-", stdin=json.dumps(budget | {"spec": spec}))
    with world.manager("Active"):

        async def refused() -> bool:
            return "disruption budget" in world.words()

        await world.wait(refused, "a PodDisruptionBudget refuses the eviction")
        assert await world.where() == before
        world.cluster.kubectl("delete", "pdb", "batch")

        async def moved() -> bool:
            return "Migrated" in await world.reasons()

        await world.wait(moved, "a pod moves")
        after = await world.where()
        assert sorted(after.values()) == ["cool", "hot", "hot", "hot"]
        until = world.beat + 30
        while world.beat < until:  # ten rounds more, in which nobody is high
            await world.measure()
            await asyncio.sleep(0.3)
        assert await world.where() == after
        await job_moves_a_pod(world, after)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    reservation = next(
        one for one in await world.objects(RESERVATIONS) if one["spec"]["template"]["spec"].get("nodeName")
    )
    assert reservation["status"]["phase"] == "Succeeded"
    assert json.loads(reservation["metadata"]["annotations"]["j10ce.io/migration-outcome"])["failed"] == ""
    (gone,) = before.keys() - after.keys()
    held = min(v for v, _, one in changes if one.get("status", {}).get("phase") == "Available")
    ends = min(
        version
        for version, kind, one in changes
        if one["metadata"]["name"] == gone and (kind == "DELETED" or "deletionTimestamp" in one["metadata"])
    )
    assert held < ends


@pytest.mark.parametrize("world", [[]], indirect=True, ids=["NodeQoS"])
async def test_where_no_metrics_are_served_pods_move_by_what_nodes_report(world: World) -> None:
    """And not by old reports, though heartbeats go on: nobody knows what is so by now."""
    before = await world.where()

    stamp = 0.0

    async def says(words: str) -> bool:
        return words in (await world.rescheduling()).get("problem", "")

    async def silent() -> bool:
        return await says("no node has a fresh NodeQoS")

    async def known() -> bool:
        shown = (await world.rescheduling()).get("usage")
        return bool(shown == {"NodeQoS": 2, "metrics.k8s.io": 0, "unknown": 0})

    async def moved() -> bool:
        return "Migrated" in await world.reasons()

    async def nothing() -> None:
        """Nobody writes."""

    async def old() -> None:
        await world.report(stamp)

    async def new() -> None:
        nonlocal stamp
        stamp = time.time()
        await world.report(stamp)

    pool = POOL | {"anomalyCondition": {"consecutiveAbnormalities": 5}}  # not before it is known and old
    with world.manager("Active", nodePools=[pool], nodeMetricExpirationSeconds=5):
        await world.wait(silent, "why nothing moves is told", nothing)
        await world.wait(known, "what nodes report is known", new)
        await world.wait(silent, "the reports are old", old)
        assert await world.where() == before
        assert await world.objects(RESERVATIONS) == []
        await world.wait(moved, "a pod moves", new)
        assert sorted((await world.where()).values()) == ["cool", "hot", "hot", "hot"]
