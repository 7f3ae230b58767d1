"""`j10ce network`: what is shown of a node that is shaped, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent import network_inspection
from agent.findings import Finding, Grade
from agent.network import seen
from agent.network.bpf import links
from agent.network.bpf.installed import Installed
from agent.network.bpf.links import TCX, Hook
from agent.network.bpf.pins import Pins
from agent.network.namespaces import inside
from agent.network.told import Told as Options
from agent.network.uplink import Uplink
from agent.network_doctor import network_findings
from agent.network_report import NetworkReport
from agent.node_network import NodeNetwork
from qos.network.wanted import Link
from tests.network.bpf.rig import own_cgroup
from tests.network.flows import flowing
from tests.network.node import WORLD_4, Node
from tests.network.test_node_network import MEGABIT, Agent
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]


@dataclass
class Told(Agent):
    """An agent that writes what it makes."""

    uplink: Uplink = field(default_factory=Uplink)

    async def write(self, network: NodeNetwork) -> None:
        self.uplink.link, self.uplink.problem = self.link, ""
        report = NetworkReport(network, self.uplink, time.monotonic)
        names = {uid: (one.pod.namespace, one.pod.name) for uid, one in self.known.pods.items()}
        await report.write(self.run, names)

    def made(self) -> dict[str, Any]:
        """What a node has: of traffic control, at TCX, and pinned."""
        where = Path("/run/netns") / self.node.name
        indexes = [one["ifindex"] for one in json.loads(self.node.run("ip", "-json", "link"))]
        tcx = inside(
            where, lambda: {(at, hook.name): links.at_interface(at, hook) for at in indexes for hook in TCX}
        )
        pinned = sorted(str(one) for one in Path(self.bpf_root).glob("j10ce/**/*"))
        return {**self.node.everything(), "tcx": tcx, "pinned": pinned}

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["ip", "netns", "exec", self.node.name, sys.executable, "-P", "-c",
                "from cli.app import main; main()", "network", *words, "--run", str(self.run)]  # fmt: skip
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT)},
        )

    def uninstall(self) -> subprocess.CompletedProcess[str]:
        return self.command("uninstall", "--bpf", self.bpf_root)

    def shape(self) -> None:
        """As an agent that has ended left it."""

        async def work(network: NodeNetwork) -> None:
            await eventually(lambda: agent_has_shaped(self, network), "a round")
            await self.write(network)

        self.while_running(work)


def agent_has_shaped(agent: Agent, network: NodeNetwork) -> bool:
    return agent.ceilings() == ["10Mbit"] and agent.unkept(network) == ()


@pytest.fixture(name="agent")
def _agent(node: Node, tmp_path: Path, bpffs: str) -> Told:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    return Told(node, run, bpffs, link=Link(node.nic, "eth0", 1000 * MEGABIT, 1000 * MEGABIT))


def test_nothing_is_left_of_an_agent_that_is_dead(agent: Told) -> None:
    pod = agent.node.pod()
    agent.node.run("tc", "qdisc", "add", "dev", f"pod{len(agent.node.pods)}", "clsact")
    before = agent.made()
    agent.add("one", pod, "10M")
    agent.shape()
    during = agent.made()
    assert during["qdiscs"] != before["qdiscs"]
    assert during["pinned"] != before["pinned"] == []
    done = agent.uninstall()
    assert (done.returncode, done.stderr) == (0, "")
    assert agent.made() == before
    assert sorted(one.name for one in agent.run.iterdir()) == [seen.LOCK]
    again = agent.uninstall()
    assert (again.returncode, again.stdout) == (0, done.stdout)


def test_without_the_agents_notes_it_is_found_all_the_same(agent: Told) -> None:
    before = agent.made()
    agent.add("one", agent.node.pod(), "10M")
    agent.shape()
    for one in agent.run.iterdir():
        one.unlink()
    agent.run.rmdir()
    assert agent.uninstall().returncode == 0
    after = agent.made()
    assert after["qdiscs"] == [one for one in after["qdiscs"] if not one["handle"].startswith("10ce")]
    assert (after["pinned"], after["filters eth0 egress"]) == ([], before["filters eth0 egress"])


def test_what_is_attached_to_a_cgroup_goes_too(agent: Told) -> None:
    with own_cgroup("pod") as (pod,), Pins(agent.bpf_root) as pins, Installed(pins, ["count"]) as opened:
        opened.attach("count_tx", Hook.CGROUP_EGRESS, str(pod))
        [name] = pins.links()
        link = pins.link(name)
        assert link is not None
        assert links.info(link).target == pod.stat().st_ino
        assert agent.uninstall().returncode == 0
        assert links.info(link).target == 0, "the kernel has detached it"
    assert agent.made()["pinned"] == []


def test_what_cannot_be_taken_away_is_named(agent: Told) -> None:
    """Somebody else's pin is where ours were."""
    with Pins(agent.bpf_root) as pins, Installed(pins, ["count"]):
        (Path(agent.bpf_root) / "j10ce" / "v1" / "links" / "somebodys").mkdir()
    done = agent.uninstall()
    assert done.returncode == 1
    assert f"left: {agent.bpf_root}/j10ce/v1" in done.stderr


