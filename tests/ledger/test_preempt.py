"""Preempt keeps a candidate only where the evictions really lead to a bind."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ledger.decisions import BindDecision, Mode
from ledger.ledger import Ledger
from ledger.offers import EVICTION_SECONDS
from ledger.placement import settle
from ledger.preempt import _ways
from ledger.refusals import WAITS_FOR_VICTIMS
from ledger.requests import request_of
from qos.cluster.objects import DaemonSet, PlacementMode, Pod
from tests.ledger.builders import TOLERATE_ALL, daemon_pod, demand, holds, ledger, names, node, nodes, pod

HIGH = 50


def test_victims_make_room_beside_the_holds() -> None:
    made = ledger(*nodes(1), demand("a", 1, 2, priority=100), pod("v", 4, node="n0"), pod("w", 2, node="n0"))
    who = pod("p", 6, priority=HIGH)
    assert made.preempt(who, {"n0": ["v"]}, 0.0) == []
    assert made.preempt(who, {"n0": ["v", "w"]}, 0.0) == ["n0"]


def test_order_is_kept_and_unknown_nodes_and_victims_gain_nothing() -> None:
    made = ledger(*nodes(3), *(pod(f"v{i}", 8, node=f"n{i}") for i in range(3)))
    made.set_demand(demand("a", 1, 1))
    asked = {"n2": ["v2"], "new": ["v0"], "n0": ["v0"], "n1": ["unheard", "v0"]}
    assert made.preempt(pod("p", 4, priority=HIGH), asked, 0.0) == ["n2", "n0"]


def test_immovable_holds_count_movable_ones_do_not() -> None:
    for mode, kept in ((PlacementMode.PINNED, []), (PlacementMode.FLOATING, ["n0"])):
        made = ledger(*nodes(1), demand("a", 1, 4, priority=100, mode=mode), pod("v", 4, node="n0"))
        assert holds(made, "a") == {"n0": 1}
        made.set_node(nodes(2)[1])
        assert made.preempt(pod("p", 8, priority=HIGH), {"n0": ["v"]}, 0.0) == kept


def test_a_victim_that_fills_a_slot_leaves_a_hold_behind() -> None:
    made = ledger(*nodes(1), demand("a", 1, 8, priority=100), pod("o", 8, app="a", node="n0"))
    assert made.preempt(pod("p", 4, priority=HIGH), {"n0": ["o"]}, 0.0) == []
    assert made.preempt(pod("q", 4, priority=101), {"n0": ["o"]}, 0.0) == ["n0"]


def test_an_owner_preempts_a_lower_owner_of_its_own_policy() -> None:
    """The slot that the victim leaves is the one that the preemptor fills."""
    made = ledger(*nodes(1), demand("a", 1, 8, priority=9), pod("o", 8, app="a", node="n0"))
    who = pod("p", 8, app="a", priority=5)
    assert made.preempt(who, {"n0": ["o"]}, 0.0) == ["n0"]
    made.set_pod(replace(who, nominated_node_name="n0"))
    made.remove_pod("o")
    assert made.filter(who, ["n0"], 0.0).nodes == ["n0"]
    assert made.bind(who, "n0", 0.0).policy == "default/a"


def test_an_owner_fills_one_of_the_slots_that_its_victims_leave() -> None:
    made = ledger(*nodes(1), demand("a", 2, 4, priority=9))
    for name in ("o1", "o2"):
        made.set_pod(pod(name, 4, app="a", node="n0"))
    assert made.preempt(pod("p", 4, app="a", priority=5), {"n0": ["o1", "o2"]}, 0.0) == ["n0"]
    assert made.preempt(pod("q", 8, app="a", priority=5), {"n0": ["o1", "o2"]}, 0.0) == []


def test_an_owner_counts_its_own_hold() -> None:
    made = ledger(*nodes(1), demand("a", 1, 4, priority=100), pod("v", 4, node="n0"))
    assert made.preempt(pod("o", 8, app="a", priority=HIGH), {"n0": ["v"]}, 0.0) == ["n0"]


def test_exempt_pods_keep_every_candidate() -> None:
    made = ledger(*nodes(1), demand("a", 4, 2))
    assert made.preempt(pod("p", 8, priority=2_000_001_000), {"n0": []}, 0.0) == ["n0"]


def test_what_must_move_moves_with_the_answer_and_the_pod_gets_in() -> None:
    """Before the nomination shows another pod would take the room that a hold is to move to."""
    made = ledger(*nodes(1), demand("a", 1, 4, priority=100), pod("v", 4, node="n0"))
    assert holds(made, "a") == {"n0": 1}
    made.set_node(nodes(2)[1])
    who = pod("p", 8, priority=HIGH)
    made.set_pod(who)
    assert made.preempt(who, {"n0": ["v"]}, 0.0) == ["n0"]
    assert holds(made, "a") == {"n1": 1}
    assert not made.filter(pod("early", 6), names(2), 0.0).nodes
    who = replace(who, nominated_node_name="n0")
    made.set_pod(who)
    assert made.bind(pod("other", 6), "n1", 0.0).refusal == "holds of default/a are in the way"
    made.remove_pod("v")
    assert holds(made, "a") == {"n1": 1}
    assert made.filter(who, ["n0"], 0.0).nodes == ["n0"]
    assert not made.bind(who, "n0", 0.0).refusal


def test_a_hold_that_came_since_moves_when_the_nomination_shows() -> None:
    made = ledger(*nodes(2), pod("v0", 4, node="n0"), pod("v1", 4, node="n1"))
    made.set_demand(demand("b", 1, 1, priority=100, max_slots_per_node=1))
    who = pod("p", 7, priority=HIGH)
    assert made.preempt(who, {"n0": ["v0"], "n1": ["v1"]}, 0.0) == ["n0", "n1"]
    made.set_demand(demand("b", 2, 2, priority=100, max_slots_per_node=1))
    assert holds(made, "b") == {"n0": 1, "n1": 1}
    made.set_node(node("n2", 2))
    made.set_pod(replace(who, nominated_node_name="n1"))
    assert holds(made, "b") == {"n0": 1, "n2": 1}


def _one_that_moves() -> Ledger:
    """On n0 a hold can make room, which has one other place; on n1 nothing is in the way."""
    made = ledger(node("n0", 8), demand("a", 1, 4, priority=100), pod("cheap", 4, node="n0"))
    made.set_node(node("n1", 8))
    made.set_pod(pod("dear", 8, node="n1", priority=20))
    made.set_node(node("n2", 4))
    return made


def test_where_nothing_must_move_is_answered_if_the_scheduler_would_go_there() -> None:
    made = _one_that_moves()
    victims = {"n0": ["cheap"], "n1": ["dear"]}
    assert made.preempt(pod("p", 8, priority=HIGH), victims, 0.0, {"n0": 1, "n1": 0}) == ["n1"]
    assert holds(made, "a") == {"n0": 1}


def test_where_holds_move_is_answered_alone_if_the_scheduler_would_go_there() -> None:
    made = _one_that_moves()
    victims = {"n1": ["dear"], "n0": ["cheap"]}
    assert made.preempt(pod("p", 8, priority=HIGH), victims, 0.0, {"n0": 0, "n1": 0}) == ["n0"]
    assert holds(made, "a") == {"n2": 1}


def _beside_a_daemon(priority: int) -> tuple[Ledger, Pod]:
    """A slot is held where a preemptor is nominated, for as long as the DaemonSet's pod does not come."""
    made = ledger(*nodes(1), pod("v", 8, node="n0"), demand("a", 1, 4, priority=priority))
    made.set_daemon_set(DaemonSet("d", "kube-system/d", {"cpu": 4000, "pods": 1}, TOLERATE_ALL))
    who = pod("p", 4, priority=HIGH)
    assert made.preempt(who, {"n0": ["v"]}, 0.0) == ["n0"]
    made.set_pod(who := replace(who, nominated_node_name="n0"))
    made.remove_pod("v")
    assert holds(made, "a") == {"n0": 1}
    made.set_pod(daemon_pod("d-0", 4, "d", node="n0"))
    return made, who


