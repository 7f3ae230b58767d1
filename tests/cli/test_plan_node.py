"""The node of a plan: what a Node's YAML says, and what is assumed without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.documents import DocumentsError
from cli import plan_node
from qos.plan.layout import Driver
from qos.plan.node import V1, V2
from qos.pods.containers import GUARANTEED, Container, NodePod

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  capacity: {cpu: "4", memory: 16Gi, pods: "250"}
  allocatable: {cpu: 3900m, memory: 15Gi, pods: "200"}
  nodeInfo: {kernelVersion: 5.10.0-28-amd64, containerRuntimeVersion: "cri-o://1.31.0"}
"""


def node(folder: Path, text: str = NODE, cgroup: str = V2) -> plan_node.PlanNode:
    file = folder / "node.yaml"
    file.write_text(text)
    return plan_node.node_of(file, cgroup, None)


def test_a_node_as_kubectl_prints_it(tmp_path: Path) -> None:
    one = node(tmp_path).machine
    assert (one.cpus, one.allocatable_cpus, one.pods, one.runtime) == (4000, 3900, 200, "cri-o")
    assert (one.memory, one.allocatable_memory) == (16 * 2**30, 15 * 2**30)
    assert "node n1 " in node(tmp_path).words


def test_its_kernel_decides_which_files_there_are(tmp_path: Path) -> None:
    files = node(tmp_path).machine.files
    assert {"cpu.weight", "memory.min", "oom_score_adj"} <= files
    assert not {"cpu.max.burst", "cpu.idle", "cpu.shares"} & files
    new = node(tmp_path, NODE.replace("5.10.0-28", "6.1.0-9")).machine.files
    assert {"cpu.max.burst", "cpu.idle"} <= new
    older = node(tmp_path, NODE.replace("5.10.0-28", "4.19.0-1")).machine.files
    assert not {"cpuset.cpus", "cpuset.mems"} & older, "cgroup v2 has them since 5.0, v1 for long"
    assert "cpuset.cpus" in node(tmp_path, NODE.replace("5.10.0-28", "4.19.0-1"), V1).machine.files
    assert "memory.soft_limit_in_bytes" in node(tmp_path, cgroup=V1).machine.files


def test_without_allocatable_all_is_allocatable(tmp_path: Path) -> None:
    text = "kind: Node\nstatus: {capacity: {cpu: 2, memory: 1Gi}}\n"
    assert node(tmp_path, text).machine.allocatable_cpus == 2000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod\n", "node.yaml:1: expected a Node"),
        (NODE + "---\n" + NODE, "node.yaml:1: expected a Node"),
        (NODE.replace('"4"', "many"), "node.yaml:5: status.capacity.cpu: cpu: 'many' is not a quantity"),
        (NODE.replace("15Gi", "15Gx"), "node.yaml:6: status.allocatable.memory: memory: '15Gx'"),
        ("kind: Node\nstatus: {}\n", "node.yaml:2: status.capacity: says no cpu above zero"),
        ("kind: Node\nstatus: []\n", "node.yaml:2: status.capacity: says no cpu above zero"),
    ],
)
def test_what_is_no_node(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DocumentsError) as error:
        node(tmp_path, text)
    assert message in str(error.value)


def test_the_default_says_that_it_is_assumed() -> None:
    one = plan_node.default_node(V1, Driver.CGROUPFS)
    assert one.words.startswith("assumed ")
    assert one.words.endswith("8 CPUs, 32768Mi memory, cgroup v1, cgroupfs driver")
    pod = NodePod("", "default", "web", (Container("web", 100),), GUARANTEED)
    levels = one.facts(pod, "web").levels
    assert [level.path for level in levels] == ["/kubepods", "/kubepods/podUID", "/kubepods/podUID/ID"]
    assert all(level.assumed for level in levels)


def test_this_machine_is_read() -> None:
    one = plan_node.this_node(None)
    assert one.here is not None
    assert one.words.startswith("this machine: ")
