"""What the doctor says of a node's facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.doctor import Facts, findings
from agent.findings import Finding, Grade
from agent.inspection import share_of
from qos.cluster.node_report import PromiseState
from qos.plan.node import HYBRID, V2
from qos.plan.node_share import NodeShare
from tests.adapters.fake_machine import Fake

GOOD = Facts(
    kernel="6.12.1",
    root=True,
    cgroup=V2,
    promises=(
        PromiseState("cpu_idle", enforced=True, file="cpu.idle"),
        PromiseState("floor (cpu)", enforced=True, file="cpu.weight"),
        PromiseState("memory_low_percent", enforced=True, file="memory.low"),
    ),
    kubepods="/kubepods.slice",
    nri_socket="/var/run/nri/nri.sock",
    nri="",
    watch="",
    psi=True,
    agent="it answers at 127.0.0.1:10262 and is ready",
)


def of(facts: Facts) -> dict[str, Finding]:
    return {one.subject: one for one in findings(facts)}


def test_a_good_node() -> None:
    found = findings(GOOD)
    assert {one.grade for one in found} == {Grade.WORKS}
    assert not any(one.do for one in found)
    assert [one.subject for one in found][:3] == ["cgroups", "CPU floors", "memory floors"]


def test_a_floor_that_is_not_kept_is_what_is_broken() -> None:
    state = PromiseState("memory_low_percent", enforced=False, message="cgroup v1 has no memory.low")
    found = of(replace(GOOD, cgroup=HYBRID, promises=(state,)))
    assert found["memory floors"] == Finding("memory floors", Grade.BROKEN, "cgroup v1 has no memory.low")
    assert found["cgroups"].grade is Grade.LIMITED
    assert "unified_cgroup_hierarchy" in found["cgroups"].do


def test_each_lack_says_what_to_do() -> None:
    lacking = replace(
        GOOD, nri="No such file or directory", watch="Operation not permitted", psi=False, agent=""
    )
    found = of(lacking)
    for subject, word in (("NRI", "enable_nri"), ("drift", "CAP_SYS_ADMIN"), ("pressure", "psi=1")):
        assert found[subject].grade is Grade.LIMITED
        assert word in found[subject].do
    on_v1 = of(replace(GOOD, cgroup=HYBRID))["pressure"]  # the node's PSI is on, pods have none
    assert on_v1.grade is Grade.LIMITED
    assert "threads" in on_v1.text
    assert found["agent"].do == "start j10ce-agent on this node"
    assert of(replace(GOOD, root=False))["rights"].grade is Grade.BROKEN
    assert of(replace(GOOD, cgroup="", promises=()))["cgroups"].grade is Grade.BROKEN
    sick = of(replace(GOOD, agent_problem="the first pass over the pods is not done yet"))["agent"]
    assert sick.grade is Grade.BROKEN
    assert "first pass" in sick.text


def test_what_kubelets_weight_takes_from_all_pods_is_said_once_a_node() -> None:
    kept = of(replace(GOOD, share=NodeShare(7950, 7910, 50, 0)))["CPU of all pods"]
    assert kept == Finding("CPU of all pods", Grade.WORKS, "7910m are allocatable, and 7950m reach them")
    lost = of(replace(GOOD, share=NodeShare(4881, 7910, 3119, 90)))["CPU of all pods"]
    assert lost.grade is Grade.LIMITED
    assert lost.text.startswith("7910m are allocatable, and 4881m reach them by the weight of kubepods")
    assert "system.slice" in lost.do
    assert "--node-shares Allocatable" in lost.do
    starved = of(replace(GOOD, share=NodeShare(7950, 4000, 50, 4000)))["CPU of all pods"]
    assert (starved.grade, starved.text[:15]) == (Grade.LIMITED, "4 are reserved ")


@pytest.mark.parametrize(("busy", "reaching"), [(1, 6062), (0, 8000)])
def test_the_share_of_all_pods_is_read_from_their_cgroup(tmp_path: Path, busy: int, reaching: int) -> None:
    fake = Fake(tmp_path, v1=False, unified=True)
    fake.write("sys/devices/system/cpu/online", "0-7\n")
    fake.group("unified", "kubepods.slice", cpu_weight="313")
    fake.group("unified", "system.slice", cpu_weight="100", cgroup_events=f"populated {busy}\n")
    fake.group("unified", "dev-mqueue.mount", cpu_weight="100", cgroup_events="populated 0\n")
    share = share_of(fake.machine(), "/kubepods.slice", {})
    assert share is not None
    assert (share.reaching, share.due // 100) == (reaching, 79)