def test_a_slot_that_is_held_beside_a_hole_leaves_it_to_the_preemptor() -> None:
    made, who = _beside_a_daemon(HIGH)
    assert holds(made, "a") == {}
    assert made.filter(who, ["n0"], 0.0).nodes == ["n0"]


def test_a_slot_of_higher_priority_stays() -> None:
    made, who = _beside_a_daemon(HIGH + 1)
    assert holds(made, "a") == {"n0": 1}
    assert not made.filter(who, ["n0"], 0.0).nodes


def test_preempt_changes_nothing_where_no_hold_must_move() -> None:
    made = ledger(*nodes(2), demand("a", 2, 4, priority=100), pod("v", 4, node="n0"))
    before = (made.report(), made.gauges())
    assert made.preempt(pod("p", 4, priority=HIGH), {name: ["v"] for name in names(2)}, 0.0) == names(2)
    assert (made.report(), made.gauges()) == before


def test_observe_drops_no_candidate() -> None:
    made = ledger(*nodes(1), demand("a", 1, 6, priority=100), pod("v", 2, node="n0"), mode=Mode.OBSERVE)
    assert holds(made, "a") == {"n0": 1}
    assert made.preempt(pod("p", 6, priority=HIGH), {"n0": ["v"]}, 0.0) == ["n0"]


