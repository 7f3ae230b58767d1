"""Owners crash in a flood while binds are slow: their slots are held again at once, and stay so."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from unittest.mock import patch

import pytest

from ledger.decisions import Mode
from ledger.flights import _MOST_DOUBTED
from ledger.ledger import Ledger
from ledger.table import Table
from ledger.waiting import Waiting
from qos.cluster.objects import NodePredicate, Pod
from tests.ledger.builders import demand, holds, ledger, names, node, nodes, pod
from tests.ledger.recount import check_columns

NODES = 50
CPU = 16
NOWHERE = NodePredicate(node_selector=(("no", "where"),))
SLOT = 4
OWNERS = 10
IN_FLIGHT = 14


class Flood:
    """kube-scheduler under a stream of pods of 1 CPU.

    It asks filter, assumes one of the answers by chance, and binds the pod when IN_FLIGHT later ones are on
    their way. `spreads`: it takes one of those with most left, as it does by default.
    """

    def __init__(self, mode: Mode, *, binds: bool, seed: int, spreads: bool = False) -> None:
        self.spreads = spreads
        self.ledger = Ledger(mode, cap_percent=100, binds=binds)
        self.binds = binds
        self.chance = random.Random(seed)
        self.free = dict.fromkeys(names(NODES), CPU * 1000)
        self.under_way: deque[tuple[Pod, str]] = deque()
        self.number = 0
        for one in nodes(NODES, CPU, memory=1_000):
            self.ledger.set_node(one)
        self.ledger.set_demand(demand("a", OWNERS, SLOT, priority=10))
        self.owners = [pod(f"o{i}", SLOT, app="a", node=f"n{i}") for i in range(OWNERS)]
        for owner in self.owners:
            self.ledger.set_pod(owner)
            self.free[owner.node_name] -= SLOT * 1000

    def arrive(self) -> bool:
        """The next pod is filtered and assumed; False when no node may take it."""
        self.number += 1
        who = pod(f"p{self.number}", 1)
        self.ledger.set_pod(who)
        fitting = [name for name, free in self.free.items() if free >= 1000]
        answer = self.ledger.filter(who, fitting, 0.0).nodes if fitting else []
        if not answer:
            self.ledger.remove_pod(who.uid)
            return False
        most = max(map(self.free.__getitem__, answer))
        node = self.chance.choice([name for name in answer if not self.spreads or self.free[name] == most])
        self.free[node] -= 1000
        self.under_way.append((who, node))
        if len(self.under_way) > IN_FLIGHT:
            self.land()
        return True

    def land(self) -> None:
        """The oldest pod under way is bound, and shown by the watch."""
        who, node = self.under_way.popleft()
        if self.binds and self.ledger.bind(who, node, 0.0).refusal:
            self.free[node] += 1000
            self.ledger.remove_pod(who.uid)
            return
        self.ledger.set_pod(replace(who, node_name=node))

    def crash(self, unheard: int = 0) -> None:
        """An owner is gone; a new one will come. kube-scheduler knows it so many pods before the ledger."""
        owner = self.owners.pop()
        self.free[owner.node_name] += SLOT * 1000
        for _ in range(unheard):
            self.arrive()
        self.ledger.remove_pod(owner.uid)

    def come_back(self) -> bool:
        """An owner that crashed is scheduled again, ahead of the flood."""
        self.number += 1
        who = pod(f"p{self.number}", SLOT, app="a", priority=0)
        self.ledger.set_pod(who)
        fitting = [name for name, free in self.free.items() if free >= SLOT * 1000]
        answer = self.ledger.filter(who, fitting, 0.0).nodes if fitting else []
        if not answer or (self.binds and self.ledger.bind(who, answer[0], 0.0).refusal):
            return False
        self.free[answer[0]] -= SLOT * 1000
        self.ledger.set_pod(replace(who, node_name=answer[0]))
        return True

    def missing(self) -> int:
        return self.ledger.report()["default/a"].missing


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("mode", "binds"), [(Mode.GUARD, True), (Mode.GUARD, False), (Mode.STRICT, True), (Mode.STRICT, False)]
)
@pytest.mark.parametrize("taken", [660, 684, 700])
def test_the_slot_of_an_owner_that_crashes_is_held_again_and_outlasts_the_flood(
    mode: Mode, binds: bool, seed: int, taken: int
) -> None:
    flood = Flood(mode, binds=binds, seed=seed)
    while sum(flood.free.values()) > (NODES * CPU - taken) * 1000:
        assert flood.arrive()
    assert len(flood.under_way) == IN_FLIGHT
    flood.crash()
    lost = 0
    while flood.arrive():
        lost += flood.missing() > 0
    while flood.under_way:
        flood.land()
        lost += flood.missing() > 0
    assert lost == 0
    assert flood.come_back()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("first", [650, 700, 725])
def test_a_slot_is_held_again_though_kube_scheduler_knew_first_that_its_owner_is_gone(
    first: int, seed: int
) -> None:
    """No two pods in flight share the owner's place with what was free beside it."""
    flood = Flood(Mode.GUARD, binds=True, seed=seed, spreads=True)
    for taken in range(first, first + 50, 10):
        while sum(flood.free.values()) > (NODES * CPU - taken) * 1000:
            assert flood.arrive()
        flood.crash(unheard=IN_FLIGHT // 2)
        assert flood.missing() == 0
    while flood.arrive():
        pass
    while flood.under_way:
        flood.land()
    assert flood.missing() == 0
    assert sum(flood.free.values()) == 5 * SLOT * 1000


def test_beside_an_owner_pods_go_where_all_that_are_in_flight_fit() -> None:
    made = ledger(node("full", 4), node("other", 4), mode=Mode.GUARD)
    made.set_demand(demand("a", 1, 2))
    for who in (pod("owner", 2, app="a", node="full"), pod("runs", 1, node="full")):
        made.set_pod(who)
    both = ["full", "other"]
    assert made.filter(pod("first", 1), both, 0.0).nodes == both
    assert made.filter(pod("second", 1), both, 0.0).nodes == ["other"]
    assert made.filter(pod("third", 1), ["full"], 0.0).nodes == ["full"], "what is in flight may never land"
    made.remove_pod("third")
    made.set_pod(pod("first", 1, node="other"))
    assert made.filter(pod("fourth", 1), both, 0.0).nodes == both


def _beside_owner(others: int = 0, *, binds: bool = True, priority: int = 0) -> Ledger:
    """One owner of half of a node of 4 CPUs, and other nodes like it without one."""
    made = ledger(node("full", 4), *nodes(others, 4), mode=Mode.GUARD, binds=binds)
    made.set_demand(demand("a", 1, 2, priority=priority))
    made.set_pod(pod("owner", 2, app="a", node="full"))
    return made


@pytest.mark.parametrize(("priority", "there"), [(10, ["n0"]), (11, ["full", "n0"])])
def test_pods_in_flight_keep_nobody_from_room_that_is_above_the_owners(
    priority: int, there: list[str]
) -> None:
    made = _beside_owner(1, priority=10)
    made.set_demand(demand("dear", 1, 1, priority=1_000, where=NOWHERE))
    assert made.filter(pod("first", 2), ["full"], 0.0).nodes == ["full"]
    assert made.filter(pod("second", 2, priority=priority), ["full", "n0"], 0.0).nodes == there


def test_a_pod_that_only_an_owners_node_will_do_for_is_charged_there_for_certain() -> None:
    """None was left out for it, so a slot is held where the pod will not be, not at risk beside it."""
    made = _beside_owner()
    assert made.filter(pod("elsewhere", 1), ["full"], 0.0).nodes == ["full"]
    assert made.filter(pod("next", 1), ["full"], 0.0).nodes == ["full"]
    assert not made._state.flights.uncertain


def test_beside_owners_pods_go_to_the_zones_by_turns_as_kube_scheduler_names_them() -> None:
    made = ledger(*nodes(6, 4), demand("a", 6, 2), mode=Mode.GUARD)
    for name in names(6):
        made.set_pod(pod(f"owner-{name}", 2, app="a", node=name))
    by_turns = ["n3", "n0", "n4", "n1", "n5", "n2"]
    for i in range(2):
        assert made.filter(pod(f"anywhere{i}", 1), by_turns, 0.0).nodes == by_turns
    answers = [made.filter(pod(f"p{i}", 1), by_turns, 0.0).nodes for i in range(6)]
    assert answers == [[name] for name in by_turns]


def test_far_from_full_pods_in_flight_beside_owners_change_no_answer() -> None:
    """kube-scheduler's scores decide: an owner's place draws no more than fills it."""
    made = ledger(*nodes(2, 16), demand("a", 2, 2), mode=Mode.GUARD)
    for name in names(2):
        made.set_pod(pod(f"owner-{name}", 2, app="a", node=name))
    for i in range(30):
        assert made.filter(pod(f"p{i}", 1), names(2), 0.0).nodes == names(2)


@pytest.mark.parametrize("slots", [0, 1])
def test_a_policy_that_has_no_owners_changes_no_answer(slots: int) -> None:
    """However large its slots are: whoever may make policies would send all pods where no owners are."""
    made = ledger(*nodes(2, 16), demand("a", 1, 2), mode=Mode.GUARD)
    made.set_demand(demand("huge", slots, 1_000, where=NOWHERE))
    made.set_pod(pod("owner", 2, app="a", node="n0"))
    assert made.filter(pod("first", 14), names(2), 0.0).nodes == names(2)
    assert made.filter(pod("next", 1), names(2), 0.0).nodes == names(2)


def test_a_pod_is_woken_for_an_owners_node_that_it_was_shown_though_others_come_first() -> None:
    """They may be none where kube-scheduler lets it go: by a taint, say."""
    made, who, both = _beside_owner(1), pod("who", 2), ["full", "n0"]
    made._waiting = Waiting(sample=1)
    made.set_pod(pod("runs", 2, node="full"))
    made.set_pod(who)
    for at in range(0, 20_000, 1_000):
        assert made.filter(who, ["full"], at).nodes == []
        tried = made.waiting(at + 900)
    assert tried == [], "n0 was tried often enough"
    made.remove_pod("runs")
    assert made.filter(pod("first", 2), both, 20_000).nodes == both
    assert made.filter(pod("second", 2), both, 20_000).nodes == ["n0"]
    assert made.waiting(20_001) == [who]


def test_a_pod_that_is_tried_for_ever_is_charged_in_one_part_where_bind_is_not_ours() -> None:
    made = ledger(*nodes(9, 4), demand("a", 9, 2), mode=Mode.GUARD, binds=False)
    for name in names(9):
        made.set_pod(pod(f"owner-{name}", 2, app="a", node=name))
    assert made.filter(pod("long", 2), names(9), 0.0).nodes == names(9)
    for i in range(9):
        assert made.filter(pod("tried", 1), names(9)[i:], 10.0 * i).nodes == [f"n{i}"]
    assert [rows.tolist() for rows, _ in made._state.flights.by_uid["tried"].parts] == [[*range(9)]]
    check_columns(made)


def test_pods_of_no_requests_in_flight_do_not_decide_where_the_next_one_goes() -> None:
    made = ledger(node("roomy", 16), node("tight", 16), demand("a", 2, 4), mode=Mode.GUARD)
    for name in ("roomy", "tight"):
        made.set_pod(pod(f"owner-{name}", 4, app="a", node=name))
    for i in range(20):
        made.set_pod(pod(f"small{i}", 0.4, memory=0, node="roomy"))
    made.set_pod(pod("large", 10, node="tight"))
    both = ["roomy", "tight"]
    for number in range(125):
        made.filter(pod(f"p{number}", 1 if number < 5 else 0, memory=0), ["tight", "roomy"], 0.0)
    assert made.filter(pod("next", 1, memory=0), both, 1.0).nodes == ["roomy"]


def test_a_pod_that_never_comes_keeps_nobody_from_an_owners_node() -> None:
    made = _beside_owner()
    for at in (0.0, 10.0, 20.0):
        assert made.filter(pod("never", 2), ["full"], at).nodes == ["full"]
        assert made.filter(pod("next", 2), ["full"], at + 1).nodes == ["full"]


@pytest.mark.parametrize("binds", [True, False])
def test_a_slot_is_held_where_kube_scheduler_shows_that_a_pod_in_flight_does_not_come(binds: bool) -> None:
    """It was deleted, say, and the watch is late."""
    made = ledger(node("n0", 3), mode=Mode.GUARD, binds=binds)
    made.set_demand(demand("a", 1, 2))
    made.set_pod(pod("owner", 2, app="a", node="n0"))
    assert made.filter(pod("deleted", 1), ["n0"], 0.0).nodes == ["n0"]
    made.set_pod(pod("runs", 1, node="n0"))
    made.remove_pod("owner")
    assert made.report()["default/a"].missing == 1, "by our account one CPU is left beside it"
    assert made.filter(pod("next", 2), ["n0"], 1.0).nodes == []
    assert holds(made, "a") == {"n0": 1}
    assert made.filter(pod("o", 2, app="a"), ["n0"], 2.0).nodes == ["n0"]


def test_one_call_doubts_no_more_pods_in_flight_than_it_may_take_and_the_next_ones_doubt_the_rest() -> None:
    """A slot that fits nowhere has every call look for them."""
    many = names(2 * _MOST_DOUBTED)
    made = ledger(*(node(name, 3) for name in many), mode=Mode.GUARD)
    made.set_demand(demand("a", 1, 99))
    for name in many:
        made.filter(pod(f"to-{name}", 2), [name], 0.0)
        made.set_pod(pod(f"runs-{name}", 1, node=name))
    certain = [one for one in made._state.flights.by_uid.values() if one.certain]
    assert len(certain) == len(many)
    for left in (_MOST_DOUBTED, 0):
        made.filter(pod("next", 2), many, 1.0)
        assert sum(one.certain for one in certain) == left


def test_of_pods_in_flight_only_what_they_may_take_there_is_taken_off_when_a_node_goes() -> None:
    """Each of thousands was summed anew, over all nodes that it may go to: a fifth of a second."""
    made = ledger(*nodes(64), demand("a", 1), mode=Mode.GUARD)
    for number in range(40):
        assert len(made.filter(pod(f"p{number}", 0.1), names(64), 0.0).nodes) > 2
    check_columns(made)
    with patch.object(Table, "_sum") as summed:
        made.remove_node("n5")
    assert not summed.called
    check_columns(made)


def test_a_node_that_offers_none_of_what_its_owners_are_owed_is_answered_beside_pods_in_flight() -> None:
    link = {"j10ce.io/egress-bandwidth": 100}
    made = ledger(node("none", 8), node("link", 8, extra=link), mode=Mode.GUARD)
    made.set_demand(replace(demand("a", 2, 1, extra=link), owed=link))
    made.set_pod(pod("owner", 1, app="a", node="none"))
    assert made.filter(pod("first", 1), ["none"], 0.0).nodes
    assert made.filter(pod("second", 1, app="a"), ["none"], 0.0).nodes == ["none"]


def test_a_pod_is_woken_though_its_own_answer_may_still_land_beside_the_owner() -> None:
    made, who = _beside_owner(binds=False), pod("who", 2)
    made.set_pod(who)
    assert made.filter(who, ["full"], 0.0).nodes == ["full"]
    made.set_pod(pod("other", 2, node="full"))
    assert made.filter(who, ["full"], 1.0).nodes == []
    made.remove_pod("other")
    assert made.waiting(20.0) == [who]


def test_beside_an_owner_a_pod_is_answered_another_node_than_the_one_that_failed_it() -> None:
    made, who = _beside_owner(1), pod("who", 2)
    both = ["full", "n0"]
    assert made.filter(pod("first", 2), both, 0.0).nodes == both
    assert [made.filter(who, both, at).nodes for at in (0.0, 10.0, 20.0)] == [["n0"], ["full"], ["n0"]]


def test_the_one_node_answered_beside_an_owner_drives_no_hold_away_before_the_pod_comes() -> None:
    made = ledger(node("full", 6), node("other", 6), mode=Mode.GUARD)
    made.set_demand(demand("dear", 1, 2, priority=1_000))
    made.set_pod(pod("owner", 2, app="dear", node="full"))
    made.set_pod(pod("runs", 5, node="other"))
    made.set_demand(demand("a", 1, 1, priority=10))
    both = ["full", "other"]
    for i in range(2):
        assert made.filter(pod(f"flying{i}", 1, priority=100), both, 0.0).nodes == both
    assert holds(made, "a") == {"full": 1}
    assert made.filter(pod("higher", 4, priority=100), ["full"], 0.0).nodes == ["full"]
    made.set_node(node("new", 0))
    assert holds(made, "a") == {"full": 1}


@pytest.mark.parametrize(("mode", "binds"), [(Mode.GUARD, True), (Mode.GUARD, False), (Mode.STRICT, True)])
def test_owners_that_crash_one_after_another_all_come_back(mode: Mode, binds: bool) -> None:
    flood = Flood(mode, binds=binds, seed=7)
    while sum(flood.free.values()) > 100_000:
        flood.arrive()
    for _ in range(OWNERS):
        flood.crash()
        for _ in range(IN_FLIGHT // 2):
            flood.arrive()
        assert flood.missing() == 0
        assert flood.come_back()
