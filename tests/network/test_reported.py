"""A policy with a network floor, from the kernel to its condition Applied: agent, NodeQoS, extender."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

import pytest

from adapters.kubernetes import node_qos
from adapters.kubernetes.node_qos import NodeNews
from agent.enforcement.enforcer import Report
from agent.network.uplink import Uplink
from agent.network_report import NetworkReport
from agent.node_network import NodeNetwork
from agent.planner import PlannedPod
from agent.reporting import policy_states
from agent.state import ContainerKey, KnownPod
from extender.delivery import Judgement, applied
from extender.node_reports import NodeReports
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.needs import needs_of, obstacle
from qos.cluster.node_report import NodeReport, PromiseState
from qos.cluster.objects import Selector
from qos.cluster.policy import NodeEnforcement, Policy
from qos.keys import EGRESS_BANDWIDTH
from qos.network.wanted import Link
from qos.pods.containers import NodePod
from qos.pods.decision import decided
from tests.network.node import Node, Pod
from tests.network.test_node_network import MEGABIT, Agent
from tests.waiting import eventually

POLICY = Policy(
    "shop/web", "shop", "web", "u", 1, "1", 0.0, Selector(), {EGRESS_BANDWIDTH: 100_000_000},
    enforcement=NodeEnforcement.STRICT,
)  # fmt: skip
NEEDED = needs_of(POLICY, None)
OTHERS = tuple(PromiseState(name, True) for name in NEEDED if "(network)" not in name)


@dataclass
class Reporting(Agent):
    """With one pod of the policy, all of whose kernel files are written."""

    uplink: Uplink = field(default_factory=Uplink)

    def planned(self) -> dict[str, PlannedPod]:
        known = self.known.pods.items()
        return {uid: PlannedPod(decided(one.pod, [POLICY], {}, None), ()) for uid, one in known}

    def put(self, pod: Pod) -> None:
        one = NodePod("one", "shop", "web-1", ())
        self.known.pods["one"] = KnownPod(one, addresses=(pod.address, pod.address6))

    def report(self, network: NodeNetwork) -> NodeReport:
        self.uplink.link, self.uplink.problem = self.link, "" if self.link else "nobody says how fast it is"
        key = ContainerKey("one", "main")
        of_network = NetworkReport(network, self.uplink, time.monotonic)
        done = Report(key, applied=True, verified_at=1.0)
        states = policy_states(
            self.planned().values(), [key], {key: done}, 0.0, lambda _: 0.0, network=of_network.of_pod
        )
        promises = (*OTHERS, *of_network.promises())
        return NodeReport("1", "6", "v2", "c", promises, policies=states, network=of_network.state())

    def news(self, network: NodeNetwork) -> NodeNews:
        """As the extender reads it."""
        written = node_qos.new("n1", "u") | {"status": node_qos.status_of(self.report(network), (), 1.0)}
        return node_qos.news(json.dumps(written).encode())

    def applied(self, network: NodeNetwork) -> Judgement:
        """The policy's condition."""
        reports = NodeReports(Ledger(Mode.STRICT), clock=time.monotonic, changed=lambda: None)
        reports.set(self.news(network))
        return applied(reports.delivery(POLICY.key, POLICY.uid), 1)


@pytest.fixture(name="agent")
def _agent(node: Node, tmp_path: pytest.TempPathFactory, bpffs: str) -> Reporting:
    link = Link(node.nic, "eth0", 1000 * MEGABIT, 1000 * MEGABIT)
    return Reporting(node, tmp_path, bpffs, link=link)  # type: ignore[arg-type]


def test_a_strict_policy_with_a_network_floor_is_applied(agent: Reporting) -> None:
    pod = agent.node.pod()

    async def work(network: NodeNetwork) -> None:
        await eventually(lambda: obstacle(NEEDED, agent.news(network).enforcement) == "", "the node is able")
        agent.put(pod)
        assert agent.applied(network)[:2] == ("Unknown", "InProgress")
        network.changed()
        await eventually(
            lambda: agent.applied(network)[:2] == ("True", "AllApplied"), "the policy is applied"
        )
        shown = agent.node.run("tc", "class", "show", "dev", "eth0", "classid", "10ce:10")
        assert "rate 100Mbit" in shown

    agent.while_running(work)


def test_who_owns_the_nic_is_said_before_a_pod_asks_for_it(agent: Reporting) -> None:
    agent.node.run("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "tbf",
                   "rate", "1gbit", "burst", "1m", "limit", "1m")  # fmt: skip
    pod = agent.node.pod()

    async def work(network: NodeNetwork) -> None:
        def said() -> str:
            return obstacle(NEEDED, agent.news(network).enforcement)

        await eventually(
            lambda: said().startswith("floor (network): ForeignQdisc: tbf 1: at eth0"), "it is said"
        )
        state = agent.report(network).network
        assert state is not None
        assert state.obstacle is not None
        agent.put(pod)
        network.changed()
        await eventually(lambda: agent.applied(network).reason == "PlanNotApplied", "and of the pod, too")
        assert "pod web-1: floor (network): ForeignQdisc: " in agent.applied(network).message

    agent.while_running(work)


def test_a_link_of_which_nobody_knows_the_speed(agent: Reporting) -> None:
    agent.link = None
    agent.put(agent.node.pod())

    async def work(network: NodeNetwork) -> None:
        await eventually(lambda: agent.applied(network).reason == "PlanNotApplied", "it is said")
        assert "floor (network): LinkUnknown: 100M bits/s of the floor" in agent.applied(network).message
        assert "LinkUnknown: nobody says how fast" in obstacle(NEEDED, agent.news(network).enforcement)
        await asyncio.sleep(0)

    agent.while_running(work)
