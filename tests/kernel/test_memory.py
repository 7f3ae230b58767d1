"""Memory under contention: who loses pages when a neighbour wants all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lab.contention import measures, work
from lab.contention.groups import Group, Tree
from lab.contention.node import Node, best_effort, pod
from lab.contention.work import Load
from qos.classes import promises_of
from qos.keys import MEMORY
from qos.plan.planning import plan
from qos.pods.containers import BURSTABLE, Container, NodePod

MIB = 1 << 20
FLOOR = 48 * MIB
VICTIM = 40 * MIB
KUBEPODS = 96 * MIB
"""What all pods have together: the victim and its neighbour, which wants all of that, do not fit."""
THRASHING = 800
"""Major faults of the neighbour after which it has had every page that was to be had."""

Record = Callable[[str, object], None]


def ours() -> NodePod:
    return pod("ours", BURSTABLE, Container("app", memory_request=FLOOR))


def swapped(group: Group) -> int:
    return group.number("memory.swap.current") // MIB


def thrash(load: Load, group: Group) -> None:
    """Want all memory of the pods, until it has gone in circles."""
    load.churn(group, KUBEPODS)
    faults = group.number("memory.stat", "pgmajfault")
    work.wait_until(
        lambda: group.number("memory.stat", "pgmajfault") - faults > THRASHING, "the neighbour thrashes"
    )


@pytest.mark.systems("plain", "systemd")
def test_a_floor_is_not_swapped_through_three_levels(node: Node, load: Load, record_property: Record) -> None:
    node.limit(KUBEPODS)
    victim, neighbour = node.start(ours())["app"], node.start(best_effort("neighbour"))["app"]
    load.hold(victim, VICTIM)
    planned = node.keep(ours(), "app", promises_of("LS"), {MEMORY: FLOOR})
    protected = [setting.level for setting in planned.settings if setting.file == "memory.low"]
    assert sorted(protected) == [0, 1, 2, 3]
    thrash(load, neighbour)
    record_property("MiB swapped of victim and neighbour", (swapped(victim), swapped(neighbour)))
    assert swapped(victim) == 0
    assert swapped(neighbour) > 20


@pytest.mark.systems("plain", "systemd")
def test_protection_of_the_container_alone_does_nothing(
    node: Node, load: Load, record_property: Record
) -> None:
    node.limit(KUBEPODS)
    victim, neighbour = node.start(ours())["app"], node.start(best_effort("neighbour"))["app"]
    load.hold(victim, VICTIM)
    victim.write("memory.min", FLOOR)
    thrash(load, neighbour)
    record_property("MiB swapped of the victim", swapped(victim))
    assert swapped(victim) > VICTIM // MIB // 2


def test_high_throttles_before_the_limit_kills(node: Node, load: Load, record_property: Record) -> None:
    limited = pod("high", BURSTABLE, Container("app", memory_request=16 * MIB, memory_limit=64 * MIB))
    app = node.start(limited)["app"]
    app.write("memory.max", 64 * MIB)
    load.hold(app, 8 * MIB)
    node.keep(limited, "app", replace(promises_of("LS"), memory_high_percent=50), None)
    high = app.number("memory.high")
    assert high == 40 * MIB
    waiting = measures.Waiting(app, "memory")
    load.churn(app, 48 * MIB)
    work.wait_until(lambda: waiting.part() > 0.1, "it waits for memory above memory.high")
    events = {name: app.number("memory.events", name) for name in ("high", "max", "oom", "oom_kill")}
    record_property("memory.events, and part of the time it waited", (events, waiting.part()))
    assert events["high"] > 0
    assert (events["max"], events["oom"], events["oom_kill"]) == (0, 0, 0)
    assert app.number("memory.peak") < 64 * MIB


def test_best_effort_is_killed_as_a_whole(node: Node, load: Load) -> None:
    batch = best_effort("batch")
    app = node.start(batch)["app"]
    app.write("memory.max", 32 * MIB)
    app.write("memory.swap.max", 0)
    load.hold(app, 8 * MIB)
    load.hold(app, 8 * MIB)
    node.keep(batch, "app", promises_of("BE"), None)
    with pytest.raises(ChildProcessError):
        load.hold(app, 32 * MIB)
    work.wait_until(lambda: app.number("cgroup.events", "populated") == 0, "none of it is left")
    assert app.number("memory.events", "oom_group_kill") == 1


# --- pressure at the root, from what is beside all pods ---

LARGE_FLOOR = 256 * MIB
IDLE = 240 * MIB
WANTED = 120 * MIB
"""What a program beside the pods takes of their memory; it cannot be swapped itself."""


def available() -> int:
    """Bytes that programs may have without anybody swapping, as the kernel estimates it."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) << 10


