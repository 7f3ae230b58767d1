"""A cluster of two resources, told in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from qos.cluster.objects import Node, OwnerReference, Pod
from qos.cluster.running import NodeUsage, RunningPod
from rescheduling.records import World
from rescheduling.rescheduler import Rescheduler, Round
from rescheduling.settings import Limits, Pool, Settings, Thresholds

NOW = 10_000.0
FULL = Thresholds(low={"cpu": 45.0, "memory": 60.0}, high={"cpu": 65.0, "memory": 80.0})


def settings(pool: Mapping[str, Any] | None = None, limits: Limits | None = None, **more: Any) -> Settings:
    """One pool of all nodes, abnormal at once unless said."""
    one = Pool("all", **{"all": FULL, "abnormal": 1, **(pool or {})})
    return Settings((one,), limits or Limits(), **more)


def node(name: str, cpu: int = 10_000, memory: int = 100, **more: Any) -> Node:
    return Node(name, name, {"cpu": cpu, "memory": memory, "pods": 110}, **more)


def running(name: str, on: str, workload: str = "web", **more: Any) -> RunningPod:
    """A pod of a ReplicaSet; fields of the Pod are told from those of the RunningPod by their names."""
    owner = OwnerReference("ReplicaSet", workload, workload)
    own = {key: more.pop(key) for key in [*more] if key in Pod.__slots__}
    fields = {"controller": owner, "requests": {"cpu": 100, "memory": 1, "pods": 1}, **own}
    pod = Pod(uid=name, namespace="a", name=name, node_name=on, phase="Running", **fields)
    return RunningPod(pod, **more)


def world(
    usage: Mapping[str, tuple[int, int]],
    pods: Mapping[str, tuple[RunningPod, tuple[int, int]]] | None = None,
    nodes: Sequence[Node] = (),
    at: float = NOW,
    **more: Any,
) -> World:
    """Nodes by what they use, and pods by what they use: millicores, bytes."""
    every = {name: node(name) for name in usage} | {one.name: one for one in nodes}
    on: dict[str, list[RunningPod]] = {}
    for one, _ in (pods or {}).values():
        on.setdefault(one.pod.node_name, []).append(one)
    return World(
        every,
        {name: NodeUsage(at, _amounts(used)) for name, used in usage.items()},
        on,
        {one.pod.key: _amounts(used) for one, used in (pods or {}).values()},
        **more,
    )


def _amounts(used: tuple[int, int]) -> dict[str, int]:
    return {"cpu": used[0], "memory": used[1]}


def three(on: str = "hot", cpu: int = 1000, **more: Any) -> dict[str, tuple[RunningPod, tuple[int, int]]]:
    """Three pods of a workload on a node, alike."""
    return {name: (running(name, on, **more), (cpu, 5)) for name in ("p1", "p2", "p3")}


def decide(given: World, by: Settings | None = None, now: float = NOW) -> Round:
    return Rescheduler(by or settings()).decide(given, now)


def changed(given: World, **more: Any) -> World:
    return replace(given, **more)
