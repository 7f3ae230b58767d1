"""The agent's monitor on cgroup v2: who is starved, limited, satisfied or idle, and for memory too."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from agent.deficit.judge import NOTHING, Judged
from agent.deficit.tally import Tally
from agent.monitor.monitor import Monitor, Watched
from agent.monitor.usage import UsageMeter
from kernel import facts
from lab.contention.groups import Group, Tree
from lab.contention.work import Load
from qos.cluster.objects import Resources
from qos.keys import CPU, MEMORY

MIB = 1 << 20
CPUS = 2
DEADLINE_SECONDS = 240.0

Record = Callable[[str, object], None]


class Rig:
    """Pods that are cgroups of one container, measured together."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.tally = Tally()
        self.monitor = Monitor(facts.mounts())
        self.usage = UsageMeter(facts.mounts(), "/proc")
        self._watched: dict[str, Watched] = {}

    def pod(self, name: str, floor: dict[str, int], **settings: object) -> Group:
        """Settings are the pod's, as kubelet and drift make them; the group is its container's."""
        self._tree.make(f"kubepods/{name}", **settings)
        self._watched[name] = Watched("shop", name, f"shop/{name}", f"/kubepods/{name}", floor)
        return self._tree.make(f"kubepods/{name}/app")

    def measure(self, enough: Callable[[], bool]) -> None:
        """Tick until it is enough, then close everything."""
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        self.monitor.watch(self._watched)
        groups = {uid: one.cgroup for uid, one in self._watched.items()}
        asyncio.run(self.usage.measure(groups))
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not enough():
            assert time.monotonic() < deadline, {uid: one.seconds for uid, one in self.tally.pods.items()}
            self.tally.take(self.monitor.tick(time.monotonic()), self.monitor.watched)
            time.sleep(0.2)
        asyncio.run(self.usage.measure(groups))
        self.monitor.close()
        assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208
        assert self.monitor.failures == 0

    def used(self, pod: str) -> Resources:
        assert self.usage.latest is not None
        return self.usage.latest.pods[pod]

    def judged(self, pod: str, resource: str) -> Judged:
        known = self.tally.pods.get(pod)
        return known.seconds.get(resource, NOTHING) if known else NOTHING


def test_cpu(tree: Tree, load: Load, record_property: Record) -> None:
    rig = Rig(tree)
    load.spin(rig.pod("neighbour", {}, cpu_weight=2000), CPUS)
    load.spin(rig.pod("starved", {CPU: 900}, cpu_weight=20), CPUS)
    load.spin(rig.pod("limited", {CPU: 500}, cpu_max="5000 100000"), 1)
    load.spin(rig.pod("satisfied", {CPU: 5}, cpu_weight=2000), CPUS)
    rig.pod("idle", {CPU: 900})
    rig.measure(
        lambda: (
            all(rig.judged(one, CPU).deficit > 2 for one in ("starved", "limited"))
            and rig.judged("satisfied", CPU).wanted > 2
        )
    )
    record_property("seconds", {uid: one.seconds for uid, one in rig.tally.pods.items()})
    assert rig.judged("satisfied", CPU).deficit == 0
    assert rig.judged("idle", CPU) == NOTHING
    sample = rig.monitor.latest.pods["limited"]  # type: ignore[union-attr]
    assert sample.throttled > 0
    assert sample.settled
    assert 30 <= rig.used("limited")[CPU] <= 70, "what its limit lets it"
    assert rig.used("idle") == {CPU: 0, MEMORY: 0}


def test_memory(tree: Tree, load: Load, record_property: Record) -> None:
    rig = Rig(tree)
    floor = {MEMORY: 96 * MIB}
    squeezed = rig.pod("squeezed", floor, memory_high=32 * MIB)
    satisfied = rig.pod("satisfied", {MEMORY: 16 * MIB})
    small = rig.pod("small", floor)
    load.churn(squeezed, 64 * MIB)
    load.churn(satisfied, 32 * MIB)
    load.hold(small, 8 * MIB)
    rig.measure(
        lambda: rig.judged("squeezed", MEMORY).deficit > 2 and rig.judged("satisfied", MEMORY).wanted > 2
    )
    record_property("seconds", {uid: one.seconds for uid, one in rig.tally.pods.items()})
    assert rig.judged("satisfied", MEMORY).deficit == 0
    assert rig.judged("small", MEMORY) == NOTHING
    detail = rig.monitor.latest.pods["satisfied"].detail  # type: ignore[union-attr]
    assert detail is not None
    assert detail.anonymous > 30 * MIB
    assert 8 * MIB <= rig.used("small")[MEMORY] < rig.used("satisfied")[MEMORY]


def test_a_pod_that_ends(tree: Tree) -> None:
    rig = Rig(tree)
    group = rig.pod("gone", {CPU: 100})
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    rig.monitor.watch(rig._watched)
    assert set(rig.monitor.tick(1.0).pods) == {"gone"}
    for folder in (group.folder, group.folder.parent):
        folder.rmdir()
    assert rig.monitor.tick(2.0).pods == {}
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert rig.monitor.failures == 0
    group.folder.mkdir(parents=True)
    assert rig.monitor.tick(3.0).pods["gone"].made == 2
    rig.monitor.close()


def test_the_cost_of_a_tick(tree: Tree, record_property: Record) -> None:
    rig = Rig(tree)
    for number in range(50):
        rig.pod(f"p{number}", {CPU: 100, MEMORY: MIB})
    rig.monitor.watch(rig._watched)
    costs = []
    for second in range(20):
        begun = time.process_time()
        rig.tally.take(rig.monitor.tick(second), rig.monitor.watched)
        costs.append(1000 * (time.process_time() - begun))
    assert len(rig.tally.pods) == 50
    record_property("milliseconds of 50 pods, least and median", (min(costs), sorted(costs)[10]))
    rig.monitor.close()