def test_t06_a_preemptors_node_passes_although_the_watch_still_shows_its_victim() -> None:
    """kube-scheduler tries the nominated node alone, and only once the victim is gone."""
    made = ledger(*nodes(1), demand("a", 1, 4, priority=9), pod("victim", 4, node="n0"), pod("other", 4))
    assert made.preempt(pod("p", 4, priority=5), {"n0": ["victim"]}, 0.0) == ["n0"]
    assert not made.filter(pod("other", 4), ["n0"], 0.0).nodes
    assert not made.filter(pod("p", 4, priority=5), ["n0"], 0.0).nodes, "it is not nominated yet"
    who = pod("p", 4, priority=5, nominated_node_name="n0")
    assert made.filter(who, ["n0"], 0.0).nodes == ["n0"]
    before = made.gauges()
    asked = made.bind(pod("p", 4, priority=5), "n0", 0.0)
    assert [one.uid for one in asked.awaited] == ["victim"], "the watch lags: the API server is to be read"
    assert asked.refusal == WAITS_FOR_VICTIMS
    assert made.gauges() == before
    assert not made.bind(pod("p", 4, priority=5), "n0", 0.0, gone={"victim"}).refusal
    made.remove_pod("victim")
    assert made.report()["default/a"].held == 1


def test_every_victim_that_is_needed_is_awaited() -> None:
    victims = [pod(name, 2, node="n0") for name in ("v", "w")]
    made = ledger(*nodes(1), demand("a", 1, 4, priority=9), *victims)
    assert made.preempt(pod("p", 4, priority=5), {"n0": ["v", "w"]}, 0.0) == ["n0"]
    made.set_pod(who := pod("p", 4, priority=5, nominated_node_name="n0"))
    assert [one.uid for one in made.bind(who, "n0", 0.0, gone={"v"}).awaited] == ["w"]
    made.remove_pod("w")
    assert [one.uid for one in made.bind(who, "n0", 0.0).awaited] == ["v"]
    made.remove_pod("v")
    assert made.bind(who, "n0", 0.0) == BindDecision()


def test_guard_awaits_no_victim() -> None:
    made = ledger(*nodes(1), pod("victim", 8, node="n0"), demand("a", 1, 1), mode=Mode.GUARD)
    assert made.preempt(pod("p", 4, priority=5), {"n0": ["victim"]}, 0.0) == ["n0"]
    made.set_pod(who := pod("p", 4, priority=5, nominated_node_name="n0"))
    assert made.bind(who, "n0", 0.0) == BindDecision()


