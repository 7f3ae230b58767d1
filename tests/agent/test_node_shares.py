"""`--node-shares Allocatable` on a tree of plain files: written, repaired, counted on, and given back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.inspection import share_of
from agent.planner import Planner
from agent.restoring import restore
from agent.state import Known
from cli.app import app
from kernel import facts
from qos.plan.node_share import NodeShares
from tests.adapters.fake_machine import Fake
from tests.agent.plain_node import PlainNode, passes
from tests.waiting import eventually

TOP = "/kubepods"
KUBELETS = "145"
"""kubelet's weight for 3700m of 4 CPUs, less by what its rounding hides."""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainNode:
    made = PlainNode(tmp_path, monkeypatch)
    made.group("kubepods", **{"cpu.weight": KUBELETS})
    for name in ("init.scope", "user.slice"):
        made.group(name, **{"cpu.weight": "100"})
    made.group("dev-mqueue.mount", **{"cpu.weight": "100", "cgroup.events": "populated 0\nfrozen 0"})
    return made


def weight(node: PlainNode) -> str:
    return node.read(TOP, "cpu.weight")


async def test_by_default_it_is_kubelets(node: PlainNode) -> None:
    async with node.agent() as agent:
        assert weight(node) == KUBELETS
        assert "of 3690m CPU reach all pods" in (agent.report().allocatable or "")


async def test_it_is_written_and_restored(node: PlainNode) -> None:
    async with node.agent(node_shares=NodeShares.ALLOCATABLE) as agent:
        assert int(weight(node)) > 3000
        assert agent.report().allocatable == ""
        share = share_of(agent.machine, TOP, agent.originals)
        assert share == agent.planner.node_share()
        assert share is not None
        assert not share.pods_lack
    assert int(weight(node)) > 3000, "ending the agent undoes nothing"
    assert (
        restore(facts.mounts(node.config.proc), node.config.run, node.config.state, node.config.proc).left
        == ()
    )
    assert weight(node) == KUBELETS


async def test_it_is_given_back_when_the_choice_is_taken_away(node: PlainNode) -> None:
    async with node.agent(node_shares=NodeShares.ALLOCATABLE):
        assert weight(node) != KUBELETS
    async with node.agent():
        await eventually(lambda: weight(node) == KUBELETS, "kubelet's weight is back")


async def test_it_follows_what_is_populated_beside_it(node: PlainNode) -> None:
    async with node.agent(node_shares=NodeShares.ALLOCATABLE) as agent:
        busy = int(weight(node))
        node.group("user.slice", **{"cpu.weight": "100", "cgroup.events": "populated 0\nfrozen 0"})
        await passes(agent, 2)
        assert int(weight(node)) * 3 // 2 == pytest.approx(busy, abs=2)


async def test_kubelets_word_is_drift_and_is_repaired(node: PlainNode) -> None:
    async with node.agent(node_shares=NodeShares.ALLOCATABLE) as agent:
        ours = weight(node)
        node.fake.write(f"cgroup/unified{TOP}/cpu.weight", f"{KUBELETS}\n")
        await agent.drift.check()
        await eventually(lambda: weight(node) == ours, "it is repaired")
        assert agent.originals[TOP, "cpu.weight"] == KUBELETS


async def test_who_observes_writes_nothing_and_counts_it(node: PlainNode) -> None:
    async with node.agent(node_shares=NodeShares.ALLOCATABLE, observe=True) as agent:
        assert weight(node) == KUBELETS
        one = agent.enforcer.pending()["cpu"]
        await agent._write_observed(agent._observer)
    shown = CliRunner().invoke(app, ["node", "observed", "--state", str(node.folder / "state"), "-o", "json"])
    [said] = json.loads(shown.output)["ofAllPods"]
    assert (said["cgroup"], said["file"], said["have"]) == (TOP, "cpu.weight", KUBELETS)
    assert int(said["want"]) > int(KUBELETS)
    table = CliRunner().invoke(app, ["node", "observed", "--state", str(node.folder / "state")])
    assert "all pods" in table.output
    async with node.agent(observe=True) as agent:
        assert agent.enforcer.pending()["cpu"] == one - 1


async def test_a_floor_grows_by_what_then_reaches_the_pods_and_not_before(node: PlainNode) -> None:
    async with node.agent() as agent:
        [state] = agent.report().policies
        assert "of the floor's 500m cpu can be kept" in state.message
    async with node.agent(node_shares=NodeShares.ALLOCATABLE, observe=True) as agent:
        [state] = agent.report().policies
        assert "of the floor's 500m cpu can be kept" in state.message, "the weight is not written"
    async with node.agent(node_shares=NodeShares.ALLOCATABLE) as agent:
        [state] = agent.report().policies
        assert (state.applied, state.message) == (1, "")


async def test_where_no_kubepods_is_at_the_root_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = PlainNode(tmp_path, monkeypatch)
    shutil.rmtree(f"{node.fake.root}/cgroup/unified{TOP}")
    async with node.agent(node_shares=NodeShares.ALLOCATABLE) as agent:
        assert agent.report().allocatable is None
    [said] = [one for one in caplog.messages if "node-shares" in one]
    assert "no kubepods with a process at the root" in said


def test_on_v1_it_is_shares_beside_what_has_tasks(tmp_path: Path) -> None:
    fake = Fake(tmp_path, v1=True, unified=False)
    fake.write("sys/devices/system/cpu/online", "0-7\n")
    fake.group("cpu", "kubepods", cpu_shares="7680", cgroup_procs="")
    fake.group("cpu", "system.slice", cpu_shares="1024", cgroup_procs="1\n")
    fake.group("cpu", "user.slice", cpu_shares="1024", cgroup_procs="")
    planner = Planner(
        fake.machine(),
        fake.machine().size(frozenset()),
        lambda: 0.0,
        node_shares=NodeShares.ALLOCATABLE,
    )
    for _ in planner.prepare(Known(), {}, {}):
        pass
    assert planner.node_weight() == (TOP, "cpu.shares", 15 * 1024)
    share = planner.node_share()
    assert share is not None
    assert (share.reaching, share.due, share.pods_lack) == (7058, 7500, True), "it is not written yet"
    fake.group("cpu", "kubepods", cpu_shares=str(15 * 1024))
    share = planner.node_share()
    assert share is not None
    assert (share.reaching, share.beside, share.reserved) == (7500, 500, 500)
