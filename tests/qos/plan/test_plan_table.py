"""docs/plan.md: what each pod of a systemd node receives, with kubelet alone and with the plan.

The second table is measured, too: tests/cluster/test_systemd_shares.py.
"""

from __future__ import annotations

from pathlib import Path

from lab.kernel_rules import Group, cpu_time
from qos.plan.layout import kubelet_weight, shares
from qos.plan.node import V2
from qos.plan.node_plan import PlannedNode
from qos.plan.node_share import allocatable_weight, pods_level, with_weight
from qos.plan.placed_pod import NodeTree, placed
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED, Container, NodePod, request
from qos.pods.decision import Decided
from qos.pods.expectation import expectation
from tests.qos import full_node
from tests.qos.full_node import BESIDE, CPUS, FLOOR, FLOORED, KINDS, RESERVED
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


def full() -> tuple[Node, dict[str, str]]:
    """The node of the second table, and a pod's cgroup of each kind."""
    node, shown = Node(V2, CPUS, 2**31), {}
    node.empty = set(MOUNTS)
    for path in ("/init.scope", *(f"/{name}" for name in BESIDE), *MOUNTS):
        node.add(path, 100)
    for qos, path in TIERS.items():
        inside = sum(one.cpu * one.count for one in KINDS if one.qos == qos)
        node.add(path, kubelet_weight(shares(CPUS - RESERVED if qos == GUARANTEED else inside)))
    for kind in KINDS:
        for _ in kind.names:
            one = pod(len(node.decided), kind.name, kind.qos, kind.cpu, FLOOR if kind.name == FLOORED else 0)
            node.add_pod(one, quota=kind.cpu if kind.qos == GUARANTEED else None)
            shown[kind.name] = node.path(one.pod.uid)
    return node, shown | {name: f"/{name}" for name in BESIDE}


def received(node: Node, weight: int, tree: NodeTree | None) -> dict[str, int]:
    """Millicores by cgroup where all pods weigh this; tree: by what floors are planned, None: there are none.

    What has no work: process 1, and the pods' sandboxes.
    """
    plans = dict.fromkeys(node.decided, ())
    if tree is not None:
        places = {
            uid: placed(tree, node.machine, one, node.running[uid]) for uid, one in node.decided.items()
        }
        planned = PlannedNode.solved(tree, node.machine, places)
        plans = node.named({uid: planned.plan(uid) for uid in places})
    kernel = kernel_tree(node, plans, {path for paths in node.running.values() for path in paths.values()})
    for group in kernel.walk():
        _settle(group, weight)
    return {path: int(millicores) for path, millicores in cpu_time(kernel, CPUS).items()}


def _settle(group: Group, weight: int) -> None:
    if group.name == "/init.scope" or group.name.endswith("/pause"):
        group.demand = 0
    if group.name == "/kubepods":
        group.weight = weight


def test_the_page_has_what_a_full_node_gives_where_the_host_is_busy_too() -> None:
    node, shown = full()
    tree = node.tree()
    level = pods_level(tree, node.machine)
    assert level is not None
    ours = allocatable_weight(level, CPUS, unified=True)
    columns = [
        received(node, level.weight, None),
        received(node, ours, None),
        received(node, ours, with_weight(tree, "/kubepods", ours, unified=True)),
    ]
    found = {name: [column[path] for column in columns] for name, path in shown.items()}
    assert full_node.table(found) in PAGE.read_text(), full_node.table(found)
    assert full_node.on_the_page() == found
    assert found[FLOORED][0] < FLOOR / 2 < FLOOR <= found[FLOORED][2]
    for one in KINDS:
        assert found[one.name][2] >= one.cpu
