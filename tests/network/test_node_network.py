"""What keeps a node's network, in a node of namespaces: pods come, others write, all is taken away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from agent import node_network
from agent.containers import Containers
from agent.enforcement.fights import MOST_REPAIRS
from agent.network import ladder
from agent.network.configured import Configured
from agent.network.ladder import Choice, Choices, Means
from agent.network.leaving import leave
from agent.network.namespaces import inside
from agent.network.probes import Finding
from agent.network.starting import Starts
from agent.network.unkept import Problem
from agent.network_rounds.left import LeftNetwork
from agent.network_rounds.pods import Parts
from agent.node_network import NodeNetwork
from agent.nri.records import NriPod
from agent.planner import PlannedPod
from agent.provisional import pod_of
from agent.state import Known, KnownPod
from qos import keys
from qos.cluster.precedence import PriorityClasses
from qos.network.wanted import Link
from qos.pods.containers import NodePod
from qos.pods.decision import Decided, decide
from tests.network.node import Node, Pod
from tests.waiting import eventually

MEGABIT = 125_000


@dataclass
class Agent:
    """What the agent knows, and its network, on one node."""

    node: Node
    run: Path
    bpf_root: str
    known: Known = field(default_factory=Known)
    link: Link | None = None
    configured: Configured = field(default_factory=Configured)
    received: Callable[[int], None] | None = None
    knows_all: bool = True
    asked: int = 0
    sandboxes: dict[str, NriPod] = field(default_factory=dict)
    proc_folder: str = "/proc"

    def asked_whether_all(self) -> bool:
        self.asked += 1
        return self.knows_all

    def network(self, registry: CollectorRegistry) -> NodeNetwork:
        containers = Containers(lambda _: False, dict)
        parts = Parts(
            self.known,
            containers,
            self.planned,
            lambda one: _decided(one.pod),
            lambda: self.sandboxes,
            lambda _: "",
        )
        return NodeNetwork(
            parts,
            lambda: self.link,
            self.asked_whether_all,
            self.run,
            {},
            proc=self.proc_folder,
            bpf_root=self.bpf_root,
            registry=registry,
            configured=self.configured,
            received=self.received,
        )

    def planned(self) -> dict[str, PlannedPod]:
        return {uid: PlannedPod(_decided(one.pod), ()) for uid, one in self.known.pods.items()}

    def add(self, uid: str, pod: Pod, limit: str) -> None:
        self.known.pods[uid] = KnownPod(_pod(uid, limit), addresses=(pod.address, pod.address6))

    def unkept(self, network: NodeNetwork) -> tuple[Problem, ...] | None:
        """Of a pod with the first one's limit."""
        return network.unkept(_decided(_pod("one", "10M")))

    async def start(self, network: NodeNetwork, uid: str, pod: Pod, limit: str) -> None:
        """A sandbox, as the runtime tells of it; no plan is made yet."""
        self.sandboxes[uid] = sandbox = NriPod(
            uid[::-1],
            uid,
            "shop",
            f"pod-{uid}",
            annotations={keys.EGRESS_BANDWIDTH_ANNOTATION: limit} if limit else {},
            addresses=tuple(filter(None, (pod.address, pod.address6))),
            own_network=True,
        )
        await network.started(pod_of(sandbox))

    def ceilings(self) -> list[str]:
        """Of the NIC's classes that pods have, as tc shows them."""
        shown = self.node.run("tc", "class", "show", "dev", "eth0")
        return re.findall(r"class htb 10ce:1[0-9a-f] .* ceil (\w+) ", shown)

    def while_running(
        self, work: Callable[[NodeNetwork], Awaitable[None]], registry: CollectorRegistry | None = None
    ) -> None:
        """In the node's namespace, as its threads are, while rounds are made."""

        async def run() -> None:
            network = self.network(registry or CollectorRegistry())
            running = asyncio.create_task(network.run())
            try:
                await work(network)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

        inside(Path("/run/netns") / self.node.name, lambda: asyncio.run(run()))


def _pod(uid: str, limit: str) -> NodePod:
    return NodePod(uid, "shop", f"pod-{uid}", (), annotations={keys.EGRESS_BANDWIDTH_ANNOTATION: limit})


def _decided(pod: NodePod) -> Decided:
    return decide(pod, "", {}, {}, PriorityClasses({}))


