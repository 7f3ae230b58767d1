"""`--observe`: it plans, looks and reports, and writes nothing that a pod could feel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from typer.testing import CliRunner

from agent import observed
from agent.enforcement.originals import NAME, Originals, Record
from agent.enforcement.places import Place
from cli.app import app
from qos.cluster.node_report import conditions
from tests.agent.plain_node import BESIDE, PATH, PlainNode, passes
from tests.waiting import eventually


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainNode:
    return PlainNode(tmp_path, monkeypatch)


async def test_an_agent_that_keeps_floors_writes(node: PlainNode) -> None:
    """So that the test below can fail."""
    before = node.tree()
    async with node.agent() as agent:
        await agent._probe()
        after = node.tree()
    assert before != after
    assert int(node.read(PATH, "cpu.weight")) > 4
    assert (node.folder / "run" / "pods").is_dir()


async def test_one_that_observes_leaves_the_whole_tree_as_it_was(node: PlainNode) -> None:
    before = node.tree()
    async with node.agent(observe=True) as agent:
        await agent._probe()
        node.api.put(*node.another_policy())
        await passes(agent, 2)
        agent.drift.expect(PATH)
    assert node.tree() == before
    assert list((node.folder / "run").iterdir()) == []


async def test_it_leaves_alone_what_an_agent_that_enforced_has_left(
    node: PlainNode, caplog: pytest.LogCaptureFixture
) -> None:
    async with node.agent():
        pass
    before = node.tree()
    run = {one: one.read_bytes() for one in (node.folder / "run").rglob("*") if one.is_file()}
    assert run
    async with node.agent(observe=True) as agent:
        node.api.remove(*node.policy_itself())
        await passes(agent, 2)
    assert node.tree() == before
    assert {one: one.read_bytes() for one in (node.folder / "run").rglob("*") if one.is_file()} == run
    assert "j10ce node restore" in caplog.text


def test_originals_that_are_only_read_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("garbage")
    (tmp_path / NAME).chmod(0o600)
    only_read = Originals(tmp_path, kept=False)
    only_read.note({Place("/a", "cpu.weight"): Record("1", "2")})
    assert (tmp_path / NAME).read_text() == "garbage"
    assert [one.name for one in tmp_path.iterdir()] == [NAME]


async def test_it_says_what_it_would_write_and_whom_that_would_help(node: PlainNode) -> None:
    async with node.agent(observe=True) as agent:
        await agent._probe()
        report = agent.report()
        shown = generate_latest(agent.registry).decode()
        await agent._write_observed(agent._observer)
        file = node.folder / "state" / observed.NAME
        assert agent.not_ready() == ""
    assert [state.enforced for state in report.promises if state.enforced] == []
    assert "cpu.weight is there" in next(one for one in report.promises if one.file == "cpu.weight").message
    [policy] = report.policies
    assert (policy.pods, policy.applied) == (1, 0)
    assert "it would be written; the agent only observes" in policy.message
    said = {one.type: one.reason for one in conditions(report)}
    assert (said["Ready"], said["Applied"]) == ("Observing", "PlanNotApplied")
    assert 'j10ce_agent_observed_settings{controller="cpu"}' in shown
    done = CliRunner().invoke(app, ["node", "observed", "--state", str(file.parent), "-o", "json"])
    assert done.exit_code == 0, done.output
    [container] = json.loads(done.output)["containers"]
    assert (container["pod"], container["policy"]) == ("shop", "default/checkout")
    [weight] = [one for one in container["settings"] if one["file"] == "cpu.weight" and one["cgroup"] == PATH]
    assert (weight["have"], int(weight["want"]) > 4) == ("4", True)
    table = CliRunner().invoke(app, ["node", "observed", "--state", str(file.parent)])
    assert "cpu.weight" in table.output
    assert BESIDE not in table.output


async def test_a_container_that_is_gone_is_forgotten(node: PlainNode) -> None:
    async with node.agent(observe=True) as agent:
        assert sum(agent._observer.pending().values()) > 0
        node.remove("shop")
        await eventually(lambda: not agent.known.pods.keys() - {BESIDE}, "the pod is gone")
        await passes(agent, 2)
        assert sum(agent._observer.pending().values()) == 0
