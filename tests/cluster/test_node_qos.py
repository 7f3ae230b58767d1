"""NodeQoS end to end: the agent's writer, a Strict policy that goes by it, and what its status tells."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from adapters.api import EVENTS, NODE_QOS, PODS, POLICIES, NotFound
from adapters.kubernetes.client import KubernetesAPI
from agent.report.writer import ReportWriter
from lab import cluster as lab_cluster
from lab import components, extender_process, nodes
from lab.cluster import Cluster
from lab.extender_process import ExtenderProcess
from qos.cluster.network_state import (
    INTERFACE,
    LABEL,
    OPTION,
    TO_LINK,
    TO_PODS,
    LinkState,
    NetworkState,
    Obstacle,
    Technique,
)
from qos.cluster.node_report import NodeReport, PolicyState, PromiseState, conditions
from tests.waiting import running

pytestmark = pytest.mark.cluster

SCHEDULER = Path(__file__).parents[2] / "scheduler-config" / "second-scheduler.yaml"
DEADLINE = 120.0

Object = dict[str, Any]

NO_FILE = "this kernel has no memory.low"
REPORT = NodeReport(
    "0.1.0",
    "6.12.0",
    "v2",
    "containerd 2.1.4",
    promises=tuple(PromiseState(name, True) for name in ("floor (cpu)", "memory_low_percent")),
    pressure={"cpu": "None", "memory": "Some", "io": "None"},
)
OLD = replace(
    REPORT,
    kernel="3.10.0",
    cgroup="v1",
    promises=(REPORT.promises[0], PromiseState("memory_low_percent", False, "", NO_FILE)),
)


class Rig:
    """The shared cluster with an extender, a second scheduler, and three nodes of our own."""

    def __init__(self, cluster: Cluster, extender: ExtenderProcess) -> None:
        self.cluster, self.extender = cluster, extender
        self.id = f"strict-{uuid.uuid4().hex[:6]}"
        self.old, self.able, self.silent = (f"{self.id}-{name}" for name in ("old", "able", "silent"))

    def create(self, *objects: Object) -> None:
        self.cluster.kubectl("create", "-f", "-", stdin="\n---\n".join(json.dumps(one) for one in objects))

    def nodes(self) -> list[Object]:
        capacity = {"cpu": "2", "memory": "4Gi"}
        names = (self.old, self.able, self.silent)
        return [nodes.node(name, capacity, labels={"pool": self.id}) for name in names]

    def pod(self, name: str) -> Object:
        requests = {"cpu": "1", "memory": "1Gi"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.id, "labels": {"app": "checkout"}},
            "spec": {
                "schedulerName": "j10ce-scheduler",
                "nodeSelector": {"pool": self.id},
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "c", "resources": {"requests": requests}}],
            },
        }

    def policy(self) -> Object:
        return {
            "apiVersion": "j10ce.io/v1alpha1",
            "kind": "MinimalReservationPolicy",
            "metadata": {"name": "checkout", "namespace": self.id},
            "spec": {
                "selector": {"matchLabels": {"app": "checkout"}},
                "floor": {"resources": {"cpu": "1", "memory": "1Gi"}},
                "slots": {"count": 2},
                "placement": {"nodeSelector": {"pool": self.id}},
                "nodeEnforcement": "Strict",
            },
        }


class View:
    """What the API server has of a rig; read without a process each time."""

    def __init__(self, api: KubernetesAPI, rig: Rig) -> None:
        self._api, self._rig = api, rig

    async def policy(self) -> Object:
        found: Object = json.loads(await self._api.get(POLICIES, self._rig.id, "checkout"))
        return found

    async def condition(self, kind: str) -> tuple[str, str]:
        conditions = (await self.policy()).get("status", {}).get("conditions", ())
        found = {one["type"]: one for one in conditions}
        return (found[kind]["reason"], found[kind]["message"]) if kind in found else ("", "")

    async def pods(self) -> list[Object]:
        page = await self._api.list_page(PODS, namespace=self._rig.id)
        return [json.loads(raw) for raw in page.items]

    async def placed(self) -> dict[str, str]:
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in await self.pods()}

    async def refused(self) -> str:
        """What kube-scheduler says of pods that it finds no node for."""
        return str([one["status"].get("conditions") for one in await self.pods()])

    async def node(self) -> Object:
        found: Object = json.loads(await self._api.get(NODE_QOS, "", self._rig.able))
        return found

    async def events(self) -> str:
        page = await self._api.list_page(EVENTS, namespace=self._rig.id)
        return b" ".join(page.items).decode()

    async def until(self, what: str, ready: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                while not await ready():  # noqa: ASYNC110 - the API server sends no events to a test
                    await asyncio.sleep(0.1)
        except TimeoutError:
            status = (await self.policy()).get("status"), await self.refused()
            raise AssertionError(f"{what}: {status} {self._rig.extender.last_words()}") from None

    async def until_reason(self, kind: str, reason: str) -> str:
        """The condition's message, once it has this reason."""

        async def is_so() -> bool:
            return (await self.condition(kind))[0] == reason

        await self.until(f"{kind} {reason}", is_so)
        return (await self.condition(kind))[1]

    async def until_says(self, kind: str, reason: str, words: str) -> None:
        """Until the condition has this reason, and its message these words."""

        async def is_so() -> bool:
            found, message = await self.condition(kind)
            return found == reason and words in message

        await self.until(f"{kind} {reason}: {words}", is_so)

    async def until_told(self, words: str) -> None:
        async def is_told() -> bool:
            return words in await self.events()

        await self.until(f"an event says {words}", is_told)


