"""A pod where it is on a node: its cgroup and those in it, what it must receive and what it claims. Pure.

All from what others wrote into the cgroups (kubelet, the runtime), or from what they will write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from qos.cluster.objects import Resources
from qos.keys import CPU
from qos.plan import assumed, layout, observed
from qos.plan.assumed import Machine
from qos.plan.container_plan import case_of
from qos.plan.controllers import cpu, memory
from qos.plan.controllers.cpu import Contest
from qos.plan.cpu_list import cpu_count
from qos.plan.node import Level, NodeFacts, Rival
from qos.plan.observed import Seen
from qos.plan.planning import parts
from qos.plan.protection import used_part
from qos.pods.containers import GUARANTEED, Container, request
from qos.pods.decision import Decided


@dataclass(frozen=True, slots=True)
class NodeTree:
    """The cgroups that matter for the pods of a node, as others left them. Paths are from the root, "/".

    `pods`: uid -> its cgroup. `parents`: QoS class -> the cgroup that its pods are in. `cpus`: the CPUs that
    may be used below such a parent, as a list (0-3,8). `page`: of the machine's memory, in bytes.
    """

    groups: Mapping[str, Seen]
    pods: Mapping[str, str]
    parents: Mapping[str, str] = field(default_factory=dict)
    cpus: Mapping[str, str] = field(default_factory=dict)
    page: int = 4096


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod where it is. `level`: its cgroup; `inside`: those of its containers, by name, without the pod's
    other containers; `floors`: each one's part of the floor.

    `claims`: what is protected for it by memory.min and memory.low, in bytes; `protected`: whether that is
    planned, otherwise it is what others wrote. `page`: in bytes.
    """

    decided: Decided
    level: Level
    inside: Mapping[str, Level]
    floors: Mapping[str, Resources]
    contest: Contest
    claims: tuple[int, int]
    protected: bool
    page: int

    @property
    def follows_use(self) -> bool:
        """Whether what it uses of its memory decides what is planned above it."""
        return self.protected and self.claims[0] > 0

    def using(self, memory: int | None) -> PlacedPod:
        """The pod with what it uses of its memory, in bytes; None: not known."""
        return replace(self, level=replace(self.level, memory_used=memory))

    @property
    def parent(self) -> str:
        """The cgroup that its own is in."""
        return parent_of(self.level.path)

    @property
    def floor(self) -> int:
        """Its CPU floor, in millicores."""
        return self.decided.kept.get(CPU, 0)

    def rival(self, weight: int) -> Rival:
        """The rival that it is to its siblings, with this weight."""
        least, low = self.claims
        if self.follows_use:
            least = used_part(least, self.level.memory_used, self.page)
        return Rival(weight, self.contest.idle, self.floor, least, low)


def placed(tree: NodeTree, machine: Machine, decided: Decided, running: Mapping[str, str]) -> PlacedPod:
    """Where a pod is, or will be; running: the cgroups of its containers that there are, by name."""
    level = _pod_level(tree, machine, decided)
    rivals = tuple(_strangers(tree, machine, level, frozenset(running.values())))
    inside = {
        one.name: replace(
            _container_level(tree, machine, one, level, running.get(one.name, "")), rivals=rivals
        )
        for one in decided.pod.containers
    }
    floors = parts(decided.pod, decided.kept)
    contest, claims, protected = _wanted(tree, machine, decided, level, inside, floors)
    return PlacedPod(decided, level, inside, floors, contest, claims, protected, tree.page)


def node_facts(tree: NodeTree, machine: Machine, parent: str) -> NodeFacts:
    """The facts of pods in this cgroup, planned together, without their levels."""
    made = assumed.facts(machine, ())
    shared = tree.cpus.get(parent) or made.shared_cpus
    return replace(
        made, cpus=1000 * cpu_count(shared), shared_cpus=shared, page=tree.page, planned_together=True
    )


def parent_of(path: str) -> str:
    """The cgroup that this one is in."""
    return path.rpartition("/")[0] or "/"


def _pod_level(tree: NodeTree, machine: Machine, decided: Decided) -> Level:
    pod = decided.pod
    path = tree.pods.get(pod.uid, "")
    if path in tree.groups:
        return observed.level(Level(path, 0, owned=True), tree.groups[path].values, (), machine.memory)
    *_, path, _ = layout.kubelet_paths(
        pod.qos, pod.uid or layout.NO_POD_UID, driver=machine.driver, runtime=machine.runtime
    )
    if parent := tree.parents.get(pod.qos, ""):
        path = f"{parent.rstrip('/')}/{path.rpartition('/')[2]}"
    return replace(assumed.pod_level(pod, request(pod)[0], machine, path), rivals=())


def _container_level(tree: NodeTree, machine: Machine, one: Container, pod: Level, path: str) -> Level:
    if path in tree.groups:
        return observed.level(Level(path, 0, owned=True), tree.groups[path].values, (), machine.memory)
    usual = layout.kubelet_paths(GUARANTEED, driver=machine.driver, runtime=machine.runtime)[-1]
    path = path or f"{pod.path}/{usual.rpartition('/')[2]}"
    return replace(assumed.container_level(one, machine, path), cpu_period=pod.cpu_period)


def _strangers(tree: NodeTree, machine: Machine, pod: Level, known: frozenset[str]) -> Iterator[Rival]:
    """The rivals in the pod's cgroup that are no container of it: its sandbox, and whatever else is there."""
    if pod.path not in tree.groups:
        yield Rival(machine.runtime_weight(0))  # the sandbox that it will have
        return
    for name in tree.groups[pod.path].children:
        path = f"{pod.path}/{name}"
        if path not in known and path in tree.groups:
            yield observed.rival(tree.groups[path].values, machine.memory)


def _wanted(
    tree: NodeTree,
    machine: Machine,
    decided: Decided,
    level: Level,
    inside: Mapping[str, Level],
    floors: Mapping[str, Resources],
) -> tuple[Contest, tuple[int, int], bool]:
    """What the pod must receive, what it claims, and whether that is planned."""
    if decided.exempt or not decided.pod.containers:
        return Contest(level.weight, level.idle), (level.memory_min, level.memory_low), False
    first = decided.pod.containers[0]
    facts = replace(node_facts(tree, machine, parent_of(level.path)), levels=(level, inside[first.name]))
    case = case_of(decided, first, facts, floors)
    least, low = memory.claims(case)
    claims = level.memory_min if least is None else least, level.memory_low if low is None else low
    return cpu.contest(case), claims, (least, low) != (None, None)
