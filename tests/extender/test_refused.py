"""Whom to ask about first of many pods that kube-scheduler refused, and for how long at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from adapters.loops import Changes
from extender.hand_over import HandOver
from extender.refused import A_ROUND, Refused
from extender.view import NodeMarks, View
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Node, NodePredicate, NodeSelectorTerm, Pod, Requirement
from tests.ledger.builders import demand, ledger, node, pod


class Asked(HandOver):
    """Gives nothing, and remembers whom it was asked about."""

    def __init__(self) -> None:
        self.pods: list[str] = []

    def add(self, pod: Pod) -> bool:
        self.pods.append(pod.name)
        return False


def waiting(name: str, priority: int = 0) -> Pod:
    return Pod(name, "default", name, {"cpu": 9_000}, priority=priority, unschedulable_since=1.0)


def refused_by(
    view: View,
    hand_over: HandOver,
    places: dict[str, NodePredicate],
    clock: Callable[[], float] = time.monotonic,
) -> Refused:
    account = Ledger(Mode.GUARD, cap_percent=100)
    for one in view.nodes.values():
        account.set_node(one)
    changes = Changes(0.0)
    return Refused(account, view, hand_over, places, changes, make_way=lambda _: None, clock=clock)


async def test_an_owner_waits_for_no_more_than_a_round_of_others() -> None:
    """After a restart all that wait are new: ten thousand of them take twenty seconds."""
    hand_over, view = Asked(), View()
    view.unschedulable = {f"batch-{n}": waiting(f"batch-{n}") for n in range(10 * A_ROUND)}
    refused = refused_by(view, hand_over, {})
    await refused.run_once()
    assert hand_over.pods == [f"batch-{n}" for n in range(A_ROUND)]
    view.unschedulable["owner"] = waiting("owner", 1_000)
    await refused.run_once()
    assert hand_over.pods[A_ROUND] == "owner"
    for _ in range(10):
        await refused.run_once()
    assert len(set(hand_over.pods)) == 10 * A_ROUND + 1


async def test_many_nodes_are_looked_through_in_steps() -> None:
    """Twenty terms take 64 ms at 5,000 nodes."""
    names = [f"n{number}" for number in range(1_000)]
    view = View(nodes={name: Node(name, name, {"cpu": 4_000}) for name in names})
    elsewhere = NodeSelectorTerm((Requirement("team", "In", ("x",)),))
    where = NodePredicate(affinity=(elsewhere,) * 20)
    view.unschedulable = {"w": waiting("w")}
    refused = refused_by(view, Asked(), {"w": where})
    steps = 0

    async def count() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await refused.run_once()
    counting.cancel()
    assert steps >= 5


async def test_whom_the_ledger_has_room_for_is_asked_about_again() -> None:
    hand_over, view = Asked(), View()
    view.unschedulable = {"w": waiting("w")}
    refused = refused_by(view, hand_over, {})
    await refused.run_once()
    await refused.run_once()
    assert hand_over.pods == ["w"]
    refused.again([view.unschedulable["w"]])
    await refused.run_once()
    assert hand_over.pods == ["w", "w"]


def crowded(memory: int, *, answers: bool = False) -> Ledger:
    """A slot of 2 CPUs, and no memory, lies on n0, and fits on n1 as well, where `memory` of 4 is used."""
    slot = replace(demand("a", 1), vector={"cpu": 2_000, "pods": 1})
    there = pod("there", 6, 1, node="n0"), pod("beside", 5, memory, node="n1")
    return ledger(node("n0", 8, 4), node("n1", 8, 4), *there, slot, mode=Mode.GUARD, answers=answers)


def asking(account: Ledger) -> Refused:
    view = View(nodes={name: node(name, 8, 4) for name in ("n0", "n1")})
    view.unschedulable = {"w": replace(pod("w", 2, 1), unschedulable_since=1.0)}
    return Refused(account, view, Asked(), {}, Changes(0.0), make_way=lambda _: None, clock=lambda: 1.0)


@pytest.mark.parametrize(("memory", "moves"), [(4, 1), (3, 0)])
async def test_room_on_a_node_without_memory_keeps_no_hold_from_moving(memory: int, moves: int) -> None:
    """kube-scheduler refuses that node whatever the ledger says of its CPUs, and the pod waited for ever."""
    account = crowded(memory)
    await asking(account).run_once()
    assert account.moved == moves


@pytest.mark.parametrize(("answers", "holds"), [(False, (("n0", 1),)), (True, ())])
async def test_a_hold_whose_new_place_is_lost_is_back_where_it_moved_from(
    answers: bool, holds: tuple[tuple[str, int], ...]
) -> None:
    """A batch pod got a slot's last place: its placeholder left n0 for it, and never stood on n1."""
    account = crowded(4, answers=answers)
    await asking(account).run_once()
    assert account.report()["default/a"].holds == (("n1", 1),)
    account.set_pod(pod("late", 3, 0, node="n1"))
    account.tend()
    assert account.report()["default/a"].holds == holds


@pytest.mark.parametrize(
    "before", [None, {"ready": False}, {"unschedulable": True}, {"labels": {"team": "y"}}]
)
async def test_whoever_may_run_on_more_nodes_is_asked_about_again(before: dict[str, Any] | None) -> None:
    """An owner waited for ever beside its own free slots: the node was not ready when it was asked about."""
    opened = Node("n2", "n2", {"cpu": 8_000}, labels={"team": "x"})
    now, hand_over, view = [1.0], Asked(), View()
    view.set_node(Node("n1", "n1", {"cpu": 4_000}, labels={"team": "x"}), NodeMarks())
    if before is not None:
        view.set_node(replace(opened, **before), NodeMarks())
    view.unschedulable = {"w": waiting("w")}
    where = NodePredicate(affinity=(NodeSelectorTerm((Requirement("team", "In", ("x",)),)),))
    refused = refused_by(view, hand_over, {"w": where}, clock=lambda: now[0])
    await refused.run_once()
    for seconds in (2.0, 4.0):
        now[0] += seconds
        view.set_node(Node("n3", "n3", {"cpu": 8_000}, labels={"team": "z"}), NodeMarks())
        await refused.run_once()
    assert hand_over.pods == ["w"], "a node that does not admit it says nothing"
    view.set_node(opened, NodeMarks())
    now[0] += 2.0
    await refused.run_once()
    await refused.run_once()
    assert hand_over.pods == ["w", "w"]


async def test_a_pod_that_was_no_longer_refused_for_a_while_is_asked_about_anew() -> None:
    hand_over, view = Asked(), View(nodes={"n1": Node("n1", "n1", {"cpu": 4_000})})
    refused = refused_by(view, hand_over, {})
    for _ in range(2):
        view.unschedulable = {"w": waiting("w")}
        await refused.run_once()
        await refused.run_once()
        view.unschedulable = {}
        await refused.run_once()
    assert hand_over.pods == ["w", "w"]
