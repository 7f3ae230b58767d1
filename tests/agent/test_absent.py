"""Without NRI: a container that never starts does not keep what is shared from being lowered for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.api import PODS
from agent import absence
from agent.absence import ABSENT_SECONDS, Absences
from agent.state import ContainerKey
from lab.crowd import CrowdPod
from tests.agent.plain_node import BESIDE, NODE, UID, PlainNode, passes
from tests.waiting import eventually

TOP = "/kubepods"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainNode:
    """Beside the pod with a floor another has one, and a container whose image cannot be had."""
    made = PlainNode(tmp_path, monkeypatch)
    made.api.put(*made.another_policy())
    draft = CrowdPod("beside", BESIDE, {"app": BESIDE[-1] * 64, "never": "9" * 64}, 1000)
    body = draft.manifest(NODE)
    body["metadata"] |= {"uid": BESIDE, "labels": {"app": "other"}}
    status = draft.status()
    status["containerStatuses"][1] |= {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
    made.api.put(PODS, body | {"status": status})
    return made


async def low(node: PlainNode) -> list[int]:
    """memory.low of what is shared, while the pod with a floor is there, and after it."""
    async with node.agent() as agent:
        await passes(agent, 2)
        before = int(node.read(TOP, "memory.low"))
        node.remove("shop")
        await eventually(lambda: UID not in agent.known.pods, "the pod is gone")
        await passes(agent, 3)
        return [before, int(node.read(TOP, "memory.low"))]


async def test_it_is_waited_for(node: PlainNode) -> None:
    before, after = await low(node)
    assert after == before > 0


async def test_but_not_for_ever(node: PlainNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absence, "ABSENT_SECONDS", 0.0)
    before, after = await low(node)
    assert after == before - (64 << 20)


async def test_when_it_is_waited_for_no_more_that_is_acted_on(
    node: PlainNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else changes meanwhile on a quiet node."""
    monkeypatch.setattr(absence, "ABSENT_SECONDS", 3.0)
    async with node.agent() as agent:
        before = int(node.read(TOP, "memory.low"))
        node.remove("shop")
        await eventually(lambda: UID not in agent.known.pods, "the pod is gone")
        await eventually(lambda: int(node.read(TOP, "memory.low")) < before, "what it claimed is", seconds=25)


CRASHING = [ContainerKey(f"p{number}", "c") for number in range(20)]


def test_of_many_that_crash_again_and_again_none_is_waited_for_any_more() -> None:
    """Each runs for five seconds of a hundred: at any time some have just ended."""
    absences = Absences()
    for now in range(1000):
        absent = [key for number, key in enumerate(CRASHING) if (now + 5 * number) % 100 >= 5]
        absences.see(absent, now)
        over = [absences.is_over(key, now) for key in absent]
        assert all(over) if now > ABSENT_SECONDS + 5 else not any(over) or now >= ABSENT_SECONDS


def test_one_that_ran_for_long_enough_is_waited_for_again() -> None:
    absences, [one, *_] = Absences(), CRASHING
    absences.see([one], 0.0)
    absences.see([one], 300.0)  # passes may be far apart
    assert absences.is_over(one, 300.0)
    absences.see([], 301.0)
    absences.see([], 301.0 + ABSENT_SECONDS)
    assert absences.left(499.0) is None
    absences.see([one], 500.0)
    assert not absences.is_over(one, 500.0)
    assert absences.left(510.0) == ABSENT_SECONDS - 10
    assert not absences.is_over(one, 499.0 + ABSENT_SECONDS)
    assert absences.is_over(one, 500.0 + ABSENT_SECONDS)
    assert absences.left(500.0 + ABSENT_SECONDS) is None
