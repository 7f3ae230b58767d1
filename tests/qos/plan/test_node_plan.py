"""A whole node planned at once, against the kernel's rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.kernel_rules import Group, cpu_time, protection
from qos.cluster.policy import Profile
from qos.plan.assumed import Machine, request
from qos.plan.controller import all_files
from qos.plan.layout import Driver
from qos.plan.node import V1, V2
from qos.plan.node_plan import PlannedNode
from qos.plan.observed import Seen
from qos.plan.placed_pod import NodeTree, placed
from qos.plan.planning import parts
from qos.plan.settings import RAISE, SET
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED, Container, NodePod, at_once
from qos.pods.decision import Decided
from qos.pods.expectation import expectation
from qos.promises import Overrides

MI = 2**20
PAGE = 4096
TIERS = {GUARANTEED: "/kubepods", BURSTABLE: "/kubepods/burstable", BEST_EFFORT: "/kubepods/besteffort"}


@dataclass
class Node:
    """A node as kubelet left it: the text of each cgroup's files, and its pods."""

    cgroup: str
    cpus: int
    memory: int
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    decided: dict[str, Decided] = field(default_factory=dict)
    running: dict[str, dict[str, str]] = field(default_factory=dict)
    loose: int = 0

    @property
    def machine(self) -> Machine:
        return Machine(
            self.cpus,
            self.memory,
            self.cpus,
            self.memory,
            frozenset(name for name, file in all_files().items() if self.cgroup in file.versions),
            self.cgroup,
            driver=Driver.CGROUPFS,
        )

    def add(self, path: str, weight: int, *, idle: bool = False, least: int = 0, quota: int | None = None):
        if self.cgroup == V1:
            self.values[path] = {
                "cpu.shares": f"{weight}\n",
                "cpu.idle": f"{int(idle)}\n",
                "cpu.cfs_quota_us": f"{-1 if quota is None else quota * 100}\n",
                "cpu.cfs_period_us": "100000\n",
            }
        else:
            self.values[path] = {
                "cpu.weight": "0\n" if idle else f"{weight}\n",
                "cpu.idle": f"{int(idle)}\n",
                "cpu.max": "max 100000\n" if quota is None else f"{quota * 100} 100000\n",
                "memory.min": f"{least}\n",
                "memory.low": f"{least}\n",
                "memory.max": "max\n",
            }

    def add_pod(self, decided: Decided, *, there: bool = True, least: int = 0, quota: int | None = None):
        pod, machine = decided.pod, self.machine
        self.decided[pod.uid] = decided
        if not there:
            return
        path = f"{TIERS[pod.qos]}/pod{pod.uid}"
        self.add(path, machine.kubelet_weight(request(pod)[0]), least=least, quota=quota)
        self.add(f"{path}/pause", machine.runtime_weight(0))
        for one in pod.containers:
            self.add(f"{path}/{one.name}", machine.runtime_weight(one.cpu_request))
            self.running.setdefault(pod.uid, {})[one.name] = f"{path}/{one.name}"

    def tree(self) -> NodeTree:
        groups = {
            path: Seen(values, tuple(children(self.values, path))) for path, values in self.values.items()
        }
        groups["/"] = Seen({}, tuple(children(self.values, "")), self.loose)
        pods = {uid: path for uid in self.decided if (path := self.path(uid)) in self.values}
        return NodeTree(groups, pods, {qos: tier for qos, tier in TIERS.items() if tier in groups}, page=PAGE)

    def start_all(self) -> None:
        """Kubelet makes the pods that were still to come."""
        for uid, decided in self.decided.items():
            if self.path(uid) not in self.values:
                self.add_pod(decided)

    def places(self):
        tree, running = self.tree(), self.running
        return {
            uid: placed(tree, self.machine, one, running.get(uid, {})) for uid, one in self.decided.items()
        }

    def path(self, uid: str) -> str:
        return f"{TIERS[self.decided[uid].pod.qos]}/pod{uid}"

    def named(self, plans):
        """The plans with the cgroups of containers to come called as here: they have no id yet."""
        return {
            uid: tuple(
                replace(one, plan=self._named(one.plan, f"{self.path(uid)}/{one.name}")) for one in made
            )
            for uid, made in plans.items()
        }

    @staticmethod
    def _named(plan, path):
        of_container = [one._replace(group=path) if one.level == 0 else one for one in plan.settings]
        return plan._replace(settings=tuple(of_container))

    def plans(self):
        node = PlannedNode.solved(self.tree(), self.machine, self.places())
        return self.named({uid: node.plan(uid) for uid in node.places})