def _offered() -> tuple[Ledger, Pod]:
    """Two nodes, each with a hold of higher priority and a victim; the preemptor is offered both."""
    made = ledger(*nodes(2), demand("a", 2, 4, priority=9), pod("v0", 4, node="n0"), pod("v1", 4, node="n1"))
    who = pod("p", 4, priority=5)
    assert made.preempt(who, {"n0": ["v0"], "n1": ["v1"]}, 0.0) == ["n0", "n1"]
    return made, who


def test_victims_on_a_node_that_was_offered_and_not_chosen_live() -> None:
    made, who = _offered()
    assert made.bind(who, "n0", 0.0).refusal
    made.set_pod(replace(who, nominated_node_name="n1"))
    assert made.bind(who, "n0", 0.0).refusal
    assert holds(made, "a") == {"n0": 1, "n1": 1}
    assert not made.filter(who, ["n0"], 0.0).nodes
    assert not made.bind(who, "n1", 0.0, gone={"v1"}).refusal


def test_an_offer_ends_when_the_nomination_changes() -> None:
    made, who = _offered()
    made.set_pod(replace(who, nominated_node_name="n1"))
    made.set_pod(replace(who, nominated_node_name="n0"))
    assert made.bind(who, "n1", 0.0).refusal
    assert made.bind(who, "n0", 0.0).refusal


def test_an_offer_ends_with_the_nomination() -> None:
    made, who = _offered()
    made.set_pod(replace(who, nominated_node_name="n1"))
    made.set_pod(who)
    assert made.bind(who, "n1", 0.0).refusal


def test_an_offer_ends_when_filter_answers_another_node() -> None:
    made, who = _offered()
    nominated = replace(who, nominated_node_name="n0")
    made.set_pod(nominated)
    made.set_node(node("n2", 4))
    assert made.filter(nominated, ["n2"], 0.0).nodes == ["n2"]
    made.set_pod(pod("late", 4, node="n2"))
    assert made.bind(nominated, "n0", 0.0).refusal


def test_an_offer_ends_with_the_next_one() -> None:
    made, who = _offered()
    nominated = replace(who, nominated_node_name="n0")
    made.set_pod(nominated)
    assert made.preempt(nominated, {"n1": ["v1"]}, 0.0) == ["n1"]
    assert made.bind(nominated, "n0", 0.0).refusal


def test_an_offer_outlives_an_answer_that_names_no_node() -> None:
    """kube-scheduler evicts nobody then, and leaves the nomination as it is."""
    made, who = _offered()
    nominated = replace(who, nominated_node_name="n0")
    made.set_pod(nominated)
    assert made.preempt(nominated, {"n1": []}, 0.0) == []
    assert made.filter(nominated, ["n0"], 0.0).nodes == ["n0"]


def _leading(made: Ledger, who: Pod, victims: dict[str, list[str]]) -> list[str]:
    """All candidates that lead to a bind, also those that are not answered beside others."""
    settle(made._state)
    return list(_ways(made._state, request_of(made._state, who), victims))


def test_what_all_candidates_together_give_each_gives_alone() -> None:
    """Of few candidates none is dropped: one search for all finds what one for each did."""
    rng = random.Random(5)
    kept = 0
    for _ in range(60):
        made = ledger(*nodes(6), demand("a", 4, 3, priority=100), demand("b", 3, 2, priority=20))
        for name in names(6):
            for number in range(rng.randint(0, 3)):
                made.set_pod(pod(f"{name}-{number}", rng.choice((1, 2, 3)), node=name))
        victims = {name: [f"{name}-{number}" for number in range(rng.randint(0, 3))] for name in names(6)}
        who = pod("p", rng.randint(3, 8), priority=HIGH)
        together = _leading(made, who, victims)
        alone = [name for name in victims if _leading(made, who, {name: victims[name]})]
        assert together == alone
        kept += len(together)
    assert kept > 30


