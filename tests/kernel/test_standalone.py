"""A floor outside Kubernetes, as `j10ce dev cache write --floor` plans it, on a busy machine."""

from __future__ import annotations

from collections.abc import Callable

from adapters.machine import ThisMachine
from kernel.apply import apply
from kernel.target import Target
from lab.contention import measures
from lab.contention.groups import Group, Tree
from lab.contention.node import Node
from lab.contention.work import Load
from qos.classes import promises_of
from qos.keys import CPU, MEMORY
from qos.plan import assumed, layout
from qos.plan.planning import plan
from qos.plan.settings import Plan
from qos.pods.containers import GUARANTEED, Container, NodePod

CPUS = 2
FLOOR = {CPU: 300, MEMORY: 8 << 20}
NEARLY = 0.95
"""As in test_cpu."""
RIVALS = 4

Record = Callable[[str, object], None]


def planned(container_id: str) -> Plan:
    """The plan for one container, from what there is on this machine now."""
    here = ThisMachine()
    paths = layout.podman_paths(container_id, layout.Driver.CGROUPFS)
    facts = here.observed(assumed.standalone_facts(here.size(frozenset()), paths, beside=0, host=0))
    pod = NodePod("", "", "gold", (Container("*", FLOOR[CPU], 0, FLOOR[MEMORY]),), GUARANTEED)
    return plan(pod, "*", promises_of("LS"), FLOOR, facts)


def containers(tree: Tree, *names: str) -> list[Group]:
    return [tree.make(f"libpod_parent/libpod-{name}") for name in names]


def test_a_named_floor_is_kept_against_all_that_runs(
    node: Node, tree: Tree, load: Load, record_property: Record
) -> None:
    ours, *others = containers(tree, "ours", *(f"other{number}" for number in range(RIVALS)))
    groups = [ours, *others, *node.slices()]
    for group in groups:
        load.spin(group, CPUS)
    least = NEARLY * FLOOR[CPU] / 1000
    without = measures.cpus_used(groups, CPUS, lambda used: used[0] < least, cpu_seconds=2.0)[0]
    made = planned("ours")
    assert not made.shortfalls
    own = layout.podman_paths("ours", layout.Driver.CGROUPFS)[-1]
    with Target(ThisMachine().mounts, {"": own}) as target:
        assert not apply(target, [setting.entry for setting in made.settings]).refusals
    kept = measures.cpus_used(groups, CPUS, lambda used: used[0] >= least)[0]
    record_property("CPUs without the floor, and with it", (without, kept))
    assert without < least <= kept


def test_its_memory_is_protected_on_the_parent_too(tree: Tree) -> None:
    parent = tree.make("libpod_parent")
    (other,) = containers(tree, "other")
    other.write("memory.low", 4 << 20)
    containers(tree, "ours")
    made = planned("ours")
    wanted = {(one.level, one.mode): one.value for one in made.settings if one.file == "memory.low"}
    assert wanted == {(0, "set"): str(8 << 20), (1, "raise"): str(12 << 20)}
    with Target(ThisMachine().mounts, {"": "/libpod_parent/libpod-ours"}) as target:
        assert not apply(target, [setting.entry for setting in made.settings]).refusals
    assert parent.number("memory.low") == 12 << 20
