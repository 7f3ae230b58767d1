"""Nodes as kubelet leaves them, for tests of plans: their cgroups' files, and the kernel's tree of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from lab.kernel_rules import Group
from qos.cluster.policy import Profile
from qos.plan.assumed import Machine
from qos.plan.controller import all_files
from qos.plan.layout import Driver
from qos.plan.node import V1, V2
from qos.plan.node_plan import PlannedNode
from qos.plan.observed import Seen
from qos.plan.placed_pod import NodeTree, placed
from qos.plan.settings import RAISE, SET
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED, Container, NodePod, at_once, request
from qos.pods.decision import Decided
from qos.pods.expectation import expectation
from qos.promises import Overrides

MI = 2**20
PAGE = 4096
TIERS = {GUARANTEED: "/kubepods", BURSTABLE: "/kubepods/burstable", BEST_EFFORT: "/kubepods/besteffort"}


@dataclass
class Node:
    """A node as kubelet left it: the text of each cgroup's files, and its pods. empty: without processes.

    used: by uid, what pods use of their memory; all they can get where nothing is said.
    """

    cgroup: str
    cpus: int
    memory: int
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    decided: dict[str, Decided] = field(default_factory=dict)
    running: dict[str, dict[str, str]] = field(default_factory=dict)
    loose: int = 0
    empty: set[str] = field(default_factory=set)
    used: dict[str, int] = field(default_factory=dict)

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
                "cgroup.events": f"populated {int(path not in self.empty)}\nfrozen 0\n",
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
        at_root = [
            name for name in children(self.values, "") if self.cgroup == V2 or f"/{name}" not in self.empty
        ]
        groups["/"] = Seen({}, tuple(at_root), self.loose)
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
            uid: placed(tree, self.machine, one, running.get(uid, {})).using(self.used.get(uid))
            for uid, one in self.decided.items()
        }

    def used_in(self, path: str) -> int:
        """What a cgroup without children uses; a pod's memory is all its first container's."""
        uid = next((uid for uid in self.used if path.startswith(f"{self.path(uid)}/")), None)
        if uid is None:
            return 2**60
        first = next(one.name for one in self.decided[uid].pod.containers if not one.init)
        return self.used[uid] if path.endswith(f"/{first}") else 0

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


def kernel_tree(node: Node, plans, running, protected: str = "memory.low") -> Group:
    """What the kernel has when all is written; running: the paths of containers that are there.

    protected: the file whose protection is counted.
    """
    settings = written(plans)
    groups = {"": Group("/")}
    containers = {f"{node.path(uid)}/{one.name}" for uid, made in plans.items() for one in made}
    for path in sorted(node.values):
        if path in containers - running or not {path.rpartition("/")[0]} <= groups.keys():
            continue
        found = {file: value for (group, file), value in settings.items() if group == path}
        groups[path] = group_of(node, path, node.values[path], found, protected)
        groups[path.rpartition("/")[0]].children.append(groups[path])
    groups[""].children += [Group(f"thread{number}") for number in range(min(node.loose, node.cpus // 1000))]
    return groups[""]


def group_of(node: Node, path: str, values, found, protected: str) -> Group:
    file = "cpu.weight" if node.cgroup == V2 else "cpu.shares"
    weight = int(found.get(file) or values[file])
    idle = (found.get("cpu.idle") or values.get("cpu.idle", "0")).strip() == "1"
    quota = values.get("cpu.max", values.get("cpu.cfs_quota_us", "max")).split()[0]
    before, least = int(values.get(protected, 0)), int(found.get(protected, 0))
    return Group(
        path,
        **({"weight": weight} if node.cgroup == V2 else {"shares": weight}),
        idle=idle,
        demand=0 if path in node.empty else None,
        quota=None if quota in ("max", "-1") else int(quota) // 100,
        memory_min=(least or before) if "/pod" in path else max(before, least),
        memory_usage=node.used_in(path),
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
    node.empty = {path for path in ("/user.slice", "/dev-mqueue.mount") if draw(st.booleans())}
    for path in ("/system.slice", "/user.slice", "/dev-mqueue.mount", *TIERS.values()):
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
        for one in data.draw(st.sampled_from(at_once(decided.pod.containers)))
    }