@pytest.fixture(name="agent")
def _agent(node: Node, tmp_path: Path, bpffs: str) -> Agent:
    link = Link(node.nic, "eth0", 1000 * MEGABIT, 1000 * MEGABIT)
    return Agent(node, tmp_path, bpffs, link=link)


def test_files_of_others_are_heeded_in_bytes_and_a_tree_is_changed_in_place(
    agent: Agent, tmp_path: Path
) -> None:
    uid = "7c6a6c1e-0d7a-4d8b-9a53-2f1d4c1b0a11"
    folder = tmp_path / "qos"
    folder.mkdir()
    agent.configured = Configured(folder=folder)
    agent.add(uid, agent.node.pod(), "10M")

    def tree() -> str:
        return agent.node.run("tc", "class", "show", "dev", "eth0")

    async def work(network: NodeNetwork) -> None:
        await eventually(lambda: agent.ceilings() == ["10Mbit"], "the pod's class")
        (folder / "pod.json").write_text(
            json.dumps([{"podUID": uid, "qosConfig": {"egressBandwidth": 500_000}}])
        )
        (folder / "global_bps_config").write_text("hw_tx_bps_max 50000000\noffline_l1_tx_bps_min 5000000\n")
        assert agent.configured.look({})
        network.changed()
        await eventually(lambda: agent.ceilings() == ["4Mbit"], "the least, in bits")
        assert re.search(r"class htb 10ce:1 root rate 400Mbit ceil 400Mbit", tree())
        assert re.search(r"class htb 10ce:3 .* rate 40Mbit", tree())

    agent.while_running(work)


def test_pods_are_shaped_as_they_come_and_go(agent: Agent) -> None:
    agent.add("one", agent.node.pod(), "10M")
    second = agent.node.pod()

    async def work(network: NodeNetwork) -> None:
        assert agent.unkept(network) is None
        await eventually(lambda: agent.ceilings() == ["10Mbit"], "the first pod's class")
        await eventually(lambda: agent.unkept(network) == ())
        agent.add("two", second, "20M")
        network.changed()
        await eventually(lambda: sorted(agent.ceilings()) == ["10Mbit", "20Mbit"], "both")
        del agent.known.pods["one"]
        network.changed()
        await eventually(lambda: agent.ceilings() == ["20Mbit"], "the second alone")

    agent.while_running(work)
    assert agent.ceilings() == ["20Mbit"], "what is in the kernel goes on without the agent"


def test_what_others_take_away_comes_back_by_itself(agent: Agent) -> None:
    agent.add("one", agent.node.pod(), "10M")

    async def work(network: NodeNetwork) -> None:
        await eventually(lambda: agent.ceilings() == ["10Mbit"], "the pod's class")
        agent.node.run("tc", "qdisc", "del", "dev", "eth0", "root")
        await eventually(lambda: agent.ceilings() == ["10Mbit"], "the pod's class, again", 25)

    agent.while_running(work)


def test_nobody_is_fought(agent: Agent) -> None:
    """Somebody takes our tree away whenever it is there."""
    agent.add("one", agent.node.pod(), "10M")
    taken = 0

    def given_up(network: NodeNetwork) -> bool:
        nonlocal taken
        if "htb 10ce:" in agent.node.run("tc", "qdisc", "show", "dev", "eth0"):
            with contextlib.suppress(AssertionError):  # it was taken away by its owner in between
                agent.node.run("tc", "qdisc", "del", "dev", "eth0", "root")
                taken += 1
        return "undone again and again" in str(agent.unkept(network))

    async def work(network: NodeNetwork) -> None:
        await eventually(lambda: given_up(network), "it was given up", 60)
        assert MOST_REPAIRS < taken <= MOST_REPAIRS + 2
        assert network.fights == 1
        assert agent.ceilings() == []

    agent.while_running(work)


def tried(agent: Agent, *words: str) -> bool:
    """Whether it was done: what a command is about may be taken away by its owner in between."""
    try:
        agent.node.run("tc", "filter", *words)
    except AssertionError:
        return False
    return True


def deleting_the_program(agent: Agent) -> bool:
    """Whether our filter was there, which is gone now."""
    return "j10ce" in shown(agent, "egress") and tried(agent, "del", "dev", "eth0", "egress")