def test_t23_candidates_beyond_what_may_be_searched_are_dropped() -> None:
    """A dropped candidate only delays; one kept in vain would be evicted for."""
    made = ledger(*nodes(200), demand("a", 200, 4, priority=100))
    for name in names(200):
        made.set_pod(pod(f"v-{name}", 4, node=name))
    made.set_node(node("spare", 160))
    victims = {name: [f"v-{name}"] for name in names(200)}
    kept = _leading(made, pod("p", 8, priority=HIGH), victims)
    assert 0 < len(kept) < 200
    assert all(_leading(made, pod("p", 8, priority=HIGH), {name: victims[name]}) for name in kept)


def test_without_policies_every_candidate_is_kept() -> None:
    made = ledger(*nodes(2), pod("v0", 8, node="n0"), pod("v1", 8, node="n1"))
    assert made.preempt(pod("p", 8, priority=HIGH), {"n0": ["v0"], "n1": ["v1"]}, 0.0) == ["n0", "n1"]


def test_a_preemptor_whose_victims_are_under_way_gets_no_others() -> None:
    """kube-scheduler asks again when its informer shows the victim's deletion and its cache does not."""
    made = ledger(*nodes(2), pod("v0", 8, node="n0"), pod("v1", 8, node="n1"))
    who, asked = pod("p", 8, priority=HIGH), {"n0": ["v0"], "n1": ["v1"]}
    assert made.preempt(who, asked, 0.0) == ["n0", "n1"]
    nominated = replace(who, nominated_node_name="n1")
    made.set_pod(nominated)
    assert made.preempt(nominated, asked, 0.1) == ["n1"]
    made.remove_pod("v1")
    assert made.preempt(nominated, asked, 0.2) == ["n1"], "our watch may be faster than its cache"
    assert made.filter(nominated, ["n1"], 0.3).nodes == ["n1"]


@pytest.mark.parametrize("gone", [False, True])
def test_nor_does_one_that_does_not_say_yet_where_it_is_nominated(gone: bool) -> None:
    """Kubernetes 1.34 writes that beside the eviction: in scenario 08 it cost one pod too many at times."""
    victim = pod("v1", 8, node="n1")
    made = ledger(*nodes(2), pod("v0", 8, node="n0"), victim)
    who, asked = pod("p", 8, priority=HIGH), {"n0": ["v0"], "n1": ["v1"]}
    made.set_pod(who)
    assert made.preempt(who, asked, 0.0) == ["n0", "n1"]
    assert made.preempt(who, asked, 0.1) == ["n0", "n1"], "nobody ends yet: it may choose"
    if gone:
        made.remove_pod("v1")
    else:
        made.set_pod(replace(victim, deleting=True))
    assert made.preempt(who, asked, 0.2) == ["n1"]


def _chosen_among(*others: Pod, **asked: list[str]) -> tuple[Ledger, Pod, dict[str, list[str]]]:
    """A preemptor that no watch has shown yet, and what it was answered; then v1 on n1 ends for it."""
    mine = pod("v1", 8, node="n1")
    made = ledger(*nodes(2), *others, mine)
    victims = {**asked, "n1": ["v1"]}
    who = pod("p", 8, priority=HIGH)
    assert made.preempt(who, victims, 0.0) == [*victims]
    made.set_pod(replace(mine, deleting=True))
    return made, who, victims


def test_who_ended_before_it_was_offered_does_not_say_where_a_preemptor_is_nominated() -> None:
    made, who, victims = _chosen_among(pod("v0", 8, node="n0", deleting=True), n0=["v0"])
    assert made.preempt(who, victims, 0.1) == ["n1"]
    assert made.preempt(who, victims, 0.2) == ["n1"]
    made, who, victims = _chosen_among(pod("v0", 4, node="n0"), n0=["v0", "unheard"])
    assert made.preempt(who, victims, 0.1) == ["n1"]


