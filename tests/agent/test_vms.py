"""Pods of VM runtimes (Kata): the host has a cgroup of pod and sandbox, none of containers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent.reporting import IN_VM
from agent.state import ContainerKey, Running
from tests.agent.plain_node import PATH, UID, PlainNode, passes
from tests.agent.test_restoring import files, put_back
from tests.waiting import eventually

KEY = ContainerKey(UID, "app")
CONTAINER = f"{PATH}/{UID[-1] * 64}"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainNode:
    made = PlainNode(tmp_path, monkeypatch)
    shutil.move(f"{made.fake.root}/cgroup/unified{CONTAINER}", made.fake.root / "aside")
    made.group(f"{PATH}/kata_sandbox", **{"cpu.weight": "100"})
    return made


def start(node: PlainNode) -> None:
    """The container gets a cgroup after all."""
    shutil.move(node.fake.root / "aside", f"{node.fake.root}/cgroup/unified{CONTAINER}")


async def test_a_pod_in_a_vm_has_the_settings_of_its_own_cgroup(node: PlainNode) -> None:
    before = files(node)
    async with node.agent() as agent:
        await passes(agent, 2)
        assert int(node.read(PATH, "cpu.weight")) > 4
        assert int(node.read(PATH, "memory.low")) == 64 << 20
        assert node.read(f"{PATH}/kata_sandbox", "cpu.weight") == "100"
        [state] = [one for one in agent.report().policies if one.key == "default/checkout"]
        assert (state.pods, state.applied, state.message) == (1, 1, IN_VM)
        assert agent.containers.missing == frozenset()
        assert agent.reconciler._unsettled() == (set(), set())
    assert put_back(node).left == ()
    assert files(node) == before


async def test_it_is_kept_against_drift_and_given_back(node: PlainNode) -> None:
    async with node.agent() as agent:
        await passes(agent, 2)
        ours = node.read(PATH, "cpu.weight")
        node.fake.write(f"cgroup/unified{PATH}/cpu.weight", "2\n")
        await agent.drift.check()
        await eventually(lambda: node.read(PATH, "cpu.weight") == ours, "the weight is repaired")
        node.remove("shop")
        await eventually(lambda: UID not in agent.known.pods, "the pod is gone")
        await passes(agent, 2)
        assert node.read(PATH, "memory.low") == "0"


async def test_a_container_that_is_there_after_all_takes_over(node: PlainNode) -> None:
    before = files(node)
    async with node.agent() as agent:
        await passes(agent, 2)
        pods = node.read(PATH, "cpu.weight"), node.read(PATH, "memory.low")
        start(node)
        await passes(agent, 2)
        assert agent.containers.unseen == {}
        assert agent.containers[KEY].cgroup == CONTAINER
        assert agent.enforcer.ids().count(f"{UID}/app") == 0
        assert (node.read(PATH, "cpu.weight"), node.read(PATH, "memory.low")) == pods
        assert int(node.read(CONTAINER, "memory.low")) == 64 << 20
        [state] = [one for one in agent.report().policies if one.key == "default/checkout"]
        assert (state.applied, state.message) == (1, "")
    assert put_back(node).left == ()
    changed = {name for name, text in files(node).items() if before.get(name, text) != text}
    assert changed == set()


async def test_what_nri_reports_of_it_is_seen_to_have_no_cgroup(node: PlainNode) -> None:
    async with node.agent() as agent:
        agent.containers.told(Running(KEY, UID[-1] * 64, CONTAINER))
        await passes(agent, 4)
        assert int(node.read(PATH, "cpu.weight")) > 4
        [state] = [one for one in agent.report().policies if one.key == "default/checkout"]
        assert (state.applied, state.message) == (1, IN_VM)
