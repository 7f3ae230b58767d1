"""The independent search for a plan of at most eight moves."""

from __future__ import annotations

from lab.changes import Change, Watched
from lab.refusals import plan_for
from lab.situation import Situation
from qos.cluster.objects import Node, NodePredicate, PlacementMode, Pod, Requirement, Selector
from qos.cluster.policy import Policy


def node(name: str, cpu: int) -> Node:
    return Node(name, name, {"cpu": cpu, "pods": 20})


def policy(name: str, cpu: int, slots: int, *, pinned: bool = False, per_node: int | None = None) -> Policy:
    return Policy(
        key=f"default/{name}",
        namespace="default",
        name=name,
        uid=name,
        generation=1,
        resource_version="1",
        created=0.0,
        selector=Selector((Requirement("app", "In", (name,)),)),
        floor={"cpu": cpu},
        count=slots,
        mode=PlacementMode.PINNED if pinned else PlacementMode.FLOATING,
        max_slots_per_node=per_node,
    )


def waiting(cpu: int, app: str = "batch", priority: int = 0) -> Pod:
    return Pod("u", "default", "w", {"cpu": cpu, "pods": 1}, {"app": app}, priority)


def plan(things: list[Watched], holds: dict[str, dict[str, int]], pod: Pod) -> str:
    situation = Situation(Change(number, 0.0, thing) for number, thing in enumerate(things))
    return plan_for(situation, {f"default/{k}": v for k, v in holds.items()}, pod, NodePredicate())


def test_a_pod_that_fits_as_things_are() -> None:
    things = [node("n1", 4), policy("a", 2, 1)]
    assert plan(things, {"a": {"n1": 1}}, waiting(2)) == "default/w fits on n1 when these holds move: nothing"


def test_a_hold_moves_out_of_the_way() -> None:
    things = [node("n1", 4), node("n2", 2), policy("a", 2, 1)]
    assert "1 of default/a" in plan(things, {"a": {"n1": 1}}, waiting(4))


def test_nowhere_to_move_to() -> None:
    things = [node("n1", 4), node("n2", 1), policy("a", 2, 1)]
    assert plan(things, {"a": {"n1": 1}}, waiting(4)) == ""


def test_pinned_holds_do_not_move() -> None:
    things = [node("n1", 4), node("n2", 2), policy("a", 2, 1, pinned=True)]
    assert plan(things, {"a": {"n1": 1}}, waiting(4)) == ""


def test_the_limit_of_a_node_is_kept() -> None:
    things = [node("n1", 2), node("n2", 8), policy("a", 2, 2, per_node=1)]
    assert plan(things, {"a": {"n1": 1, "n2": 1}}, waiting(2)) != ""
    assert (
        plan(
            [node("n1", 2), node("n2", 4), policy("a", 2, 2, per_node=1)],
            {"a": {"n1": 1, "n2": 1}},
            waiting(4),
        )
        == ""
    )


def test_nine_moves_are_too_many() -> None:
    things = [node("n1", 9), node("n2", 9), policy("a", 1, 9)]
    assert plan(things, {"a": {"n1": 9}}, waiting(8)) != ""
    assert plan([node("n1", 9), node("n2", 8), policy("a", 1, 9)], {"a": {"n1": 9}}, waiting(9)) == ""


def test_two_shapes_leave_together() -> None:
    things = [node("n1", 6), node("n2", 4), node("n3", 2), policy("a", 4, 1), policy("b", 2, 1)]
    assert "1 of default/a, 1 of default/b" in plan(things, {"a": {"n1": 1}, "b": {"n1": 1}}, waiting(6))


def test_owners_and_pods_of_higher_priority_are_judged_by_their_own_rules() -> None:
    things = [node("n1", 2), policy("a", 2, 1)]
    assert plan(things, {"a": {"n1": 1}}, waiting(2, app="a")) == ""
    assert plan(things, {"a": {"n1": 1}}, waiting(2, priority=1)) != ""