@pytest.fixture
def rig(cluster: Cluster) -> Iterator[Rig]:
    extender = extender_process.start(cluster, extra=["--cap-percent", "100"])
    made = Rig(cluster, extender)
    made.create(
        *made.nodes(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": made.id}}, made.policy()
    )
    scheduler = lab_cluster.add_scheduler(cluster, "j10ce-scheduler", SCHEDULER, verbs_url=extender.verbs_url)
    try:
        extender.wait_ready(DEADLINE)
        yield made
    finally:
        components.kill(cluster.folder, scheduler)
        extender.kill()
        cluster.kubectl("delete", "namespace", made.id, "--wait=false")
        cluster.kubectl("delete", "node", made.old, made.able, made.silent, "--wait=false")


@asynccontextmanager
async def agent(api: KubernetesAPI, node: str) -> AsyncIterator[ReportWriter]:
    """The agent's part: nothing but its writer."""
    writer = ReportWriter(api, node, registry=CollectorRegistry())
    async with running(writer.run()):
        yield writer


async def test_a_strict_policy_goes_by_what_the_nodes_report(rig: Rig) -> None:
    async with (
        KubernetesAPI.from_kubeconfig(rig.cluster.kubeconfig) as api,
        agent(api, rig.old) as old,
        agent(api, rig.able) as able,
    ):
        seen = View(api, rig)
        await seen.until_says("Feasible", "NodeCannotEnforce", f"{rig.able}: has no NodeQoS")
        old.offer(OLD)
        # Else a pod can be refused before its report is there, and nothing makes it be asked again.
        await seen.until_says("Feasible", "NodeCannotEnforce", f"{rig.old}: memory_low_percent: {NO_FILE}")
        able.offer(REPORT)
        await seen.until_reason("Held", "EverySlotHeld")
        policy = await seen.policy()
        assert policy["status"]["holds"] == [{"nodeName": rig.able, "slots": 2}]
        owners = (await seen.node())["metadata"]["ownerReferences"]
        assert [(one["kind"], one["name"]) for one in owners] == [("Node", rig.able)]

        rig.create(rig.pod("a"), rig.pod("b"))

        async def both_run() -> bool:
            return await seen.placed() == {"a": rig.able, "b": rig.able}

        await seen.until("owners get their slots", both_run)
        rig.create(rig.pod("c"))

        async def is_refused() -> bool:
            return f"cannot enforce it: memory_low_percent: {NO_FILE}" in await seen.refused()

        await seen.until("the refusal says why", is_refused)
        assert (await seen.placed())["c"] == "", "the other nodes have room, but cannot keep the floor"

        state = PolicyState(f"{rig.id}/checkout", policy["metadata"]["uid"], pods=2, applied=2, verified=2)
        able.offer(replace(REPORT, policies=(state,)))
        await seen.until_reason("Verified", "AllReadBack")
        assert (await seen.condition("Applied"))[0] == "AllApplied"
        refused = replace(state, applied=1, verified=1, message="memory.min of pod b: EBUSY")
        able.offer(replace(REPORT, policies=(refused,)))
        message = await seen.until_reason("Applied", "PlanNotApplied")
        assert message == f"1 of 2 pods lack settings: {rig.able}: memory.min of pod b: EBUSY"
        await seen.until_told(message)

    header, row = rig.cluster.kubectl("get", "nodeqos", rig.able).splitlines()
    columns = ["NAME", "READY", "APPLIED", "CGROUP", "CPU", "MEMORY", "IO", "FIGHTS", "HEARTBEAT", "AGE"]
    assert header.split() == columns
    assert row.split()[1:8] == ["True", "False", "v2", "None", "Some", "None", "0"]


ABLE = NetworkState(
    LinkState("eth0", 9_400_000_000, OPTION, 9_000_000_000, INTERFACE),
    (
        Technique(TO_LINK, "htb, classified by a BPF program (TCX)"),
        Technique(TO_PODS, "nothing", "tbf: no module"),
    ),
)
FOREIGN = replace(
    ABLE,
    link=LinkState("bond0", egress=1_500_000_500, egress_source=LABEL),
    obstacle=Obstacle("ForeignQdisc", "mq 1: at bond0 was put there by another"),
    contradictions=("egress: minima are 110 % of the link",),
)


async def test_a_node_says_what_it_keeps_of_networks(cluster: Cluster) -> None:
    """As kubectl shows it; what is not so any more is taken away."""
    name = f"network-{uuid.uuid4().hex[:6]}"
    made = json.dumps(nodes.node(name))
    cluster.kubectl("create", "-f", "-", stdin=made)
    kept = (PromiseState("floor (network)", True), PromiseState("limit (network)", True, "", "not of BPF"))
    async with KubernetesAPI.from_kubeconfig(cluster.kubeconfig) as api, agent(api, name) as writer:

        async def status(of: NetworkState | None, fights: int = 0) -> Object:
            """Once it is written as it is now."""
            report = replace(REPORT, network=of, promises=kept, fights=fights)
            writer.offer(report)
            wanted = {one.type: one.reason for one in conditions(report)}
            async with asyncio.timeout(DEADLINE):
                while True:
                    with contextlib.suppress(NotFound):
                        found: Object = json.loads(await api.get(NODE_QOS, "", name)).get("status", {})
                        said = {one["type"]: one["reason"] for one in found.get("conditions", ())}
                        if said == wanted:
                            return found
                    await asyncio.sleep(0.1)

        shown = await status(ABLE)
        assert shown["network"]["link"] == {
            "interface": "eth0",
            "egress": "9400M",
            "egressSource": "Option",
            "ingress": "9G",
            "ingressSource": "Interface",
        }
        assert shown["network"]["techniques"] == [
            {"traffic": "ToLink", "technique": "htb, classified by a BPF program (TCX)"},
            {"traffic": "ToPods", "technique": "nothing", "message": "tbf: no module"},
        ]
        assert shown["promises"] == [
            {"promise": "floor (network)", "enforced": True},
            {"promise": "limit (network)", "enforced": True, "message": "not of BPF"},
        ]
        assert says(shown, "NetworkKept") == (
            "True",
            "Shaped",
            "what pods send is shaped where it leaves the node",
        )
        assert says(shown, "NetworkConsistent")[:2] == ("True", "NoContradiction")
        assert column(cluster, name, "NETWORK") == "Shaped"

        shown = await status(FOREIGN, fights=1)
        assert shown["network"]["link"] == {
            "interface": "bond0",
            "egress": "1500000500",
            "egressSource": "Label",
        }
        assert says(shown, "NetworkKept") == (
            "False",
            "ForeignQdisc",
            "mq 1: at bond0 was put there by another",
        )
        consistent = ("False", "Contradiction", "egress: minima are 110 % of the link")
        assert says(shown, "NetworkConsistent") == consistent
        assert (column(cluster, name, "NETWORK"), column(cluster, name, "FIGHTS")) == ("ForeignQdisc", "1")

        shown = await status(None)
        assert "network" not in shown
        assert column(cluster, name, "NETWORK") == ""
    cluster.kubectl("delete", "node", name, "--wait=false")


def says(status: Object, kind: str) -> tuple[str, str, str]:
    (one,) = [one for one in status["conditions"] if one["type"] == kind]
    assert one["lastTransitionTime"]
    return one["status"], one["reason"], one["message"]


def column(cluster: Cluster, node: str, name: str) -> str:
    """As kubectl get -o wide has it."""
    header, row = cluster.kubectl("get", "nodeqos", node, "-o", "wide").splitlines()
    at = header.index(name)
    return row[at:].split("  ")[0].strip()
