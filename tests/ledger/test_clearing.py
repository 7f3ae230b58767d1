"""Where there is, or could be, room for a pod."""

from __future__ import annotations

from dataclasses import replace

from ledger.ledger import Ledger
from qos.cluster.objects import Pod
from tests.ledger.builders import daemon_pod, demand, ledger, node, nodes, pod


def left(one: Ledger, who: Pod, *ending: str) -> dict[str, tuple[int, list[str]]]:
    *_, found = one.gather_clearances(who, lambda node: node.name != "n9", lambda _: True, ending)
    return {each.node: (each.left["cpu"] // 1000, [pod.uid for pod in each.pods]) for each in found}


def test_what_is_left_beside_holds_and_who_may_end() -> None:
    one = ledger(
        *nodes(2),
        node("n9"),
        demand("a", 1, 2, where=demand("x", 0).where),
        pod("b", 5, node="n0"),
        pod("c", 8, node="n1"),
        daemon_pod("d", 1, "set", node="n0"),
        pod("owner", 2, app="a", node="n9"),
    )
    one.report()
    assert left(one, pod("p", 3)) == {"n0": (2, ["b"]), "n1": (0, ["c"])}


def test_who_ends_is_room_once() -> None:
    one = ledger(*nodes(1), pod("b", 5, node="n0"), pod("c", 3, node="n0"))
    who = pod("p", 3)
    assert left(one, who, "b") == {"n0": (5, ["c"])}
    one.set_pod(replace(pod("b", 5, node="n0"), deleting=True))
    assert left(one, who, "b") == left(one, who) == {"n0": (5, ["c"])}
    steps = one.gather_clearances(who, lambda _: True, lambda _: True, ["b"])
    next(steps), next(steps), next(steps)
    one.remove_pod("b")
    *_, found = steps
    assert found[0].left["cpu"] == 5000, "it ended between two steps"


def test_room_that_is_made_for_a_pod_is_its_own_for_a_while() -> None:
    one = ledger(*nodes(1), pod("b", 8, node="n0"), demand("a", 1, 1))
    one.set_pod(who := pod("p", 8))
    assert one.make_room(who, "n0", 1.0)
    one.remove_pod("b")
    one.set_pod(replace(who, unschedulable_since=5.0))
    assert not one.filter(pod("other", 8), ["n0"], 2.0).nodes
    assert one.preempt(who, {"n0": ["b"]}, 2.0) == [], "nobody else need end"
    assert one.filter(who, ["n0"], 3.0).nodes