def children(paths, parent):
    return [path.rpartition("/")[2] for path in paths if path.rpartition("/")[0] == parent]


def written(plans):
    """(cgroup, file) -> value, of all plans: what is shared is only raised, all else each writes alike."""
    found = {}
    for container in (one for made in plans.values() for one in made):
        for one in container.plan.settings:
            if one.group:
                before = found.setdefault((one.group, one.file), one.value)
                assert before == one.value or one.mode == RAISE
                found[one.group, one.file] = (
                    one.value if one.mode == SET else str(max(int(before), int(one.value)))
                )
    return found


def settings_of(plans):
    return [one for made in plans.values() for container in made for one in container.plan.settings]


def kernel_tree(node: Node, plans, running) -> Group:
    """What the kernel has when all is written; running: the paths of containers that are there."""
    settings = written(plans)
    groups = {"": Group("/")}
    containers = {f"{node.path(uid)}/{one.name}" for uid, made in plans.items() for one in made}
    for path in sorted(node.values):
        if path in containers - running or not {path.rpartition("/")[0]} <= groups.keys():
            continue
        found = {file: value for (group, file), value in settings.items() if group == path}
        groups[path] = group_of(node, path, node.values[path], found)
        groups[path.rpartition("/")[0]].children.append(groups[path])
    groups[""].children += [Group(f"thread{number}") for number in range(min(node.loose, node.cpus // 1000))]
    return groups[""]


def group_of(node: Node, path: str, values, found) -> Group:
    file = "cpu.weight" if node.cgroup == V2 else "cpu.shares"
    weight = int(found.get(file) or values[file])
    idle = (found.get("cpu.idle") or values.get("cpu.idle", "0")).strip() == "1"
    quota = values.get("cpu.max", values.get("cpu.cfs_quota_us", "max")).split()[0]
    before, least = int(values.get("memory.min", 0)), int(found.get("memory.min", 0))
    return Group(
        path,
        **({"weight": weight} if node.cgroup == V2 else {"shares": weight}),
        idle=idle,
        quota=None if quota in ("max", "-1") else int(quota) // 100,
        memory_min=(least or before) if "/pod" in path else max(before, least),
        memory_usage=2**60,
    )


CPU = st.sampled_from([0, 1, 37, 100, 250, 1000, 2000])
MEMORY = st.sampled_from([0, 64 * MI, 100_000_000, 1024 * MI])
CONTAINERS = st.builds(
    Container,
    st.just(""),
    cpu_request=CPU,
    memory_request=MEMORY,
    init=st.sampled_from([False, False, True]),
    sidecar=st.booleans(),
).map(lambda one: replace(one, sidecar=one.sidecar and one.init))
OVERRIDES = st.sampled_from([Overrides()] * 3 + [Overrides(cpu_weight=300), Overrides(memory_min_percent=50)])


@st.composite
def pods(draw, number):
    containers = draw(st.lists(CONTAINERS, min_size=1, max_size=3))
    containers.sort(key=lambda one: not one.init)
    containers[-1] = replace(containers[-1], init=False, sidecar=False)
    named = tuple(replace(one, name=f"c{index}") for index, one in enumerate(containers))
    uid = f"{number:08x}-0000-4000-8000-000000000000"
    qos = draw(st.sampled_from([GUARANTEED, BURSTABLE, BURSTABLE, BEST_EFFORT]))
    pod = NodePod(uid, "shop", f"p{number}", named, qos)
    floor = draw(st.sampled_from([None, 1])) and {
        "cpu": draw(st.sampled_from([0, 10, 150, 500, 1000])),
        "memory": draw(MEMORY),
    }
    profile = Profile("p", "LS", overrides=draw(OVERRIDES)) if floor and draw(st.booleans()) else None
    return Decided(pod, expectation(pod, profile, floor=bool(floor)), profile=profile, floor=floor)


@st.composite
def nodes(draw, most=6):
    cgroup = draw(st.sampled_from([V1, V2]))
    node = Node(cgroup, draw(st.sampled_from([2, 4, 16])) * 1000, draw(st.sampled_from([4096, 65_536])) * MI)
    node.loose = draw(st.sampled_from([0, 0, 3]))
    weights = st.integers(2, 400)
    for path in ("/system.slice", "/user.slice", *TIERS.values()):
        if path in TIERS.values() or draw(st.booleans()):
            least = draw(st.sampled_from([0, 0, 256 * MI]))
            node.add(path, draw(weights), least=least)
    for number in range(draw(st.integers(0, most))):
        least = draw(st.sampled_from([0, 0, 128 * MI]))
        quota = draw(st.sampled_from([None, None, None, 400]))
        node.add_pod(draw(pods(number)), there=draw(st.booleans()), least=least, quota=quota)
    for name in range(draw(st.integers(0, 2))):
        node.add(f"/kubepods/burstable/stranger{name}", draw(weights), least=draw(MEMORY))
    return node


def running_now(data, node: Node) -> set[str]:
    """Of each pod that is there one set of containers that run at the same time."""
    return {
        f"{node.path(uid)}/{one.name}"
        for uid, decided in node.decided.items()
        if node.path(uid) in node.values
        for one in data.draw(st.sampled_from(at_once(decided.pod)))
    }


@settings(max_examples=100)
@given(nodes(), st.booleans(), st.booleans(), st.data())
def test_every_container_gets_its_part_or_is_said_to_get_less(node, recursive, coming, data):
    plans = node.plans()
    if coming:
        node.start_all()
    running = running_now(data, node)
    root = kernel_tree(node, plans, running)
    received = cpu_time(root, node.cpus)
    protected = protection(root, recursive=recursive, memory=node.memory)
    for uid, made in plans.items():
        decided = node.decided[uid]
        percent = decided.expected.promises.memory_min_percent
        of_each = parts(decided.pod, decided.kept)
        for container in made:
            path, part = f"{node.path(uid)}/{container.name}", of_each[container.name]
            if path not in running:
                continue
            missing = {short.resource: short.missing for short in container.plan.shortfalls}
            assert received[path] >= part.get("cpu", 0) - missing.get("cpu", 0)
            kept = protected[path] if node.cgroup == V2 else 0
            assert kept >= part.get("memory", 0) * percent // 100 - missing.get("memory", 0)


@settings(max_examples=30)
@given(nodes(), st.data())
def test_the_order_of_pods_does_not_matter(node, data):
    before = written(node.plans())
    node.decided = dict(data.draw(st.permutations(list(node.decided.items()))))
    assert written(node.plans()) == before


@settings(max_examples=60)
@given(nodes())
def test_what_is_shared_is_raised_to_exactly_what_all_below_claim(node):
    plans = node.plans()
    for file in ("memory.min", "memory.low"):
        said = {(one.group, one.value) for one in settings_of(plans) if (one.file, one.mode) == (file, RAISE)}
        assert len(said) == len(dict(said)), "no two plans say different things of a shared cgroup"
        found = {group: int(value) for (group, name), value in written(plans).items() if name == file}
        claims = {
            path: int(values.get(file, 0)) for path, values in node.values.items() if path.count("/") > 0
        }
        for uid in node.decided:
            if node.path(uid) in found:
                claims[node.path(uid)] = found[node.path(uid)]
        for tier in ("/kubepods/burstable", "/kubepods/besteffort", "/kubepods"):
            inside = [claims[path] for path in claims if path.rpartition("/")[0] == tier]
            total = sum(-(-one // PAGE) * PAGE for one in inside)
            if tier in found:
                assert found[tier] == total
            claims[tier] = max(claims[tier], found.get(tier, 0))


@st.composite
def roomy(draw):
    """Nodes on which all floors come to less than 70 % of what reaches them."""
    cgroup = draw(st.sampled_from([V1, V2]))
    node = Node(cgroup, 64_000, 2**50)
    tier = draw(st.sampled_from([GUARANTEED, BURSTABLE]))
    weight = 10_000 if cgroup == V2 else 262_144
    node.add("/system.slice", draw(st.integers(2, weight // 100)))
    for path in TIERS.values():
        node.add(path, weight if path in ("/kubepods", TIERS[tier]) else 2)
    count = draw(st.integers(1, 12))
    for number in range(count):
        one = draw(pods(number))
        floor = one.floor and {"cpu": one.floor["cpu"] * 3, "memory": one.floor["memory"]}
        pod = replace(one.pod, qos=tier)
        expected = expectation(pod, one.profile, floor=bool(floor))
        node.add_pod(replace(one, pod=pod, expected=expected, floor=floor), there=draw(st.booleans()))
    return node


@settings(max_examples=60)
@given(roomy())
def test_where_there_is_room_every_floor_is_kept(node):
    for made in node.plans().values():
        for container in made:
            short = [one for one in container.plan.shortfalls if one.resource == "cpu"]
            assert short == []
            if node.cgroup == V2:
                assert container.plan.shortfalls == ()


@settings(max_examples=30)
@given(nodes())
def test_one_pod_alone_is_planned_as_with_all_where_nothing_changed(node):
    tree, machine = node.tree(), node.machine
    places = {uid: placed(tree, machine, one, node.running.get(uid, {})) for uid, one in node.decided.items()}
    together = PlannedNode.solved(tree, machine, places)
    for uid, place in places.items():
        assert together.plan_beside(place) == together.plan(uid)


@settings(max_examples=40)
@given(nodes(most=4), st.data())
def test_a_pod_that_was_not_planned_for_takes_no_floor_from_the_others(node, data):
    """Beside the others as they are planned, until all are planned with it."""
    node.start_all()
    before = node.plans()
    planned = PlannedNode.solved(node.tree(), node.machine, node.places())
    new = data.draw(pods(77))
    node.add_pod(new)
    place = placed(node.tree(), node.machine, new, node.running[new.pod.uid])
    plans = {**before, **node.named({new.pod.uid: planned.plan_beside(place)})}
    running = running_now(data, node)
    received = cpu_time(kernel_tree(node, plans, running), node.cpus)
    without = cpu_time(kernel_tree(node, {**plans, new.pod.uid: ()}, running), node.cpus)
    for uid, one in node.decided.items():
        path, floor = node.path(uid), one.kept.get("cpu", 0)
        if uid != new.pod.uid and without[path] >= floor > 0:
            assert received[path] >= floor


@pytest.mark.parametrize("cgroup", [V1, V2])
def test_guaranteed_pods_and_the_burstable_ones_beside_them_keep_the_same_part(cgroup):
    """2400m are promised of 2 CPUs; the cgroup of all Burstable pods keeps the weight that it has."""
    node = Node(cgroup, 2000, 2**40)
    for path, weight in ((TIERS[GUARANTEED], 1000), (TIERS[BURSTABLE], 1000)):
        node.add(path, weight)
    for number, (qos, cpu) in enumerate(((GUARANTEED, 1500), (BURSTABLE, 900))):
        pod = NodePod(f"{number:08x}-0000-4000-8000-000000000000", "shop", qos, (Container("c", cpu),), qos)
        node.add_pod(Decided(pod, expectation(pod, floor=True), floor={"cpu": cpu}))
    running = {path for paths in node.running.values() for path in paths.values()}
    received = cpu_time(kernel_tree(node, node.plans(), running), node.cpus)
    for uid, decided in node.decided.items():
        assert received[node.path(uid)] >= decided.kept["cpu"] * 0.8
        [made] = node.plans()[uid]
        assert [short.resource for short in made.plan.shortfalls] == ["cpu"]
