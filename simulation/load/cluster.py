"""A cluster whose pods use what a seed says: scheduled, measured with a lag and an error, migrated."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Final

from qos.cluster.objects import Node, OwnerReference, Pod
from qos.cluster.running import PROD, Moved, NodeUsage, RunningPod
from rescheduling.records import Failure, Migration, World
from rescheduling.settings import MINUTE, Limits, Pool, Settings, Thresholds

TICK: Final = 30.0
"""Seconds between two rounds; a report comes every other, and shows what was used a tick before."""
CPU, MEMORY = "cpu", "memory"
GIB: Final = 1 << 30
LAGS: Final = 2
FULL: Final = 40.0
"""Percent of all nodes together that pods use at first; changes add to it."""


@dataclass(slots=True)
class Load:
    """A pod and what it really uses. `line`: the pod that it replaced, or itself: one line of pods.

    `changes`: by how much, and when.
    """

    running: RunningPod
    uses: dict[str, int]
    line: str
    changes: list[tuple[float, dict[str, int]]] = field(default_factory=list)


@dataclass(slots=True)
class UnderWay:
    """A migration and when its next step is due."""

    migration: Migration
    due: float
    step: str = "Reserve"
    came: str = ""


@dataclass(slots=True)
class Cluster:
    """The truth. `noise`: percentage points by which a node's report may be wrong; `faulty`: things fail."""

    chance: random.Random
    settings: Settings
    noise: float
    now: float = 1_000_000.0
    faulty: bool = True
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Load] = field(default_factory=dict)
    under_way: dict[str, UnderWay] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)
    reports: dict[str, NodeUsage] = field(default_factory=dict)
    silent: dict[str, float] = field(default_factory=dict)
    lagging: list[tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]] = field(default_factory=list)
    grown: dict[str, dict[str, float]] = field(default_factory=dict)
    serial: int = 0

    def used(self, node: str) -> dict[str, int]:
        """What the node's pods really use."""
        own = [one.uses for one in self.pods.values() if one.running.pod.node_name == node]
        return {name: sum(uses[name] for uses in own) for name in (CPU, MEMORY)}

    def percent(self, node: str) -> dict[str, float]:
        """The same, of allocatable."""
        has = self.nodes[node].allocatable
        return {name: 100.0 * amount / has[name] for name, amount in self.used(node).items()}

    def full(self, most: float) -> bool:
        """Whether all pods together use more than so many percent of anything."""
        for name in (CPU, MEMORY):
            has = sum(node.allocatable[name] for node in self.nodes.values())
            if 100.0 * sum(one.uses[name] for one in self.pods.values()) > most * has:
                return True
        return False

    def heat(self, node: str, uses: dict[str, int]) -> None:
        """Note that load came to a node otherwise than by a migration that went well."""
        grown = self.grown.setdefault(node, {CPU: 0.0, MEMORY: 0.0})
        for name, amount in uses.items():
            grown[name] += 100.0 * max(0, amount) / self.nodes[node].allocatable[name]

    # --- what happens ---

    def place(self, like: RunningPod, uses: dict[str, int], line: str = "", node: str = "") -> str:
        """Schedule a pod: on a node that has room for its requests, the first ones rather; its name."""
        choice = node or self._scheduled(like)
        if not choice:
            return ""
        self.serial += 1
        name = f"p{self.serial}"
        pod = replace(
            like.pod,
            uid=name,
            name=name,
            node_name=choice,
            phase="Running",
            created=self.now,
            scheduled=self.now,
        )
        self.pods[name] = Load(replace(like, pod=pod, moved=None), dict(uses), line or name)
        if not node:
            self.heat(choice, uses)
        return name

    def _scheduled(self, like: RunningPod) -> str:
        fit = [name for name in self.nodes if self._room(name, like)]
        return fit[int(len(fit) * self.chance.random() ** 2.5)] if fit else ""

    def _room(self, node: str, like: RunningPod) -> bool:
        if self.nodes[node].unschedulable:
            return False
        own = [one.running.pod.requests for one in self.pods.values() if one.running.pod.node_name == node]
        has = self.nodes[node].allocatable
        return all(sum(r[n] for r in own) + like.pod.requests[n] <= has[n] for n in (CPU, MEMORY))

    def change(self, name: str, uses: dict[str, int]) -> None:
        """A pod uses something else from now on."""
        load = self.pods[name]
        more = {n: uses[n] - load.uses[n] for n in uses}
        self.heat(load.running.pod.node_name, more)
        if name in self.under_way:  # it will use more there than was reckoned with
            self.heat(self.under_way[name].migration.target, more)
        load.changes.append((self.now, more))
        load.uses = dict(uses)

    def begin(self, one: Migration) -> None:
        """A migration begins; changes of the pod that were not measured yet come to the target."""
        for at, more in self.pods[one.uid].changes:
            if self.now - at <= LAGS * TICK:
                self.heat(one.target, more)
        self.begun.append(self.now)
        self.under_way[one.uid] = UnderWay(one, self.now + TICK * self.chance.randint(0, 1))

    def proceed(self) -> list[tuple[str, str]]:
        """One step of each migration that is due; which lines of pods have been moved, and to where."""
        moved = []
        for uid, one in list(self.under_way.items()):
            if one.due > self.now:
                continue
            one.due = self.now + TICK * self.chance.randint(0, 2)
            fails = self.faulty and self.chance.random() < 0.06
            if uid not in self.pods and one.step in ("Reserve", "Evict"):
                del self.under_way[uid]
            elif fails and one.step in ("Reserve", "Evict"):
                self._fail(uid)
            elif one.step == "Reserve":
                one.step = "Evict"
            elif one.step == "Evict":
                one.step = "Come"
                self._replace(one, elsewhere=self.faulty and self.chance.random() < 0.06)
            else:
                moved += self._came(uid, one)
        return moved

    def _fail(self, uid: str) -> None:
        one = self.under_way.pop(uid).migration
        self.failures.append(Failure(one.workload, self.now))

    def _replace(self, one: UnderWay, *, elsewhere: bool) -> None:
        old = self.pods.pop(one.migration.uid)
        target = one.migration.target
        if elsewhere or target not in self.nodes or not self._room(target, old.running):
            self.place(old.running, old.uses, old.line)
            return
        one.came = self.place(old.running, old.uses, old.line, target)
        self.pods[one.came].running = replace(self.pods[one.came].running, ready=False)

    def _came(self, uid: str, one: UnderWay) -> list[tuple[str, str]]:
        if one.came not in self.pods:
            self._fail(uid)
            return []
        del self.under_way[uid]
        load, said = self.pods[one.came], one.migration
        moved = Moved(self.now, said.times, said.usage, said.expected, said.at)
        load.running = replace(load.running, ready=True, moved=moved)
        return [(load.line, said.target)]

    # --- what is seen ---

    def measure(self) -> None:
        """Reports show what was used before; nodes that are silent say nothing."""
        truth = {name: self.used(name) for name in self.nodes}
        own = {name: dict(one.uses) for name, one in self.pods.items()}
        self.lagging = [*self.lagging, (truth, own)][-LAGS:]
        seen = self.lagging[0][0]
        turn = int(self.now / TICK) % 2
        for at, name in enumerate(sorted(self.nodes)):
            if at % 2 == turn or self.silent.get(name, 0.0) > self.now or name not in seen:
                continue
            usage = {}
            for resource, amount in seen[name].items():
                error = self.chance.uniform(-self.noise, self.noise) / 100
                usage[resource] = max(0, amount + int(error * self.nodes[name].allocatable[resource]))
            self.reports[name] = NodeUsage(self.now, usage)

    def world(self) -> World:
        """What rescheduling is shown."""
        pods: dict[str, list[RunningPod]] = {}
        for one in self.pods.values():
            pods.setdefault(one.running.pod.node_name, []).append(one.running)
        usage = {
            self.pods[n].running.pod.key: uses for n, uses in self.lagging[0][1].items() if n in self.pods
        }
        return World(
            nodes=self.nodes,
            reports={name: one for name, one in self.reports.items() if name in self.nodes},
            pods=pods,
            usage=usage,
            under_way=[one.migration for one in self.under_way.values()],
            failures=self.failures,
            begun=[at for at in self.begun if self.now - at < MINUTE],
        )