def test_nor_does_one_of_several_that_are_to_go() -> None:
    a, b = pod("a", 4, node="n0"), pod("b", 4, node="n0")
    made, who, victims = _chosen_among(a, b, n0=["a", "b"])
    made.set_pod(replace(a, deleting=True))
    assert made.preempt(who, victims, 0.1) == ["n1"]


def test_where_it_is_not_known_the_preemptor_may_choose_again() -> None:
    v0 = pod("v0", 8, node="n0")
    made, who, victims = _chosen_among(v0, n0=["v0"])
    made.set_pod(replace(v0, deleting=True))  # for whatever reason
    assert made.preempt(who, victims, 0.1) == ["n0", "n1"]


def test_who_ends_for_another_preemptor_does_not_say_where_this_one_is_nominated() -> None:
    v0, v1 = pod("v0", 8, node="n0"), pod("v1", 8, node="n1")
    made, victims = ledger(*nodes(2), v0, v1), {"n0": ["v0"], "n1": ["v1"]}
    first, second = pod("first", 8, priority=HIGH), pod("second", 8, priority=HIGH)
    made.set_pod(first)
    assert made.preempt(first, victims, 0.0) == ["n0", "n1"]
    assert made.preempt(second, victims, 0.0) == ["n0", "n1"]
    made.set_pod(replace(first, nominated_node_name="n0"))
    made.set_pod(replace(v0, deleting=True))
    assert made.preempt(second, victims, 0.1) == ["n0", "n1"], "n0 is the first one's: it may choose again"


def test_of_a_preemptor_that_is_gone_nothing_is_kept() -> None:
    made = ledger(*nodes(1), pod("v0", 8, node="n0"))
    made.set_pod(who := pod("p", 8, priority=HIGH))
    made.remove_pod("p")
    assert made.preempt(who, {"n0": ["v0"]}, 0.0) == []
    assert not made._state.offers.by_uid


def test_a_preemptor_may_go_elsewhere_when_its_hole_was_taken_or_never_came() -> None:
    made = ledger(*nodes(2), pod("v0", 8, node="n0"), pod("v1", 8, node="n1"))
    who = pod("p", 8, priority=HIGH)
    assert made.preempt(who, {"n0": ["v0"], "n1": ["v1"]}, 0.0) == ["n0", "n1"]
    nominated = replace(who, nominated_node_name="n1")
    made.remove_pod("v1")
    made.set_pod(pod("thief", 8, node="n1"))
    assert made.preempt(nominated, {"n0": ["v0"], "n1": ["thief"]}, 0.1) == ["n0", "n1"]
    assert made.preempt(nominated, {"n0": ["v0"], "n1": ["thief"]}, 1.0) == ["n1"]
    assert made.preempt(nominated, {"n0": ["v0"], "n1": ["thief"]}, 4.0) == ["n1"]
    assert made.preempt(nominated, {"n0": ["v0"], "n1": ["thief"]}, 5.2) == ["n0", "n1"]


def test_nobody_is_evicted_for_a_pod_that_may_still_land_elsewhere() -> None:
    made = ledger(*nodes(3, 4), demand("a", 1, 2), pod("low", 4, node="n1"), mode=Mode.STRICT)
    high = pod("high", 3, priority=10)
    made.set_pod(high)
    assert not made.bind(high, "n0", 0.0).refusal
    assert made.preempt(high, {"n1": ["low"]}, 1.0) == []
    made.release("high")
    assert made.preempt(high, {"n1": ["low"]}, 2.0) == ["n1"]


def test_the_hole_is_the_preemptor_s_before_its_nomination_shows() -> None:
    made = ledger(*nodes(1), pod("victim", 8, node="n0"), demand("a", 1, 8, priority=9))
    made.set_pod(pod("p", 8, priority=9))
    for late in (0.0, 6.0):
        made.set_pod(pod("victim", 8, node="n0"))
        assert made.preempt(pod("p", 8, priority=9), {"n0": ["victim"]}, 0.0) == ["n0"]
        made.filter(pod("other", 1), ["n0"], late)
        made.remove_pod("victim")
        assert holds(made, "a") == ({"n0": 1} if late else {})
        if not late:
            made.filter(pod("other", 1), ["n0"], 5.1)
            assert holds(made, "a") == {"n0": 1}, "it was not nominated there after all"


