"""Evictions that fail: a victim that lives on is left out of account only while its end need not show yet.

kube-scheduler evicts beside its cycles, tells nobody that an eviction failed, leaves the nomination as it is
and tries the preemptor again at once (Executor.prepareCandidateAsync). Each time it asks whom it may evict.
Once other pods end on the node it finds room there, and asks filter about that node alone: as it does when
the victim is gone.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.decisions import Mode
from ledger.ledger import Ledger
from ledger.offers import EVICTION_SECONDS
from ledger.refusals import WAITS_FOR_VICTIMS
from tests.ledger.builders import demand, holds, ledger, node, nodes, pod

VICTIM = pod("v", 3, node="n0")
WHO = pod("p", 4, priority=5)
NOMINATED = replace(WHO, nominated_node_name="n0")
LATE = 2 * EVICTION_SECONDS


def _nominated(mode: Mode) -> Ledger:
    """Two of eight cores are held. Three are requested by nobody: the preemptor lacks one, its victim has
    three.
    """
    others = (VICTIM, pod("stays", 1, node="n0"), pod("ends", 1, node="n0"))
    made = ledger(node("n0"), *others, demand("a", 1, 2, priority=9), WHO, mode=mode)
    assert made.preempt(WHO, {"n0": ["v"]}, 0.0) == ["n0"]
    made.set_pod(NOMINATED)
    return made


def _other_ends(made: Ledger) -> None:
    """Four are requested by nobody, of which two are held: kube-scheduler finds room there."""
    made.remove_pod("ends")
    assert holds(made, "a") == {"n0": 1}


@pytest.mark.parametrize("mode", [Mode.GUARD, Mode.STRICT])
def test_a_preemptor_is_not_let_in_beside_a_victim_that_lives_on(mode: Mode) -> None:
    made = _nominated(mode)
    _other_ends(made)
    assert not made.filter(NOMINATED, ["n0"], LATE).nodes


def test_no_hold_is_lost_to_a_preemptor_whose_victim_lives_on() -> None:
    made = _nominated(Mode.GUARD)
    _other_ends(made)
    if made.filter(NOMINATED, ["n0"], LATE).nodes:
        made.bind(NOMINATED, "n0", LATE)
    assert holds(made, "a") == {"n0": 1}


def test_an_eviction_that_fails_again_and_again_does_not_make_the_victim_young_again() -> None:
    """A webhook refuses it: kube-scheduler asks whom it may evict, and tries, many times a second."""
    made, now = _nominated(Mode.GUARD), 0.0
    while now < 4 * EVICTION_SECONDS:
        now += 0.25
        assert made.preempt(NOMINATED, {"n0": ["v"]}, now) == ["n0"]
    _other_ends(made)
    assert not made.filter(NOMINATED, ["n0"], now + 0.1).nodes
    assert holds(made, "a") == {"n0": 1}


def test_a_victim_that_another_node_was_chosen_before_is_young_when_it_is_its_turn() -> None:
    """It was named before, and nobody was to evict it."""
    victims = [pod(f"v{i}", 4, node=f"n{i}") for i in range(2)]
    made = ledger(*nodes(2), *victims, demand("a", 2, 4, priority=9), WHO)
    assert made.preempt(WHO, {"n0": ["v0"], "n1": ["v1"]}, 0.0) == ["n0", "n1"]
    made.set_pod(NOMINATED)
    made.filter(NOMINATED, ["n0"], 0.1)
    assert made.preempt(NOMINATED, {"n1": ["v1"]}, LATE) == ["n1"]
    elsewhere = replace(WHO, nominated_node_name="n1")
    made.set_pod(elsewhere)
    assert made.filter(elsewhere, ["n1"], LATE + 0.1).nodes == ["n1"]


@pytest.mark.parametrize("when", [0.1, EVICTION_SECONDS - 0.1, LATE, 60.0])
def test_a_victim_that_is_being_deleted_is_left_out_however_long_it_takes(when: float) -> None:
    made = _nominated(Mode.GUARD)
    made.set_pod(replace(VICTIM, deleting=True))
    _other_ends(made)
    assert made.filter(NOMINATED, ["n0"], when).nodes == ["n0"]


def test_t21_a_preemptor_that_was_refused_for_its_victim_is_woken_when_that_ends() -> None:
    made = _nominated(Mode.GUARD)
    _other_ends(made)
    assert not made.filter(NOMINATED, ["n0"], LATE).nodes
    assert made.waiting(2 * LATE) == []
    made.remove_pod("v")
    assert made.waiting(3 * LATE) == [NOMINATED]
    assert made.filter(NOMINATED, ["n0"], 3 * LATE).nodes == ["n0"]
    assert holds(made, "a") == {"n0": 1}


def test_strict_reads_whether_a_victim_is_gone_however_late_it_is() -> None:
    """Filter let the pod in just before: bind asks the API server, and need not guess."""
    made = _nominated(Mode.STRICT)
    assert made.filter(NOMINATED, ["n0"], EVICTION_SECONDS - 0.1).nodes == ["n0"]
    assert [one.uid for one in made.bind(NOMINATED, "n0", LATE).awaited] == ["v"]
    assert not made.bind(NOMINATED, "n0", LATE, gone={"v"}).refusal


def test_t06_a_victim_that_is_removed_at_once_is_left_out_while_the_watch_may_lag() -> None:
    made = _nominated(Mode.GUARD)
    assert made.filter(NOMINATED, ["n0"], EVICTION_SECONDS - 0.1).nodes == ["n0"]


def test_strict_does_not_try_the_same_node_without_end() -> None:
    """Filter let it in, bind read that its victim lives, and kube-scheduler began anew: it never came to ask
    whom else it may evict, and where only one node fits, its hole was kept from others.
    """
    made, refused = _nominated(Mode.STRICT), 0
    _other_ends(made)
    for cycle in range(20):
        now = LATE + cycle
        made.set_pod(NOMINATED)
        if made.filter(NOMINATED, ["n0"], now).nodes:
            refused += made.bind(NOMINATED, "n0", now).refusal == WAITS_FOR_VICTIMS
            made.set_pod(WHO)
    assert refused == 0


@pytest.mark.parametrize("late", [0.5, LATE])
def test_holds_move_for_a_nomination_only_while_its_victims_may_end(late: float) -> None:
    made = ledger(*nodes(2), pod("v0", 4, node="n0"), pod("v1", 4, node="n1"))
    who = pod("p", 7, priority=50)
    made.set_pod(who)
    made.set_demand(demand("b", 1, 1, priority=100, max_slots_per_node=1))
    assert made.preempt(who, {"n0": ["v0"], "n1": ["v1"]}, 0.0) == ["n0", "n1"]
    made.set_demand(demand("b", 2, 2, priority=100, max_slots_per_node=1))
    assert holds(made, "b") == {"n0": 1, "n1": 1}
    made.set_node(node("n2", 2))
    made.tend()
    made.waiting(late)
    made.set_pod(replace(who, nominated_node_name="n1"))
    assert holds(made, "b") == ({"n0": 1, "n2": 1} if late < EVICTION_SECONDS else {"n0": 1, "n1": 1})


def test_after_a_restart_no_victim_is_left_out() -> None:
    others = (VICTIM, pod("stays", 1, node="n0"))
    made = ledger(node("n0"), *others, demand("a", 1, 2, priority=9), mode=Mode.GUARD)
    assert holds(made, "a") == {"n0": 1}
    made.set_pod(NOMINATED)
    assert not made.filter(NOMINATED, ["n0"], 1.0).nodes