def cluster(seed: int) -> Cluster:
    """The cluster that a seed draws: nodes of different sizes, workloads, thresholds, limits."""
    chance = random.Random(seed)  # noqa: S311 - a history, not a secret
    made = Cluster(chance, _settings(chance), noise=chance.choice((0.0, 0.0, 1.0, 2.0)))
    for number in range(chance.randint(3, 9)):
        size = chance.choice((8, 16, 32))
        name = f"n{number}"
        made.nodes[name] = Node(name, name, {CPU: size * 1000, MEMORY: size * 4 * GIB, "pods": 110})
    for number in range(chance.randint(6, 20)):
        like, uses = _workload(chance, number)
        for _ in range(chance.randint(1, 12)):
            if made.full(FULL):
                break
            made.place(like, {n: int(amount * chance.uniform(0.6, 1.4)) for n, amount in uses.items()})
    return made


def _settings(chance: random.Random) -> Settings:
    deviation = chance.random() < 0.3
    high = {n: chance.uniform(5, 15) if deviation else chance.uniform(45, 80) for n in (CPU, MEMORY)}
    low = {
        n: chance.uniform(8, 20) if deviation else most - chance.uniform(12, 35) for n, most in high.items()
    }
    some = chance.random() < 0.3 and not deviation
    prod = Thresholds({CPU: low[CPU] - 5}, {CPU: high[CPU] - 5}) if some else Thresholds()
    pool = Pool(
        "all",
        all=Thresholds(low, high),
        prod=prod,
        deviation=deviation,
        abnormal=chance.choice((1, 2, 5)),
        normal=chance.choice((1, 3)),
    )
    limits = Limits(
        node=chance.choice((1, 2, 4)),
        namespace=chance.choice((None, 3)),
        workload=chance.choice((None, 0.3, 2)),
        minute=chance.choice((2, 10)),
    )
    return Settings((pool,), limits, change=chance.choice((8.0, 10.0)), fresh=0.6)


def _workload(chance: random.Random, number: int) -> tuple[RunningPod, dict[str, int]]:
    requests = {CPU: chance.choice((0, 100, 500, 1000)), MEMORY: chance.choice((0, 1, 2)) * GIB, "pods": 1}
    uses = {CPU: chance.choice((100, 800, 2000, 4000)), MEMORY: int(chance.choice((0.2, 1, 4, 8)) * GIB)}
    band = chance.choice((0, 1, 1, 2, PROD))
    owner = OwnerReference(chance.choice(("ReplicaSet",) * 20 + ("DaemonSet",)), f"w{number}", f"w{number}")
    pod = Pod("", chance.choice(("a", "b")), "", requests, controller=owner, priority=band)
    return RunningPod(pod, band=band, floor=chance.random() < 0.05), uses