def deleting_sources(agent: Agent) -> bool:
    return "flowid" in shown(agent, *AT_OURS) and tried(agent, "del", "dev", "eth0", *AT_OURS)


def adding_a_source(agent: Agent) -> bool:
    """Whether a filter of another's at our qdisc was not there, or not any more."""
    if "flowid" not in shown(agent, *AT_OURS) or "c0000209" in shown(agent, *AT_OURS):
        return False
    match = ("protocol", "ip", "pref", "9", "u32", "match", "ip", "src", "192.0.2.9/32", "flowid", "10ce:5")
    return tried(agent, "add", "dev", "eth0", *AT_OURS, *match)


AT_OURS = ("parent", "10ce:")


def shown(agent: Agent, *where: str) -> str:
    try:
        return agent.node.run("tc", "filter", "show", "dev", "eth0", *where)
    except AssertionError:
        return ""


@pytest.mark.parametrize(
    ("sending", "undo"),
    [
        (Means.HTB_CLSACT, deleting_the_program),
        (Means.HTB_U32, deleting_sources),
        (Means.HTB_U32, adding_a_source),
    ],
)
def test_nobody_is_fought_over_filters(
    agent: Agent, sending: Means, undo: Callable[[Agent], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are given up nothing is left of ours, and that is said."""
    best, policing = ladder.choose, Choice(Means.POLICER_CLSACT)

    def chosen(found: Iterable[Finding]) -> Choices:
        return replace(best(found), sending=Choice(sending), policing=policing)

    monkeypatch.setattr(ladder, "choose", chosen)
    agent.add("one", agent.node.pod(), "10M")
    undone = 0

    def given_up(network: NodeNetwork) -> bool:
        nonlocal undone
        undone += undo(agent)
        return "undone again and again" in str(agent.unkept(network))

    async def work(network: NodeNetwork) -> None:
        await eventually(lambda: agent.ceilings() == ["10Mbit"], "the pod's class")
        await eventually(lambda: given_up(network), "it was given up", 60)
        assert MOST_REPAIRS < undone <= MOST_REPAIRS + 2
        assert network.fights == 1
        assert agent.ceilings() == []
        assert "j10ce" not in shown(agent, "egress")

    agent.while_running(work)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that starts is waited for on a busy machine, too."""
    monkeypatch.setattr(node_network, "Starts", partial(Starts, at_most=30.0))


@pytest.mark.usefixtures("patient")
def test_a_pod_that_starts_has_its_class_before_the_runtime_goes_on(agent: Agent) -> None:
    """And keeps it in rounds that come before it is planned, and until its sandbox is gone."""
    first, second = agent.node.pod(), agent.node.pod()
    agent.add("one", first, "10M")
    registry = CollectorRegistry()

    async def work(network: NodeNetwork) -> None:
        await eventually(lambda: agent.ceilings() == ["10Mbit"], "the first pod's class")
        await agent.start(network, "two", second, "20M")
        assert sorted(agent.ceilings()) == ["10Mbit", "20Mbit"]
        agent.add("three", second, "30M")
        network.changed()
        await eventually(lambda: "30Mbit" in agent.ceilings(), "one more round")
        assert sorted(agent.ceilings()) == ["10Mbit", "20Mbit", "30Mbit"]
        del agent.sandboxes["two"]
        network.changed()
        await eventually(lambda: sorted(agent.ceilings()) == ["10Mbit", "30Mbit"], "it has ended")

    agent.while_running(work, registry)
    name = "j10ce_agent_network_starts_total"
    assert registry.get_sample_value(name, {"outcome": "shaped"}) == 1


def test_a_pod_that_asks_for_nothing_waits_for_nothing(agent: Agent) -> None:
    registry = CollectorRegistry()

    async def work(network: NodeNetwork) -> None:
        await agent.start(network, "two", agent.node.pod(), "")

    agent.while_running(work, registry)
    assert registry.get_sample_value("j10ce_agent_network_start_seconds_count") == 0


def test_where_no_round_can_be_made_yet_a_pod_starts_all_the_same(agent: Agent) -> None:
    agent.knows_all = False
    registry = CollectorRegistry()

    async def work(network: NodeNetwork) -> None:
        await agent.start(network, "two", agent.node.pod(), "20M")
        agent.knows_all = True
        network.changed()
        await eventually(lambda: agent.ceilings() == ["20Mbit"], "once it can")

    agent.while_running(work, registry)
    name = "j10ce_agent_network_starts_total"
    assert registry.get_sample_value(name, {"outcome": "too_early"}) == 1


@pytest.mark.usefixtures("patient")
def test_a_pod_whose_address_no_one_tells_yet_does_not_count_as_shaped(agent: Agent) -> None:
    """As containerd 1.7 tells of it."""
    registry, pod = CollectorRegistry(), agent.node.pod()

    async def work(network: NodeNetwork) -> None:
        agent.add("one", pod, "10M")
        await eventually(lambda: agent.ceilings() == ["10Mbit"], "rounds are made")
        await agent.start(network, "two", replace(pod, address="", address6=""), "20M")

    agent.while_running(work, registry)
    name = "j10ce_agent_network_starts_total"
    assert registry.get_sample_value(name, {"outcome": "unkept"}) == 1


def test_a_pod_is_told_why_its_limit_is_not_kept(agent: Agent) -> None:
    agent.add("one", agent.node.pod(), "10M")
    agent.link = None

    async def work(network: NodeNetwork) -> None:
        await eventually(lambda: "not known" in str(agent.unkept(network)))
        assert agent.ceilings() == []

    agent.while_running(work)


def test_the_node_is_left_as_it_was_found(agent: Agent) -> None:
    agent.add("one", agent.node.pod(), "10M")
    before = agent.node.everything()

    async def work(_: NodeNetwork) -> None:
        await eventually(lambda: agent.ceilings() == ["10Mbit"], "the pod's class")

    agent.while_running(work)
    assert agent.node.everything() != before
    where = Path("/run/netns") / agent.node.name
    assert inside(where, lambda: leave(agent.run, agent.bpf_root)) == []
    assert agent.node.everything() == before
    assert not (Path(agent.bpf_root) / "j10ce").exists()
    assert inside(where, lambda: leave(agent.run, agent.bpf_root)) == []


def test_an_agent_that_does_not_shape_takes_away_what_one_before_it_left(agent: Agent) -> None:
    agent.add("one", agent.node.pod(), "10M")
    before = agent.node.everything()

    async def work(_: NodeNetwork) -> None:
        await eventually(lambda: agent.ceilings() == ["10Mbit"], "the pod's class")

    agent.while_running(work)
    left = LeftNetwork(agent.run, agent.bpf_root)
    inside(Path("/run/netns") / agent.node.name, lambda: asyncio.run(left.take_away()))
    assert agent.node.everything() == before
    assert not (Path(agent.bpf_root) / "j10ce").exists()


def test_what_it_may_not_take_away_it_says_once(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    (Path(agent.bpf_root) / "j10ce" / "v1").mkdir(parents=True, mode=0o777)
    (Path(agent.bpf_root) / "j10ce").chmod(0o777)
    left = LeftNetwork(agent.run, agent.bpf_root)
    for _ in range(2):
        inside(Path("/run/netns") / agent.node.name, lambda: asyncio.run(left.take_away()))
    (said,) = [one.getMessage() for one in caplog.records]
    assert "still shaped" in said
    assert "others may write" in said


def test_an_agent_that_does_not_know_its_pods_yet_takes_nothing_away(agent: Agent) -> None:
    agent.add("one", agent.node.pod(), "10M")

    async def shaped(_: NodeNetwork) -> None:
        await eventually(lambda: agent.ceilings() == ["10Mbit"], "the pod's class")

    agent.while_running(shaped)
    before, pods = agent.node.everything(), dict(agent.known.pods)
    agent.known.pods.clear()
    agent.knows_all, before_it = False, agent.asked

    async def knowing_later(network: NodeNetwork) -> None:
        await eventually(lambda: agent.asked > before_it, "a round is due")
        network.changed()
        await eventually(lambda: agent.asked > before_it + 1, "and once more: the first has ended")
        assert agent.unkept(network) is None
        assert agent.node.everything() == before
        agent.known.pods.update(pods)
        agent.knows_all = True
        network.changed()
        await eventually(lambda: agent.unkept(network) == (), "a round")

    agent.while_running(knowing_later)
    assert agent.node.everything() == before
