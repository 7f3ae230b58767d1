"""Pods that opt out, by their namespace's leave, keep what kubelet gave them; the hook gives them nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.api import NAMESPACES, APIError
from kernel import cache
from qos.keys import OPT_OUT_LABEL
from qos.pods.containers import NodePod
from qos.pods.decision import is_opted_out
from tests.agent.plain_node import PATH, UID, PlainNode, passes
from tests.waiting import eventually


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainNode:
    return PlainNode(tmp_path, monkeypatch)


def says(node: PlainNode, value: str) -> None:
    labels = {OPT_OUT_LABEL: value} if value else {}
    node.api.put(NAMESPACES, {"metadata": {"name": "default", "labels": labels}})


@pytest.mark.parametrize(
    ("namespace", "pod", "out"),
    [
        ("", "true", False),
        ("true", "", True),
        ("allowed", "", False),
        ("allowed", "true", True),
        ("false", "true", False),
        ("allowed", "allowed", False),
    ],
)
def test_the_namespace_decides(namespace: str, pod: str, *, out: bool) -> None:
    """Who may write pods alone can rid them of nothing."""
    one = NodePod("u", "shop", "p", (), labels={OPT_OUT_LABEL: pod} if pod else {})
    assert is_opted_out(one, {"shop": namespace} if namespace else {}) == out
    assert not is_opted_out(one, {"other": "true"})


async def test_settings_go_when_the_namespace_opts_out_and_come_back(node: PlainNode) -> None:
    before = {name: text for name, text in node.tree().items() if "." in name}
    says(node, "")
    async with node.agent() as agent:
        assert node.read(PATH, "cpu.weight") != "4"
        says(node, "true")
        await eventually(lambda: node.read(PATH, "cpu.weight") == "4", "it has kubelet's weight again")
        await passes(agent, 2)
        assert {name: text for name, text in node.tree().items() if "." in name} == before
        run = node.folder / "run"
        assert cache.read(str(run / "pods"), UID, "a debug container", 0.0) == ("", [])
        assert [one.name for one in (run / cache.OPTED_OUT).iterdir()] == ["default"]
        says(node, "")
        await eventually(lambda: node.read(PATH, "cpu.weight") != "4", "it has its floor again")
        await eventually(lambda: not list((run / cache.OPTED_OUT).iterdir()), "the hook is told")


async def test_an_opt_out_is_known_after_a_restart(node: PlainNode) -> None:
    says(node, "true")
    async with node.agent():
        pass
    node.api.fail("list_page", resource=NAMESPACES, times=1000)
    async with node.agent_that_waits() as agent:
        assert agent.known.opt_outs == {"default": "true"}
        await passes(agent, 2)
        assert node.read(PATH, "cpu.weight") == "4"


async def test_rights_of_an_older_installation_stop_no_floor(node: PlainNode) -> None:
    forbidden = APIError(403, "Forbidden", "namespaces is forbidden")
    node.api.fail("list_page", forbidden, resource=NAMESPACES, times=1000)
    async with node.agent():
        assert node.read(PATH, "cpu.weight") != "4"