def test_while_an_agent_shapes_it_is_refused(agent: Told) -> None:
    agent.add("one", agent.node.pod(), "10M")

    async def work(network: NodeNetwork) -> None:
        await eventually(lambda: agent_has_shaped(agent, network), "a round")
        done = await asyncio.to_thread(agent.uninstall)
        assert done.returncode == 1
        assert "start it without --network-floors" in done.stderr
        assert agent.ceilings() == ["10Mbit"]

    agent.while_running(work)


def test_a_status_shows_what_pods_are_promised_and_what_they_send(agent: Told) -> None:
    first, second = agent.node.pod(), agent.node.pod()
    agent.add("one", first, "10M")
    agent.shape()
    agent.add("two", second, "20M")  # nobody has told of it yet
    with flowing(first.namespace, agent.node.world, WORLD_4):
        done = agent.command("status", "-o", "json", "--seconds", "2")
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert (said["shaping"], said["seen"]["link"]["egress"]) == (False, 1_000_000_000)
    [pod] = said["pods"]
    assert (pod["namespace"], pod["pod"], pod["egress"]["place"]) == ("shop", "pod-one", "10ce:10")
    assert pod["egress"]["bounds"]["limit"] == 10_000_000
    assert pod["egress"]["flow"]["now"] == pytest.approx(10_000_000, rel=0.1)
    assert pod["egress"]["flow"]["waiting"] > 0
    [tree] = said["trees"]
    assert (tree["interface"], tree["direction"]) == ("eth0", "egress")
    owners = {one["classId"]: one["of"] for one in tree["classes"]}
    assert owners["10ce:5"] == "the host"
    assert owners["10ce:10"] == "shop/pod-one"

    table = agent.command("status", "--seconds", "0.1").stdout
    assert "link: eth0 sends 1G" in table
    assert "agent: none shapes now" in table
    assert len([line for line in table.splitlines() if "shop/pod-one" in line]) == 2


def test_a_status_says_what_is_not_kept(agent: Told) -> None:
    agent.link = None
    agent.add("one", agent.node.pod(), "10M")

    async def work(network: NodeNetwork) -> None:
        await eventually(lambda: bool(agent.unkept(network)), "a round")
        await agent.write(network)
        done = await asyncio.to_thread(agent.command, "status", "--seconds", "0.1")
        assert done.returncode == 1
        assert "agent: shapes" in done.stdout
        assert "not kept: pod shop/pod-one: limit (network): LinkUnknown: " in done.stdout

    agent.while_running(work)


def test_a_node_on_which_nobody_shapes(agent: Told) -> None:
    done = agent.command("status", "--seconds", "0.1")
    assert (done.returncode, done.stdout) == (
        0,
        "No agent has shaped this node's network since its last boot.\n",
    )


def test_the_doctor_tries_and_says_what_is_left(agent: Told) -> None:
    agent.node.run("ip", "route", "add", "default", "via", WORLD_4)
    before = agent.made()

    def look() -> dict[str, Finding]:
        facts = inside(
            Path("/run/netns") / agent.node.name,
            lambda: network_inspection.look(agent.run, Options(egress=125_000_000), agent.bpf_root),
        )
        return {one.subject: one for one in network_findings(facts)}

    off = look()
    assert (off["network floors"].grade, off["network limits"].grade) == (Grade.WORKS, Grade.WORKS)
    assert off["network: link"].text == "eth0 sends 940M bits/s (Option)"
    assert agent.made() == before

    agent.add("one", agent.node.pod(), "10M")

    async def work(network: NodeNetwork) -> None:
        await eventually(lambda: agent_has_shaped(agent, network), "a round")
        await agent.write(network)
        on = await asyncio.to_thread(look)
        assert on["network floors"].text == "an agent shapes this node's network: they can be kept"
        assert "network: left" not in on

    agent.while_running(work)
    assert "htb 10ce: at eth0" in look()["network: left"].text
    assert agent.uninstall().returncode == 0
    agent.node.run("tc", "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "bfifo")
    foreign = look()
    assert "network: left" not in foreign
    assert "ForeignQdisc: " in foreign["network floors"].text
