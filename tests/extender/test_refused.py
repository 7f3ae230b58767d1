"""Whom to ask about first of many pods that kube-scheduler refused, and for how long at a time."""

from __future__ import annotations

import asyncio
import time

from adapters.loops import Changes
from extender.hand_over import HandOver
from extender.refused import A_ROUND, Refused
from extender.view import View
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Node, NodePredicate, NodeSelectorTerm, Pod, Requirement


class Asked(HandOver):
    """Gives nothing, and remembers whom it was asked about."""

    def __init__(self) -> None:
        self.pods: list[str] = []

    def add(self, pod: Pod) -> bool:
        self.pods.append(pod.name)
        return False


def waiting(name: str, priority: int = 0) -> Pod:
    return Pod(name, "default", name, {"cpu": 9_000}, priority=priority, unschedulable_since=1.0)


def refused_by(view: View, hand_over: HandOver, places: dict[str, NodePredicate]) -> Refused:
    ledger = Ledger(Mode.GUARD, cap_percent=100)
    for node in view.nodes.values():
        ledger.set_node(node)
    changes = Changes(0.0)
    return Refused(ledger, view, hand_over, places, changes, make_way=lambda _: None, clock=time.monotonic)


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
