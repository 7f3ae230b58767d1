"""Strict demands: holds and pods only on nodes that say they enforce every promise."""

from __future__ import annotations

import itertools

import pytest

from ledger.decisions import Mode, Unplaced
from ledger.ledger import Ledger
from qos.cluster.needs import Enforcement
from qos.cluster.objects import Demand, Node, PlacementMode
from tests.ledger.builders import demand, go, holds, ledger, names, node, nodes, pod

NEEDS = frozenset({"floor (cpu)", "memory_min_percent"})
ABLE = Enforcement(NEEDS)
OLD = Enforcement(frozenset({"floor (cpu)"}), {"memory_min_percent": "this kernel has no memory.min"})
REFUSED = "policy default/a is Strict, and this node cannot enforce it: "
TOO_OLD = REFUSED + "memory_min_percent: this kernel has no memory.min"
SILENT = REFUSED + "has no NodeQoS: no agent has reported"


def strict(desired: int, **others: object) -> Demand:
    return demand("a", desired, needs=NEEDS, **others)


def made(*things: Node | Demand, mode: Mode = Mode.STRICT, **said: Enforcement) -> Ledger:
    """A ledger in which nodes say what is given by their names."""
    one = ledger(*things, mode=mode)
    for name, enforcement in said.items():
        one.set_enforcement(name, enforcement)
    return one


def test_holds_lie_only_where_every_promise_is_enforced() -> None:
    one = made(*nodes(3), strict(3), n0=OLD, n1=ABLE)
    assert holds(one, "a") == {"n1": 3}


def test_others_do_not_care() -> None:
    one = made(*nodes(1), demand("b", 2), n0=OLD)
    assert holds(one, "b") == {"n0": 2}
    assert go(one, pod("p", 1, app="b"), names(1)) == "n0"
    assert go(one, pod("q", 1), names(1)) == "n0"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_it_does_not_matter_what_comes_first(order: tuple[int, ...]) -> None:
    one = Ledger(Mode.STRICT, cap_percent=100)
    steps = [
        lambda: one.set_node(node("n0")),
        lambda: one.set_node(node("n1")),
        lambda: one.set_demand(strict(1)),
        lambda: one.set_enforcement("n1", ABLE),
    ]
    for step in order:
        steps[step]()
    assert holds(one, "a") == {"n1": 1}


def test_holds_leave_a_node_that_is_no_longer_able_even_pinned_ones() -> None:
    one = made(*nodes(2), strict(2, mode=PlacementMode.PINNED), n0=ABLE)
    assert holds(one, "a") == {"n0": 2}
    one.set_enforcement("n1", ABLE)
    assert holds(one, "a") == {"n0": 2}, "what is right stays"
    one.set_enforcement("n0", None)
    assert holds(one, "a") == {"n1": 2}


def test_an_owner_goes_only_where_it_gets_everything() -> None:
    one = made(*nodes(3), strict(1), n1=OLD, n2=ABLE)
    assert go(one, pod("o", 2, app="a"), names(3)) == "n2"
    # No hold is left: an owner beyond the slots is an ordinary pod, but needs the same of its node.
    assert go(one, pod("p", 2, app="a"), names(3)) == "n2"
    answer = one.filter(pod("q", 2, app="a"), ["n0", "n1", "new"], 0.0)
    assert answer.nodes == []
    assert answer.refused(["n0", "n1", "new"]) == {
        "n0": SILENT,
        "n1": TOO_OLD,
        "new": "the node is not known to j10ce yet",
    }
    assert answer.resolvable == {"new"}, "no eviction makes a kernel able"


def test_not_even_its_nominated_node_is_resolvable() -> None:
    one = made(*nodes(1), strict(1), n0=OLD)
    answer = one.filter(pod("o", 2, app="a", nominated_node_name="n0"), names(1), 0.0)
    assert (answer.others, answer.resolvable) == ({"n0": TOO_OLD}, frozenset())


def test_a_refusal_is_worded_once_for_all_nodes_that_say_the_same() -> None:
    """Of 5,000 nodes, each with its own text and set difference, one refusal took 13 ms."""
    one = made(*nodes(4), strict(1), n0=OLD, n1=OLD, n2=Enforcement(problem="its agent is silent"))
    refused = one.filter(pod("o", 2, app="a"), [*names(4), "new"], 0.0).others
    assert refused == {
        "n0": TOO_OLD,
        "n1": TOO_OLD,
        "n2": REFUSED + "its agent is silent",
        "n3": SILENT,
        "new": "the node is not known to j10ce yet",
    }
    assert refused["n0"] is refused["n1"]


