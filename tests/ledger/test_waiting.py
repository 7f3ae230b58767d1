"""Waking refused pods (trap T21), and the reports."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import pytest

from ledger.decisions import Mode
from ledger.ledger import Ledger
from ledger.waiting import ANSWER_SECONDS, MOST_REMEMBERED, REGAINED_SECONDS, SAMPLED_SECONDS
from qos.cluster.objects import Pod, Requirement, Selector
from tests.ledger.builders import demand, ledger, names, node, nodes, pod


def test_t21_a_refused_pod_is_returned_once_when_it_would_pass() -> None:
    made = ledger(*nodes(1), demand("a", 2, 4))
    assert not made.filter(pod("p", 4), ["n0"], 0.0).nodes
    assert made.waiting() == []
    made.set_demand(demand("a", 1, 4))
    assert [p.uid for p in made.waiting()] == ["p"]
    assert made.waiting() == []


def test_t21_no_more_of_a_kind_are_woken_than_fit() -> None:
    made = ledger(*nodes(1), demand("a", 4, 2))
    for i in range(5):
        assert not made.filter(pod(f"p{i}", 3), ["n0"], 0.0).nodes
    made.set_demand(demand("a", 0, 2))
    assert [p.uid for p in made.waiting()] == ["p0", "p1"]
    assert made.waiting() == []


@pytest.mark.parametrize("unfiltered", [True, False])
def test_who_kube_scheduler_refused_is_returned_where_there_is_memory_too(unfiltered: bool) -> None:
    """Though no policy holds any: kube-scheduler would refuse it again."""
    slot = replace(demand("a", 2, 4), vector={"cpu": 4_000, "pods": 1})
    made = ledger(*nodes(1, memory=4), pod("there", 0, 4, node="n0"), slot)
    assert not made.filter(pod("p", 4, 1), ["n0"], 0.0, unfiltered=unfiltered).nodes
    made.set_demand(replace(slot, desired=1))
    assert [p.uid for p in made.waiting()] == ([] if unfiltered else ["p"])
    made.remove_pod("there")
    assert [p.uid for p in made.waiting()] == (["p"] if unfiltered else [])


@pytest.mark.parametrize("deleted", [True, False])
def test_t21_a_woken_pod_that_goes_before_it_tries_leaves_its_room_to_the_next(deleted: bool) -> None:
    made = ledger(*nodes(1), demand("a", 4, 2))
    for i in range(4):
        assert not made.filter(pod(f"p{i}", 3), ["n0"], 0.0).nodes
    made.set_demand(demand("a", 0, 2))
    assert [p.uid for p in made.waiting()] == ["p0", "p1"]
    if deleted:
        made.remove_pod("p0")
    else:
        made.set_pod(replace(pod("p0", 3), deleting=True))
    assert [p.uid for p in made.waiting()] == ["p2", "p3"]  # p1 may come, too: one of them is refused then


def test_t21_a_woken_pod_that_never_tries_leaves_its_room_to_the_next() -> None:
    """It came and went while the watch was away, so nothing says that it is gone."""
    made = ledger(*nodes(1), demand("a", 4, 2))
    for i in range(4):
        assert not made.filter(pod(f"p{i}", 3), ["n0"], 0.0).nodes
    made.set_demand(demand("a", 0, 2))
    assert [p.uid for p in made.waiting(0.0)] == ["p0", "p1"]
    assert made.waiting(ANSWER_SECONDS - 1) == []
    assert [p.uid for p in made.waiting(ANSWER_SECONDS)] == ["p2", "p3"]


def test_t21_pods_that_pass_or_go_are_not_woken() -> None:
    made = ledger(*nodes(1), demand("a", 4, 2))
    for name in ("gone", "bound", "passed"):
        made.filter(pod(name, 1), ["n0"], 0.0)
    assert made.gauges()["waiting"] == 3
    made.remove_pod("gone")
    made.set_pod(pod("bound", 1, node="n0"))
    made.remove_demand("default/a")
    assert made.filter(pod("passed", 1), ["n0"], 0.0).nodes
    assert made.waiting() == []


def test_t18_a_pod_refused_on_a_sample_is_woken_for_nodes_outside_it() -> None:
    made = ledger(*nodes(120), demand("a", 480, 2))
    assert not made.filter(pod("p", 8), names(100), 0.0).nodes
    made.set_node(node("new", 16))
    assert [p.uid for p in made.waiting()] == ["p"]


def test_t14_a_preemptor_is_woken_when_its_hole_is_there() -> None:
    """It was refused on n0 alone; n1, where it is nominated, was full then."""
    made = ledger(*nodes(2), demand("a", 2, 4, priority=9), pod("victim", 8, node="n1"))
    holder = next(iter(dict(made.report()["default/a"].holds)))
    assert holder == "n0"
    assert not made.filter(pod("p", 4, priority=5), ["n0"], 0.0).nodes
    made.set_pod(pod("p", 4, priority=5, nominated_node_name="n1"))
    assert made.waiting() == []
    made.remove_pod("victim")
    assert [p.uid for p in made.waiting()] == ["p"]


def test_t14_a_preemptor_that_was_shown_a_sample_is_woken_though_one_like_it_has_no_hole() -> None:
    others = [pod(f"f{i}", 1, node=f"n{i}") for i in range(149)]
    made = ledger(*nodes(150), demand("a", 1, 1, priority=9), *others, pod("victim", 8, node="n149"))
    for name in ("like it", "p"):
        assert not made.filter(pod(name, 8, priority=5), names(150), 0.0).nodes
    made.set_pod(pod("p", 8, priority=5, nominated_node_name="n149"))
    assert made.waiting() == []
    made.remove_pod("victim")
    assert [p.uid for p in made.waiting()] == ["p"]


def test_pods_that_two_policies_select_belong_to_the_first() -> None:
    both = Selector((Requirement("app", "In", ("a", "b")),))
    made = ledger(*nodes(1), demand("a", 1, 2, priority=1), demand("b", 1, 2, selector=both))
    assert made.overlaps() == {}
    made.set_pod(pod("o", 2, app="a"))
    assert made.policy_of(pod("o", 2, app="a")) == "default/a"
    assert made.overlaps() == {"default/b": "default/a"}
    assert made.policy_of(pod("x", 2, app="b")) == "default/b"
    assert made.policy_of(pod("x", 2, app="b", namespace="other")) == ""


def test_the_same_selector_twice_overlaps_without_any_pod() -> None:
    made = ledger(demand("a", 1), demand("b", 1, selector=demand("a", 1).selector, created=1.0))
    assert made.overlaps() == {"default/b": "default/a"}


def test_known_is_the_pod_as_last_seen() -> None:
    made = ledger()
    made.set_pod(pod("p", 1))
    made.set_pod(replace(pod("p", 1), priority=7))
    known = made.known("p")
    assert known is not None
    assert known.priority == 7
    made.remove_pod("p")
    assert made.known("p") is None


@pytest.mark.parametrize("mode", list(Mode))
def test_a_pod_that_filter_was_asked_about_is_known_before_the_watch_shows_it(mode: Mode) -> None:
    """Its bind claims at once, and need not read it first: till then it may land anywhere it was answered."""
    made = ledger(*nodes(2), mode=mode)
    made.filter(pod("p", 1), ["n0", "n1"], 0.0)
    known = made.known("p")
    assert known is not None
    assert known.requests == pod("p", 1).requests
    made.set_pod(replace(known, priority=7))
    assert made.known("p") == replace(known, priority=7)
    made.remove_pod("p")
    made.filter(pod("p", 1), ["n0", "n1"], 0.0)
    assert made.known("p") is None, "the API server is asked whether it exists"


def test_pods_that_the_watch_never_shows_are_forgotten() -> None:
    made = ledger(*nodes(1))
    for number in range(2_000):
        made.filter(pod(f"p{number}", 1), ["n0"], 0.0)
    assert made.known("p1999") is not None
    assert made.known("p0") is None


def test_gauges_add_up() -> None:
    made = ledger(*nodes(2), demand("a", 2, 2), pod("p", 4, node="n0"))
    gauges = made.gauges()
    assert gauges["allocatable/cpu"] == 16000
    assert (gauges["claimed/cpu"], gauges["held/cpu"]) == (4000, 4000)
    assert (gauges["nodes"], gauges["ready_nodes"], gauges["holds"], gauges["unplaced"]) == (2, 2, 2, 0)


def test_t21_no_kind_of_pod_is_passed_over_when_changes_never_cease() -> None:
    made = ledger(node("n0", 4), node("n1"), demand("a", 1, 4), pod("q", 7, node="n1"))
    for number in range(100):
        assert not made.filter(
            pod(f"w{number}", 4, 1 + number, extra={"example.com/x": 1}), ["n0"], 0.0
        ).nodes
    assert not made.filter(pod("last", 1), ["n0"], 0.0).nodes
    made.set_node(node("n0", 5))
    woken = []
    for number in range(4):
        made.set_pod(pod(f"change{number}", 0.25, node="n1"))
        woken += made.waiting()
    assert [p.uid for p in woken] == ["last"]


def sampled(of: Ledger, shown: list[str], now: float) -> int:
    """Wakings of a pod in 500 seconds of unrelated changes, all in vain: the same nodes are shown."""
    wakings = 0
    who = pod("p", 8)
    assert not of.filter(who, shown, now).nodes
    for second in range(500):
        of.set_pod(pod(f"x{second}", 0.25, node=f"n{200 + second % 100}"))
        if of.waiting(now + second):
            wakings += 1
            assert not of.filter(who, shown, now + second).nodes
    return wakings


def test_t21_a_pod_refused_on_a_sample_is_not_woken_by_every_unrelated_change() -> None:
    """Other nodes would do, as far as we know; kube-scheduler does not show them, so it has its reasons."""
    made = ledger(*nodes(300, 16), *(pod(f"f{i}", 10, node=f"n{i}") for i in range(150)), demand("a", 1, 1))
    assert 1 <= sampled(made, names(150), 0.0) <= 12
    made.remove_pod("f7")
    woken = [second for second in range(10) if made.waiting(500.0 + second)]
    assert woken
    assert made.filter(pod("p", 8), names(150), 510.0).nodes == ["n7"]


def test_t21_a_pod_is_woken_until_it_was_shown_every_node() -> None:
    """Samples rotate: the one node that would do comes at last, and nothing has to change for it."""
    made = ledger(*nodes(1000, 4), node("only", 16), demand("a", 1, 1))
    who, every = pod("p", 8), [*names(1000), "only"]
    shown = [every[start : start + 100] for start in range(0, 1001, 100)]
    assert not made.filter(who, shown[0], 0.0).nodes
    now, turn = 0.0, 0
    made.set_pod(pod("x", 0.25, node="n0"))
    while now < 3_600 and turn < len(shown) - 1:
        now += 1
        if made.waiting(now):
            turn += 1
            found = made.filter(who, shown[turn], now).nodes
    assert found == ["only"]


def shown_in_turn(
    of: Ledger, who: Pod, samples: list[list[str]], now: float, until: float
) -> tuple[float, int, list[str]]:
    """Each waking shows the next sample: when it ended, after how many wakings, what was answered."""
    wakings, found = 0, list[str]()
    while now < until and not found:
        now += 1
        if of.waiting(now):
            found = of.filter(who, samples[wakings % len(samples)], now).nodes
            wakings += 1
    return now, wakings, found


def test_t21_a_pod_that_was_shown_every_node_in_vain_is_soon_shown_a_new_one() -> None:
    made = ledger(*nodes(1000, 4), node("tainted", 16), demand("a", 1, 1))
    who, samples = pod("p", 8), [names(1000)[start : start + 100] for start in range(0, 1000, 100)]
    assert not made.filter(who, samples[0], 0.0).nodes
    now, wakings, _ = shown_in_turn(made, who, samples, 0.0, 3_600.0)
    assert wakings == 20, "once for each sample and nine times more, for the node that is never shown"
    made.set_node(node("only", 16))
    samples[-1].append("only")
    ended, wakings, found = shown_in_turn(made, who, samples, now, now + 3_600.0)
    assert (wakings, found) == (10, ["only"])
    assert ended - now <= 10 * SAMPLED_SECONDS


def test_t21_wakings_for_nodes_that_are_not_shown_are_bounded_whatever_changes() -> None:
    """For an hour a tainted node would do every other second."""
    made = ledger(*nodes(300, 4), node("tainted", 16), demand("a", 1, 1))
    who, wakings = pod("p", 8), 0
    assert not made.filter(who, names(150), 0.0).nodes
    for second in range(1, 3_601):
        if second % 2:
            made.remove_pod(f"x{second - 1}")
        else:
            made.set_pod(pod(f"x{second}", 12, node="tainted"))
        if made.waiting(second):
            wakings += 1
            assert not made.filter(who, names(150), second).nodes
    assert 8 <= wakings <= 3 + 8 + 3_600 / REGAINED_SECONDS


def test_the_many_pods_of_one_namespace_keep_no_other_namespaces_pod_from_being_woken() -> None:
    made = ledger(*nodes(2), demand("a", 8, 2))
    assert not made.filter(pod("p", 1), names(2), 0.0).nodes
    for i in range(MOST_REMEMBERED):
        made.filter(pod(f"many{i}", 1, namespace="many"), names(2), 1.0)
    assert made.gauges()["waiting"] == MOST_REMEMBERED
    made.remove_demand("default/a")
    assert "p" in [p.uid for p in made.waiting(2.0)]


def test_looking_for_pods_to_wake_is_done_in_small_steps_however_many_wait() -> None:
    """Five thousand pods that are unlike each other held the loop for 14 ms before the first step."""
    made = ledger(node("n0"), node("n1"), demand("a", 2, 8), mode=Mode.GUARD)
    for number in range(MOST_REMEMBERED):
        assert not made.filter(pod(f"p{number}", 1, 1 + number), ["n0", "n1"], 0.0).nodes
    made.report()
    made.set_pod(pod("x", 0.25, node="n0"))
    steps, counted = made.gather_waiting(1.0), Counter[str]()
    longest, ended = 0, False
    while not ended:
        counted.clear()
        sys.setprofile(lambda _frame, event, _argument: counted.update((event,)))
        try:
            ended = next(steps, None) is None
        finally:
            sys.setprofile(None)
        longest = max(longest, counted["call"])
    assert longest <= 6_000, "a call for each pod in one step, where the kinds that come first are chosen"


def test_nobody_is_judged_again_before_something_has_changed() -> None:
    made = ledger(*nodes(1), demand("a", 2, 4))
    assert not made.may_wake(0.0)
    assert not made.filter(pod("p", 4), ["n0"], 0.0).nodes
    assert made.may_wake(0.0)
    assert made.waiting() == []
    assert not made.may_wake(0.0)
    made.set_demand(demand("a", 1, 4))
    assert made.may_wake(0.0)
    assert [p.uid for p in made.waiting()] == ["p"]
    assert not made.may_wake(0.0)


def test_what_changes_while_pods_are_judged_is_a_reason_to_judge_them_again() -> None:
    made = ledger(*nodes(1), demand("a", 2, 4))
    assert not made.filter(pod("p", 4), ["n0"], 0.0).nodes
    steps = made.gather_waiting(0.0)
    next(steps)
    made.set_node(node("n0", 10))
    for _ in steps:
        pass
    assert made.may_wake(0.0)
    assert not made.waiting()
    assert not made.may_wake(0.0)


def test_kinds_of_pods_for_which_one_look_is_too_short_are_judged_by_the_next() -> None:
    made, kinds = ledger(*nodes(1, 200), demand("a", 2, 100)), 100
    for number in range(kinds):
        assert not made.filter(pod(f"p{number}", 1 + number / 100), ["n0"], 0.0).nodes
    made.set_demand(demand("a", 0, 100))
    woken = [p.uid for p in made.waiting()]
    assert made.may_wake(0.0)
    woken += [p.uid for p in made.waiting()]
    assert sorted(woken) == sorted(f"p{number}" for number in range(kinds))
    assert not made.may_wake(0.0)


def test_the_end_of_the_warm_up_is_a_reason_to_judge_pods_again() -> None:
    made = ledger(*nodes(1), demand("a", 1, 4), warmup_until=5.0)
    assert not made.filter(pod("p", 4), ["n0"], 0.0).nodes
    assert made.waiting(0.0) == []
    assert not made.may_wake(4.0)
    assert made.may_wake(5.0)
    assert [p.uid for p in made.waiting(5.0)] == ["p"]


def test_a_pod_that_was_woken_in_vain_is_looked_at_until_it_may_be_woken_again() -> None:
    made = ledger(*nodes(1), demand("a", 2, 4))
    assert not made.filter(pod("p", 4), ["n0"], 0.0).nodes
    made.set_demand(demand("a", 1, 4))
    assert [p.uid for p in made.waiting(0.0)] == ["p"]
    made.set_demand(demand("a", 2, 4))
    assert not made.filter(pod("p", 4), ["n0"], 0.0).nodes
    made.set_demand(demand("a", 1, 4))
    for now in (0.0, 0.5):
        assert made.waiting(now) == []
        assert made.may_wake(now)
    assert [p.uid for p in made.waiting(1.0)] == ["p"]
