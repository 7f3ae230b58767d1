"""Filter's four steps, its modes and its messages."""

from __future__ import annotations

from ledger.decisions import Mode
from qos.cluster.objects import PlacementMode
from tests.ledger.builders import demand, go, holds, ledger, names, node, nodes, pod


def test_without_policies_every_known_node_passes() -> None:
    made = ledger(*nodes(3))
    assert made.filter(pod("p", 99), ["n2", "n0"], 0.0).nodes == ["n2", "n0"]


def test_no_names_no_nodes() -> None:
    assert ledger(*nodes(1)).filter(pod("p", 1), [], 0.0).nodes == []


def test_a_held_node_with_slack_is_answered_alone_the_tightest_one() -> None:
    made = ledger(node("n0", 8), node("n1", 6), demand("a", 1, 2), demand("b", 1, 2, max_slots_per_node=1))
    made.set_demand(demand("a", 2, 2, max_slots_per_node=1))
    assert made.held_nodes() == {"n0", "n1"}
    assert len(made.filter(pod("p", 2), names(2), 0.0).nodes) == 1
    assert made.gauges()["in_flight"] == 1


def test_a_pod_in_flight_uses_up_a_held_nodes_slack() -> None:
    made = ledger(*nodes(1), demand("a", 2, 2))
    assert made.filter(pod("p", 3), ["n0"], 0.0).nodes == ["n0"]
    assert made.filter(pod("q", 2), ["n0"], 0.0).nodes == []
    assert made.filter(pod("r", 1), ["n0"], 0.0).nodes == ["n0"]


def test_holds_move_to_let_a_pod_in() -> None:
    made = ledger(node("n0", 8), node("n1", 8), demand("a", 1, 4))
    (held,) = made.held_nodes()
    assert made.filter(pod("p", 8), [held], 0.0).nodes == [held]
    assert made.held_nodes() == set(names(2)) - {held}
    assert made.gauges()["moves_total"] == 1
    assert not made.bind(pod("p", 8), held, 0.0).refusal


def test_a_hold_may_move_to_a_node_outside_the_sample() -> None:
    made = ledger(*nodes(9, 4), demand("a", 1, 4))
    (held,) = made.held_nodes()
    assert made.filter(pod("p", 4), [held], 0.0).nodes == [held]


def test_pods_search_one_picture_of_the_holds_until_something_changes() -> None:
    made = ledger(*nodes(3, 4), demand("a", 3, 3))
    seen = []
    for name, cpu in (("p", 2), ("q", 2.5), ("r", 3)):
        assert not made.filter(pod(name, cpu), names(3), 0.0).nodes
        seen.append(made._state.boards[0])
        if name == "q":
            made.set_pod(pod("s", 1, node="n0"))
    assert seen[0] is seen[1] is not seen[2]


def test_few_pictures_of_the_holds_are_kept_however_many_priorities_refused_pods_have() -> None:
    made = ledger(*nodes(2, 20), *[demand(f"a{i}", 1, 1, priority=i) for i in range(30)])
    for i in range(30):
        assert not made.filter(pod(f"p{i}", 21, priority=i), names(2), 0.0).nodes
    assert sorted(made._state.boards) == list(range(14, 30)), "the latest"


def test_at_most_eight_holds_move() -> None:
    roomy = [node(f"big{i}", 16) for i in range(2)]
    for count, passes in ((8, True), (9, False)):
        made = ledger(node("n0", 9), demand("a", count, 1))
        assert holds(made, "a") == {"n0": count}
        for other in roomy:
            made.set_node(other)
        assert bool(made.filter(pod("p", 9), ["n0"], 0.0).nodes) is passes


def test_a_hold_that_fits_nowhere_may_push_another_aside() -> None:
    made = ledger(node("n0", 6), demand("big", 1, 6), mode=Mode.STRICT)
    assert holds(made, "big") == {"n0": 1}
    made.set_node(node("n1", 6))
    made.set_pod(pod("filler", 4, node="n1"))
    made.set_demand(demand("small", 1, 2))
    assert holds(made, "small") == {"n1": 1}
    made.remove_pod("filler")
    made.set_node(node("n2", 2))
    assert made.filter(pod("p", 6), ["n0"], 0.0).nodes == ["n0"]
    assert (holds(made, "big"), holds(made, "small")) == ({"n1": 1}, {"n2": 1})


def test_pinned_holds_do_not_move_for_a_pod() -> None:
    made = ledger(*nodes(2), demand("a", 1, 4, mode=PlacementMode.PINNED))
    (held,) = made.held_nodes()
    assert made.filter(pod("p", 8), [held], 0.0).message == "holds of default/a are in the way"


def test_an_owner_gets_exactly_one_node_with_a_hold_of_its_policy() -> None:
    made = ledger(*nodes(4, 4), demand("a", 3, 4))
    first = made.filter(pod("o1", 4, app="a"), names(4), 0.0).nodes
    second = made.filter(pod("o2", 4, app="a"), names(4), 0.0).nodes
    assert (first, second) == (["n0"], ["n1"])


def test_an_owner_goes_where_fewest_slots_are_filled() -> None:
    made = ledger(node("n0", 8), node("n1", 4), demand("a", 3, 4))
    assert go(made, pod("o1", 4, app="a"), names(2)) == "n0"
    assert go(made, pod("o2", 4, app="a"), names(2)) == "n1"