def test_prioritize_gives_nothing_to_nodes_that_are_not_able() -> None:
    one = made(*nodes(3), strict(0), n0=OLD, n1=ABLE)
    assert one.prioritize(pod("o", 2, app="a"), names(3), 0.0) == [0, 10, 0]


def test_bind_refuses_in_strict_mode_and_lets_pass_in_guard() -> None:
    """In Guard a refusal would fall through to kube-scheduler's own binder."""
    who = pod("o", 2, app="a")
    assert made(*nodes(1), strict(1), n0=OLD).bind(who, "n0", 0.0).refusal == TOO_OLD
    assert made(*nodes(1), strict(1), mode=Mode.GUARD, n0=OLD).bind(who, "n0", 0.0).refusal == ""


def test_nobody_is_evicted_for_a_pod_that_the_node_cannot_serve() -> None:
    one = made(*nodes(2), strict(0, priority=9), n1=ABLE)
    for number in range(2):
        one.set_pod(pod(f"v{number}", 8, node=f"n{number}"))
    victims = {"n0": ["v0"], "n1": ["v1"]}
    assert one.preempt(pod("o", 4, app="a", priority=9), victims, 0.0) == ["n1"]
    assert one.preempt(pod("p", 4, priority=9), victims, 0.0) == ["n0", "n1"]


def test_a_refused_owner_is_woken_when_its_node_becomes_able() -> None:
    one = made(*nodes(1), strict(1))
    who = pod("o", 2, app="a")
    assert one.filter(who, names(1), 0.0).nodes == []
    assert one.waiting() == []
    one.set_enforcement("n0", OLD)
    assert one.waiting() == []
    one.set_enforcement("n0", ABLE)
    assert one.waiting() == [who]


def test_the_reason_names_the_nodes() -> None:
    one = made(*nodes(6), strict(2), n1=OLD)
    assert one.report()["default/a"].unplaced == (
        Unplaced(
            2,
            "NodeCannotEnforce",
            detail="n0: has no NodeQoS: no agent has reported; "
            "n1: memory_min_percent: this kernel has no memory.min; "
            "n2: has no NodeQoS: no agent has reported; and 3 other nodes",
        ),
    )


def test_slots_that_the_others_would_have_room_for_are_told_from_those_that_nobody_has() -> None:
    one = made(*nodes(2), strict(10), n0=ABLE)
    reasons = [(u.count, u.reason, u.resource) for u in one.report()["default/a"].unplaced]
    assert reasons == [(4, "NodeCannotEnforce", ""), (2, "Insufficient", "cpu")]


def test_nodes_that_would_not_do_anyway_are_no_reason() -> None:
    one = made(node("n0", ready=False), strict(1))
    assert [u.reason for u in one.report()["default/a"].unplaced] == ["NoNode"]


def test_what_is_said_again_or_changes_nothing_settles_nothing() -> None:
    one = made(*nodes(2), strict(1), n0=ABLE)
    one.report()
    before = one._state.version
    one.set_enforcement("n0", Enforcement(NEEDS))
    one.set_enforcement("n0", Enforcement(NEEDS | {"pids_max"}))
    one.set_enforcement("n1", OLD)
    assert one._state.version == before


def test_a_policy_that_is_no_longer_strict_takes_any_node() -> None:
    one = made(*nodes(1), strict(1))
    assert holds(one, "a") == {}
    one.set_demand(demand("a", 1))
    assert holds(one, "a") == {"n0": 1}
    one.set_demand(strict(1))
    assert holds(one, "a") == {}
    one.remove_demand("default/a")
    one.set_demand(demand("c", 1))
    assert holds(one, "c") == {"n0": 1}


def test_more_nodes_than_there_were_rows() -> None:
    one = made(*nodes(1), strict(150), n0=ABLE)
    for number in range(1, 200):
        one.set_node(node(f"n{number}", 2))
        if number % 2:
            one.set_enforcement(f"n{number}", ABLE)
    assert set(holds(one, "a")) == {"n0", *(f"n{number}" for number in range(1, 200, 2))}