def test_a_nomination_that_shows_is_not_moved_by_a_victim_offered_elsewhere() -> None:
    made = ledger(
        *nodes(2), pod("here", 8, node="n0"), pod("there", 8, node="n1"), demand("a", 1, 8, priority=9)
    )
    high = pod("p", 8, priority=9)
    made.set_pod(high)
    assert made.preempt(high, {"n0": ["here"], "n1": ["there"]}, 0.0) == ["n0", "n1"]
    made.remove_pod("here")
    made.set_pod(replace(high, nominated_node_name="n0"))
    made.remove_pod("there")
    assert holds(made, "a") == {"n1": 1}


def test_a_preemptor_that_is_nominated_where_it_was_before_keeps_its_hole() -> None:
    """No watch shows that; a pod that ends where it might have gone as well says nothing."""
    here, there = pod("here", 8, node="n0"), pod("there", 8, node="n1")
    made = ledger(*nodes(2), here, there, demand("a", 1, 4, priority=9))
    again = pod("p", 8, priority=9, nominated_node_name="n0")
    made.set_pod(again)
    assert made.preempt(again, {"n0": ["here"], "n1": ["there"]}, 0.0) == ["n0", "n1"]
    made.set_pod(replace(here, deleting=True))
    made.remove_pod("there")
    assert holds(made, "a") == {"n1": 1}
    made.remove_pod("here")
    assert (made.filter(again, ["n0"], 1.0).nodes, holds(made, "a")) == (["n0"], {"n1": 1})


def test_a_nominated_pod_in_flight_beside_a_slot_without_a_place_leaves_nothing_to_be_done() -> None:
    made = ledger(node("n0", 8), demand("a", 1, 2, priority=100))
    who = pod("p", 6, priority=HIGH, nominated_node_name="n0")
    made.set_pod(who)
    assert made.filter(who, ["n0"], 0.0).nodes == ["n0"]
    made.set_demand(demand("a", 5, 2, priority=100))
    assert not all(made.tend() for _ in range(20))


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("dies", [True, False])
def test_a_preemptor_that_bind_refuses_for_its_victim_keeps_its_hole_as_long_as_that_dies(
    dies: bool, asks: bool
) -> None:
    """Strict: kube-scheduler takes the nomination back then, and may ask whom it may evict elsewhere."""
    victim = pod("v", 6, node="n0")
    made = ledger(node("n0", 8), victim, demand("a", 1, 2, priority=100), mode=Mode.STRICT)
    who = pod("p", 6, priority=HIGH)
    made.set_pod(who)
    assert made.preempt(who, {"n0": ["v"]}, 1.0) == ["n0"]
    nominated = replace(who, nominated_node_name="n0")
    made.set_pod(nominated)
    made.set_pod(replace(victim, deleting=dies))
    assert made.filter(nominated, ["n0"], 2.0).nodes == ["n0"]
    assert made.bind(nominated, "n0", 2.1).refusal == WAITS_FOR_VICTIMS
    made.set_pod(who)
    if asks:
        assert made.preempt(who, {"n1": ["nobody"]}, 3.0) == []
    late = 3.1 + EVICTION_SECONDS
    made.waiting(late)
    made.remove_pod("v")
    made.set_pod(replace(who, labels={"changed": ""}))
    assert bool(made.filter(pod("other", 2), ["n0"], late).nodes) is not dies
    assert bool(made.filter(who, ["n0"], late).nodes) is dies


