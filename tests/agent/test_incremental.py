"""After any sequence of changes the plans of a planner that remembers are those of one that knows nothing."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.containers import Containers
from agent.planner import Planner
from agent.state import ContainerKey, Known, KnownPod, Running
from qos.cluster.selectors import Requirement, Selector
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED, Container, NodePod
from tests.adapters.fake_machine import Fake
from tests.qos.builders import policy

MIB = 1 << 20
TIERS = {GUARANTEED: "kubepods", BURSTABLE: "kubepods/burstable", BEST_EFFORT: "kubepods/besteffort"}
VALUES = {"cpu.idle": "0", "cpu.max": "max 100000", "memory.min": "0", "memory.low": "0", "memory.max": "max"}
NAMES = ("a", "b")

numbers = st.integers(0, 5)
changes = st.one_of(
    st.tuples(
        st.just("come"), numbers, st.sampled_from(sorted(TIERS)), st.sampled_from(NAMES), st.integers(1, 2)
    ),
    st.tuples(st.just("go"), numbers, st.booleans()),
    st.tuples(st.just("resize"), numbers, st.integers(1, 2000)),
    st.tuples(st.just("start"), numbers, st.sampled_from(NAMES)),
    st.tuples(st.just("end"), numbers, st.sampled_from(NAMES)),
    st.tuples(st.just("policy"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("opt out"), st.booleans()),
    st.tuples(st.just("neighbour"), st.booleans(), st.integers(1, 10_000)),
    st.tuples(st.just("kubelet"), st.sampled_from(sorted(TIERS)), st.integers(1, 10_000)),
    st.tuples(st.just("weigh"), numbers, st.integers(1, 10_000)),
    st.tuples(st.just("ours"), numbers, st.integers(1, 10_000)),
)


class Changing:
    """A node of plain files that changes as nodes do, with what is known of it."""

    def __init__(self, folder: Path) -> None:
        self.fake = Fake(folder, v1=False, unified=True)
        self.fake.write("proc/meminfo", "MemTotal:  4194304 kB\n")
        for path in (*TIERS.values(), "system.slice"):
            self.group(path, 1000)
        self.known, self.originals = Known(), dict[tuple[str, str], str]()
        machine = self.fake.machine()
        self.machine, self.size = machine, machine.size(frozenset())
        self.containers = Containers(machine.has, machine.kubepods)
        self.planner = self.new()
        self.weights: dict[str, int] = {}

    def new(self) -> Planner:
        return Planner(self.machine, self.size, time.monotonic)

    def group(self, path: str, weight: int, *, populated: bool = True) -> None:
        values = {**VALUES, "cpu.weight": str(weight), "cgroup.events": f"populated {int(populated)}\n"}
        for file, text in values.items():
            self.fake.write(f"cgroup/unified/{path}/{file}", f"{text}\n")

    def path(self, number: int) -> str:
        known = self.known.pods.get(uid(number))
        return f"{TIERS[known.pod.qos]}/pod{uid(number)}" if known else ""

    def change(self, kind: str, *arguments: Any) -> None:
        getattr(self, kind.replace(" ", "_"))(*arguments)

    def come(self, number: int, qos: str, app: str, count: int) -> None:
        if uid(number) in self.known.pods:
            return
        containers = tuple(Container(name, cpu_request=50, memory_request=32 * MIB) for name in NAMES[:count])
        pod = NodePod(uid(number), "shop", f"p{number}", containers, qos, labels={"app": app})
        self.known.pods[pod.uid] = KnownPod(pod)
        self.group(self.path(number), 4)

    def go(self, number: int, cgroup_too: bool) -> None:
        path = self.path(number)
        if not path:
            return
        for name in NAMES:
            self.end(number, name)
        del self.known.pods[uid(number)]
        if cgroup_too:
            shutil.rmtree(f"{self.fake.root}/cgroup/unified/{path}")
            self.originals = {
                key: one for key, one in self.originals.items() if not key[0].startswith(f"/{path}")
            }
            self.planner.forget(uid(number))

    def resize(self, number: int, cpu: int) -> None:
        known = self.known.pods.get(uid(number))
        if known is None:
            return
        containers = tuple(replace(one, cpu_request=cpu) for one in known.pod.containers)
        self.known.pods[uid(number)] = replace(known, pod=replace(known.pod, containers=containers))
        self.group(self.path(number), max(cpu // 26, 1))
        self.originals.pop((f"/{self.path(number)}", "cpu.weight"), None)
        self.planner.changed(uid(number))

    def weigh(self, number: int, weight: int) -> None:
        """Somebody whose wish counts gives the pod another weight."""
        if path := self.path(number):
            self.fake.write(f"cgroup/unified/{path}/cpu.weight", f"{weight}\n")
            self.originals.pop((f"/{path}", "cpu.weight"), None)
            self.planner.changed(f"/{path}")

    def start(self, number: int, name: str) -> None:
        if not self.path(number):
            return
        container_id = f"{number}{name}".rjust(64, "0")
        path = f"{self.path(number)}/{container_id}"
        self.group(path, 2)
        self.containers.told(Running(ContainerKey(uid(number), name), container_id, f"/{path}"))

    def end(self, number: int, name: str) -> None:
        ended = self.containers.ended(f"{number}{name}".rjust(64, "0"))
        if ended is not None:
            shutil.rmtree(f"{self.fake.root}/cgroup/unified{ended.cgroup}", ignore_errors=True)

    def policy(self, app: str, size: int) -> None:
        key = f"shop/{app}"
        self.known.policies.pop(key, None)
        if size:
            selector = Selector((Requirement("app", "In", (app,)),))
            floor = {"cpu": 100 * size, "memory": size * 24 * MIB}
            made = policy(key=key, name=app, namespace="shop", selector=selector, floor=floor)
            self.known.policies[key] = made

    def opt_out(self, out: bool) -> None:
        self.known.opt_outs = {"shop": "true"} if out else {}

    def neighbour(self, populated: bool, weight: int) -> None:
        self.group("system.slice", weight, populated=populated)

    def kubelet(self, qos: str, weight: int) -> None:
        self.group(TIERS[qos], weight)

    def ours(self, number: int, weight: int) -> None:
        """What we wrote over kubelet's."""
        if path := self.path(number):
            file = Path(f"{self.fake.root}/cgroup/unified/{path}/cpu.weight")
            self.originals.setdefault((f"/{path}", "cpu.weight"), file.read_text().strip())
            file.write_text(f"{weight}\n")
            self.planner.changed(f"/{path}")

    def plans(self, planner: Planner) -> dict[str, Any]:
        for _ in planner.prepare(self.known, self.containers.all(), self.originals):
            pass
        found = {one.uid: one for one in planner.plans()}
        assert planner.problems == {}
        return found


def uid(number: int) -> str:
    return f"3c0f1d2e-0000-4000-8000-{number:012d}"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(sorted(TIERS)), max_size=4), st.lists(changes, min_size=1, max_size=12))
def test_incremental_plans_are_those_made_anew(tiers: list[str], taken: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        node = Changing(Path(folder))
        for number, qos in enumerate(tiers):
            node.come(number, qos, NAMES[number % 2], 2)
            node.start(number, "a")
        for change in taken:
            node.change(*change)
            assert node.plans(node.planner) == node.plans(node.new()), taken


def test_what_has_not_changed_is_neither_decided_nor_placed_again(tmp_path: Path) -> None:
    node = Changing(tmp_path)
    node.policy("a", 1)
    for number in range(3):
        node.come(number, BURSTABLE, "a", 2)
        node.start(number, "a")
    node.plans(node.planner)
    before = dict(node.planner._node.places)
    node.come(3, BURSTABLE, "a", 1)
    node.start(1, "b")
    node.plans(node.planner)
    after = node.planner._node.places
    assert [number for number in range(3) if after[uid(number)] is not before[uid(number)]] == [1]