def test_an_owner_whose_hold_is_elsewhere_is_an_ordinary_pod() -> None:
    made = ledger(*nodes(3, 4), demand("a", 1, 4))
    assert made.held_nodes() == {"n0"}
    assert made.filter(pod("o", 4, app="a"), ["n1", "n2"], 0.0).nodes == ["n1", "n2"]


def test_an_owner_among_foreign_holds_has_its_hold_brought_along() -> None:
    made = ledger(node("n0", 4), node("n1", 4), demand("a", 1, 4, priority=2), demand("b", 1, 4, priority=1))
    (own,) = holds(made, "a")
    (other,) = holds(made, "b")
    assert made.filter(pod("o", 4, app="a"), [other], 0.0).nodes == [other]
    assert (holds(made, "a"), holds(made, "b")) == ({other: 1}, {own: 1})
    assert made.bind(pod("o", 4, app="a"), other, 0.0).policy == "default/a"
    assert made.report()["default/b"].missing == 0


def test_an_owner_larger_than_its_slot_needs_slack_as_well() -> None:
    made = ledger(*nodes(1), demand("a", 2, 3))
    assert made.filter(pod("o", 6, app="a"), ["n0"], 0.0).nodes == []
    assert made.filter(pod("o", 5, app="a"), ["n0"], 0.0).nodes == ["n0"]
    assert made.filter(pod("p", 1), ["n0"], 0.0).nodes == []


def test_a_pod_of_strictly_higher_priority_does_not_see_a_hold() -> None:
    made = ledger(*nodes(1), demand("a", 4, 2, priority=10))
    assert made.filter(pod("same", 1, priority=10), ["n0"], 0.0).nodes == []
    assert made.filter(pod("higher", 8, priority=11), ["n0"], 0.0).nodes == ["n0"]


def test_a_pod_sees_only_the_holds_at_or_above_its_priority() -> None:
    made = ledger(*nodes(1), demand("low", 2, 2, priority=1), demand("high", 1, 2, priority=10))
    assert made.filter(pod("p", 7, priority=5), ["n0"], 0.0).message == "holds of default/high are in the way"
    assert made.filter(pod("q", 6, priority=5), ["n0"], 0.0).nodes == ["n0"]


def test_the_pods_own_nominated_node_is_refused_resolvably() -> None:
    made = ledger(*nodes(2), demand("a", 4, 4))
    assert made.held_nodes() == set(names(2))
    who = pod("p", 8, nominated_node_name="n1")
    assert made.filter(who, names(2), 0.0).resolvable == {"n1"}


def test_observe_passes_everything_and_counts_what_it_would_hold_back() -> None:
    made = ledger(*nodes(2), demand("a", 4, 2), mode=Mode.OBSERVE)
    answer = made.filter(pod("p", 8), names(2), 0.0)
    assert (answer.nodes, answer.withheld) == (names(2), 1)
    assert made.gauges()["in_flight"] == 0
    assert made.gauges()["withheld_total"] == 1


def test_names_that_occur_twice_are_answered_as_they_came() -> None:
    made = ledger(*nodes(1))
    assert made.filter(pod("p", 1), ["n0", "n0"], 0.0).nodes == ["n0", "n0"]


def test_prioritize_puts_an_owner_on_its_holds_and_others_off_them() -> None:
    made = ledger(*nodes(3), demand("a", 1, 8))
    assert made.prioritize(pod("o", 2, app="a"), ["n0", "n1", "new"], 0.0) == [10, 0, 0]
    assert made.prioritize(pod("p", 2), ["n0", "n1", "new"], 0.0) == [0, 10, 0]
    made.set_demand(demand("a", 1, 4))
    assert made.prioritize(pod("p", 2), ["n0", "n1"], 0.0) == [5, 10]


def test_more_nodes_and_resources_than_at_first_grow_the_columns() -> None:
    made = ledger(demand("a", 3, 2))
    for i in range(200):
        made.set_node(node(f"n{i}", 8, extra={f"example.com/r{i % 7}": 1}))
    assert sum(holds(made, "a").values()) == 3
    assert len(made.filter(pod("p", 8), names(200), 0.0).nodes) == 199
    for i in range(200):
        made.remove_node(f"n{i}")
    made.set_node(node("again", 8))
    assert holds(made, "a") == {"again": 3}


def test_a_pod_that_did_not_get_bound_where_it_was_sent_is_sent_elsewhere() -> None:
    made = ledger(*nodes(2, 4), demand("a", 2, 4))
    who = pod("o", 4, app="a")
    sent = [made.filter(who, names(2), now).nodes[0] for now in (0.0, 0.1, 2.0, 4.0)]
    assert sent == ["n0", "n0", "n1", "n0"]


def test_a_pod_that_is_bound_by_now_is_not_charged_as_well() -> None:
    made = ledger(*nodes(2), demand("a", 1, 2), mode=Mode.GUARD)
    made.set_pod(pod("late", 2, node="n0"))
    assert made.filter(pod("late", 2), names(2), 1.0).nodes
    assert made.gauges()["in_flight"] == 0
