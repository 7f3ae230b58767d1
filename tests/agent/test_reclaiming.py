"""A whole agent whose plan has to reclaim: the runtime is not asked to, reports say what is on its way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.api import POLICIES, PROFILES
from agent.nri.records import LinuxResources, NriContainer, NriPod, State
from agent.program import Agent
from kernel import files as kernel_files
from tests.agent.plain_node import PATH, UID, PlainNode, passes, policy
from tests.waiting import eventually

GIB = 1 << 30
APP = f"{PATH}/{UID[-1] * 64}"
HIGH = "memory.high"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlainNode]:
    """Its pod has 3 GiB in use, and is to be throttled above what it requests and a little."""
    made = PlainNode(tmp_path, monkeypatch)
    throttled = {
        "metadata": {"name": "throttled"},
        "spec": {"class": "LS", "promises": {"memoryHighPercent": 10}},
    }
    made.api.put(PROFILES, throttled)
    body = policy()
    body["spec"]["profileName"] = "throttled"
    made.api.put(POLICIES, body)
    made.fake.write(f"cgroup/unified{APP}/memory.current", f"{3 * GIB}\n")
    free = made.reclaims
    write = kernel_files.Group.write

    def slow(group: kernel_files.Group, file: str, value: str) -> None:
        write(group, file, value)
        if file == HIGH and value != "max" and int(made.read(group.name, "memory.current")) > int(value):
            free.wait(30)
            made.fake.write(f"cgroup/unified{group.name}/memory.current", f"{value}\n")

    monkeypatch.setattr(kernel_files.Group, "write", slow)
    yield made
    free.set()


def planned(agent: Agent) -> str:
    return next(
        setting.value
        for container in agent.reconciler.planned[UID].containers
        for setting in container.plan.settings
        if setting.file == HIGH
    )


async def test_the_report_says_what_is_on_its_way_and_then_that_it_is_there(node: PlainNode) -> None:
    async with node.agent() as agent:
        assert int(planned(agent)) < GIB
        await eventually(lambda: node.read(APP, HIGH) != "max", "it is begun")
        (state,) = agent.report().policies
        assert (state.pods, state.applied) == (1, 0)
        assert "lowered in steps" in state.message
        assert agent.registry.get_sample_value("j10ce_agent_lowerings") == 1
        node.reclaims.set()
        await eventually(lambda: node.read(APP, HIGH) == planned(agent), "it is reached")
        await passes(agent, 1)
        (state,) = agent.report().policies
        assert (state.pods, state.applied, state.message) == (1, 1, "")
        assert agent.registry.get_sample_value("j10ce_agent_lowered_total", {"outcome": "reached"}) == 1


async def test_the_runtime_is_not_asked_to_reclaim(node: PlainNode) -> None:
    """It would hold a lock of the whole node meanwhile; what is below is its business as ever."""
    async with node.agent() as agent:
        sandbox = NriPod("s", UID, "default", "shop", {"app": "checkout"}, {}, PATH)
        container = NriContainer("1", "s", "app", State.RUNNING, 0, APP, resources=LinuxResources(102))
        first = await agent.events.update(sandbox, container, LinuxResources(102))
        assert first is not None
        assert HIGH not in first.unified
        assert first.cpu_shares is not None
        node.reclaims.set()
        await eventually(lambda: node.read(APP, HIGH) == planned(agent), "it is reached")
        after = await agent.events.update(sandbox, container, LinuxResources(102))
        assert after is not None
        assert after.unified[HIGH] == planned(agent)
