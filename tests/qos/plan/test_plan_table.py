"""docs/plan.md: what each pod of a systemd node receives, with kubelet alone and with the plan."""

from __future__ import annotations

from pathlib import Path

from lab.kernel_rules import cpu_time
from qos.plan.node import V2
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED, Container, NodePod, request
from qos.pods.decision import Decided
from qos.pods.expectation import expectation
from tests.qos.kubelet_nodes import TIERS, Node, kernel_tree

PAGE = Path(__file__).parents[3] / "docs" / "plan.md"
MOUNTS = ("/dev-hugepages.mount", "/dev-mqueue.mount", "/sys-kernel-debug.mount", "/sys-kernel-tracing.mount")
SMALL = 110


def pod(number: int, name: str, qos: str, cpu: int, floor: int = 0) -> Decided:
    uid = f"{number:08x}-0000-4000-8000-000000000000"
    one = NodePod(uid, "shop", name, (Container("c", cpu),), qos)
    return Decided(one, expectation(one, floor=bool(floor)), floor={"cpu": floor} if floor else None)


def systemd_node(pods: list[Decided]) -> Node:
    """8 CPUs, with the root's cgroups as systemd makes them and weights as kubelet writes them."""
    node = Node(V2, 8000, 2**35)
    node.empty = {"/user.slice", *MOUNTS}
    for path in ("/init.scope", "/system.slice", "/user.slice", *MOUNTS):
        node.add(path, 100)
    for qos, path in TIERS.items():
        inside = sum(request(one.pod)[0] for one in pods if one.pod.qos == qos)
        node.add(path, node.machine.kubelet_weight(8000 if qos == GUARANTEED else inside))
    for one in pods:
        node.add_pod(one)
    return node


def test_the_page_has_what_each_pod_receives() -> None:
    shown = [
        pod(0, "checkout, a floor of 2 CPUs", BURSTABLE, 2000, 2000),
        pod(1, "payments", GUARANTEED, 1000),
        pod(2, "batch", BEST_EFFORT, 0),
        pod(3, f"each of {SMALL} small ones", BURSTABLE, 5),
    ]
    node = systemd_node([*shown, *(pod(4 + n, f"small{n}", BURSTABLE, 5) for n in range(SMALL - 1))])
    running = {path for paths in node.running.values() for path in paths.values()}
    plans = node.plans()
    before = cpu_time(kernel_tree(node, dict.fromkeys(plans, ()), running), node.cpus)
    after = cpu_time(kernel_tree(node, plans, running), node.cpus)
    rows = [
        f"| {one.pod.name} | {request(one.pod)[0]}m | {int(before[path])}m | {int(after[path])}m |"
        for one in shown
        for path in [node.path(one.pod.uid)]
    ]
    assert "\n".join(rows) in PAGE.read_text(), "\n".join(rows)
    checkout = node.path(shown[0].pod.uid)
    assert before[checkout] < 2000 <= after[checkout]
    for one in shown:
        path = node.path(one.pod.uid)
        assert after[path] >= min(request(one.pod)[0], before[path])