class Beside:
    """A floor of which little is used, beside a pod without one that has much."""

    def __init__(self, node: Node, load: Load) -> None:
        self._node, self._load = node, load
        self._pod = pod("ours", BURSTABLE, Container("app", memory_request=LARGE_FLOOR))
        self.victim = node.start(self._pod)["app"]
        self.neighbour = node.start(best_effort("neighbour"))["app"]
        load.hold(self.victim, VICTIM)
        load.hold(self.neighbour, IDLE)

    def keep(self, percent: int, *, follow_use: bool) -> None:
        """Apply the plan; percent: of the floor, by memory.min."""
        facts = self._node.facts(self._pod, "app")
        if follow_use:
            used = Group(self.victim.folder.parent).number("memory.current")
            *above, own, app = facts.levels
            facts = replace(facts, levels=(*above, replace(own, memory_used=used), app))
        promises = promises_of("LS", {"memory_min_percent": percent})
        self._node.apply(self._pod, "app", plan(self._pod, "app", promises, {MEMORY: LARGE_FLOOR}, facts))

    def press(self, beside: Group) -> None:
        """Need so much beside all pods that they must give some. ChildProcessError: it was killed for it."""
        beside.write("memory.swap.max", 0)
        self._load.hold(beside, available() + WANTED)

    def swapped(self) -> tuple[int, int]:
        """MiB of the victim and of the neighbour."""
        return swapped(self.victim), swapped(self.neighbour)


@pytest.mark.full  # 125 s: the guest swaps until it does not
def test_beside_a_floor_the_memory_of_others_stays_reclaimable(
    node: Node, tree: Tree, load: Load, record_property: Record
) -> None:
    pods = Beside(node, load)
    pods.keep(0, follow_use=False)
    assert node.kubepods.number("memory.min") == 0
    assert node.kubepods.number("memory.low") == LARGE_FLOOR
    pods.press(tree.make("beside"))
    record_property("MiB swapped of victim and neighbour", pods.swapped())
    assert pods.swapped()[1] > 40


@pytest.mark.full  # 100 s: the guest swaps until it does not
def test_memory_min_follows_what_is_used_of_a_floor(
    node: Node, tree: Tree, load: Load, record_property: Record
) -> None:
    pods = Beside(node, load)
    pods.keep(100, follow_use=True)
    assert VICTIM <= node.kubepods.number("memory.min") < VICTIM + 16 * MIB
    pods.press(tree.make("beside"))
    record_property("MiB swapped of victim and neighbour", pods.swapped())
    assert pods.swapped()[0] <= LARGE_FLOOR // 64 // MIB
    assert pods.swapped()[1] > 40


@pytest.mark.full  # at times, with nothing left to reclaim, the guest starts no process for minutes
def test_memory_min_for_all_of_a_floor_would_be_the_neighbours(
    node: Node, tree: Tree, load: Load, record_property: Record
) -> None:
    """What the plan would do if it did not follow what is used: a program beside the pods is killed."""
    pods = Beside(node, load)
    pods.keep(100, follow_use=False)
    assert node.kubepods.number("memory.min") == LARGE_FLOOR
    with pytest.raises(ChildProcessError):
        pods.press(tree.make("beside"))
    record_property("MiB swapped of victim and neighbour", pods.swapped())
    assert pods.swapped()[1] < IDLE // MIB // 2
