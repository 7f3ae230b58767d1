"""In any order of what kube-scheduler and our leader do, no more pods end for one than it needs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qos.cluster.objects import Pod
from tests.extender.kube_scheduler import KubeScheduler
from tests.extender.room_world import Cluster, Extender
from tests.quota.builders import pod, quota

CORE = 1000
LATER = 120
"""Steps in turn in which all comes to an end."""
STEPS = (
    "watch",
    "watch all",
    "scheduler watches",
    "lead",
    "lead to a call",
    "end",
    "schedule",
    "schedule another",
    "first task",
    "last task",
)


class World(NamedTuple):
    cluster: Cluster
    extender: Extender
    scheduler: KubeScheduler

    def step(self, what: str) -> None:
        """One thing that may come next."""
        match what:
            case "watch":
                self.extender.see()
            case "watch all":
                while self.extender.see():
                    pass
            case "scheduler watches":
                while self.scheduler.see():
                    pass
            case "lead":
                self.extender.lead()
            case "lead to a call":
                while not self.extender.lead():
                    pass
            case "end":
                self.cluster.end()
            case "schedule" if waiting := self.scheduler.waiting():
                self.scheduler.attempt(waiting[0])
            case "schedule another" if waiting := self.scheduler.waiting():
                self.scheduler.attempt(waiting[-1])
            case "first task" if tasks := self.scheduler.tasks:
                tasks.pop(0)()
            case "last task" if tasks := self.scheduler.tasks:
                tasks.pop()()

    def settle(self) -> None:
        """Everything goes on for some time."""
        for _ in range(LATER):
            self.cluster.now += 0.1
            while self.extender.see() or self.scheduler.see():
                pass
            while not self.extender.lead():
                pass
            for who in self.scheduler.waiting():
                self.scheduler.attempt(who)
            while self.scheduler.tasks:
                self.scheduler.tasks.pop(0)()
            self.cluster.end()


def world(own: int, others: int, waits: Pod, *, most: int, least: int) -> World:
    """Two nodes of three CPUs; data runs `others` pods, then shop `own`, of one CPU each; and one waits."""
    cluster = Cluster({"n0": 3 * CORE, "n1": 3 * CORE})
    quotas = (
        quota("shop", {"cpu": most * CORE}, {"cpu": least * CORE}),
        quota("data", {"cpu": 6 * CORE}, {"cpu": 1 * CORE}),
    )
    made = Extender(cluster, quotas)
    for number, name in enumerate(["data"] * others + ["shop"] * own):
        cluster.write(one(f"{name}{number}", name, node=f"n{number % 2}"))
    cluster.write(replace(waits, unschedulable_since=1.0))
    scheduler = KubeScheduler(cluster, made.ledger)
    while made.see() or scheduler.see():
        pass
    return World(cluster, made, scheduler)


def one(name: str, of: str, cpu: int = 1, priority: int = 0, node: str = "") -> Pod:
    made = pod(name, {"cpu": cpu * CORE, "pods": 1}, of, node=node, priority=priority)
    made.uid = name
    return made


orders = st.lists(st.sampled_from(STEPS), max_size=60)


@pytest.mark.parametrize("there", [(2, 4), (2, 3), (2, 2)])
@given(orders)
@settings(max_examples=200, deadline=None)
def test_inside_a_quota_as_many_end_as_are_needed(there: tuple[int, int], order: list[str]) -> None:
    own, others = there
    made = world(own, others, one("urgent", "shop", priority=9), most=2, least=2)
    played(made, order, "urgent", 1)


@given(orders, st.sampled_from([0, 9]))
@settings(max_examples=200, deadline=None)
def test_of_what_is_owed_as_many_end_as_are_needed(order: list[str], priority: int) -> None:
    made = world(0, 6, one("owed", "shop", cpu=2, priority=priority), most=3, least=3)
    played(made, order, "owed", 2)


def played(made: World, order: list[str], uid: str, needed: int) -> None:
    """A pod waits that kube-scheduler refused before. It comes, and as many have ended as it needs."""
    for what in order:
        made.step(what)
    made.settle()
    assert made.cluster.pods[uid].node_name
    assert len(made.cluster.evicted) == needed, made.cluster.evicted