def _refused_in_the_warm_up() -> tuple[Ledger, Pod]:
    """Its victim on n0 is gone; kube-scheduler takes its nomination back, and the watch shows that next."""
    there = (*nodes(2), pod("v", 6, node="n0"), pod("w", 8, node="n1"))
    made = ledger(*there, demand("a", 3, 2, priority=100), mode=Mode.GUARD, binds=False, warmup_until=10.0)
    who = pod("p", 4, priority=HIGH)
    made.set_pod(who)
    assert made.preempt(who, {"n0": ["v"]}, 1.0) == ["n0"]
    nominated = replace(who, nominated_node_name="n0")
    made.set_pod(nominated)
    made.remove_pod("v")
    assert not made.filter(nominated, ["n0"], 2.0).nodes
    return made, who


def test_t09_a_preemptor_that_is_refused_in_the_warm_up_keeps_its_hole_and_is_woken_after_it() -> None:
    made, who = _refused_in_the_warm_up()
    made.set_pod(who)
    assert holds(made, "a") == {"n0": 2}
    assert made.preempt(who, {"n1": ["w"]}, 3.0) == []
    assert made.waiting(9.0) == []
    assert [p.uid for p in made.waiting(10.0)] == ["p"]
    made.set_pod(replace(who, labels={"woken": ""}))
    assert holds(made, "a") == {"n0": 2}
    assert made.filter(who, ["n0"], 10.5).nodes == ["n0"]


def test_t09_a_nomination_that_is_taken_back_after_the_warm_up_may_be_for_a_refusal_in_it() -> None:
    made, who = _refused_in_the_warm_up()
    assert made.waiting(10.5)
    made.set_pod(who)
    assert holds(made, "a") == {"n0": 2}
    made.waiting(10.1 + EVICTION_SECONDS)
    assert holds(made, "a") == {"n0": 3}


def test_t09_the_hole_of_a_preemptor_that_does_not_come_after_the_warm_up_is_let_go() -> None:
    made, who = _refused_in_the_warm_up()
    made.set_pod(who)
    made.waiting(10.1 + EVICTION_SECONDS)
    assert holds(made, "a") == {"n0": 3}
    assert made.preempt(who, {"n1": ["w"]}, 16.0) == ["n1"]


def test_t09_a_preemptor_whose_hole_was_taken_in_the_warm_up_may_evict_others() -> None:
    made, who = _refused_in_the_warm_up()
    made.set_pod(who)
    made.set_pod(pod("bypass", 6, node="n0"))
    assert made.preempt(who, {"n1": ["w"]}, 3.0) == ["n1"]


def test_t14_a_preemptor_counts_the_one_before_it_whose_nomination_does_not_show_yet() -> None:
    """Both were kept for a node that holds one of them, and each kept the other out once the victims died."""
    victims = [pod(f"v{i}", 3, node="n0") for i in range(2)]
    made = ledger(node("n0", 8), *victims, demand("a", 1, 2, priority=100))
    first, second = pod("p1", 3, priority=50), pod("p2", 4, priority=50)
    for one in (first, second):
        made.set_pod(one)
    assert made.preempt(first, {"n0": ["v0"]}, 0.0) == ["n0"]
    assert made.preempt(second, {"n0": ["v0", "v1"]}, 0.0) == []
    assert made.preempt(second, {"n0": ["v0", "v1"]}, 60.0) == ["n0"], "it was never nominated"


def test_t06_a_preemptor_in_flight_stays_charged_while_its_victims_are_counted_yet() -> None:
    made = ledger(node("n0", 4), pod("victim", 4, node="n0"), mode=Mode.GUARD)
    made.set_pod(pod("p", 4, priority=5))
    assert made.preempt(pod("p", 4, priority=5), {"n0": ["victim"]}, 1.0) == ["n0"]
    made.set_pod(pod("p", 4, priority=5, nominated_node_name="n0"))
    assert made.filter(pod("p", 4, priority=5, nominated_node_name="n0"), ["n0"], 2.0).nodes == ["n0"]
    made.set_demand(demand("a", 1, 4, priority=9))
    made.tend()
    assert [one.name for one in made.expired(1_000.0)] == ["p"]
