"""A slot that has room beside what pods in flight certainly take is always held, at risk if it must be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import retries
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import PlacementMode, Pod
from tests.ledger.builders import demand, go, holds, ledger, names, node, nodes, pod
from tests.ledger.recount import check_columns

SLOT = 3
PRIORITY = 10

_ACTION = st.one_of(
    st.tuples(st.just("pod"), st.integers(1, 4), st.sets(st.integers(0, 3), min_size=1)),
    st.tuples(st.just("owner"), st.integers(1, 5), st.sets(st.integers(0, 3), min_size=1)),
    st.tuples(st.just("land"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("gone"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("nominated"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("desired"), st.integers(0, 6), st.just(0)),
)


class Account:
    """The same in plain dicts: what is claimed, and which nodes each pod in flight was answered last."""

    def __init__(self, cpu: list[int], binds: bool) -> None:
        self.binds = binds
        self.cpu = {f"n{i}": cores for i, cores in enumerate(cpu)}
        self.ledger = Ledger(Mode.GUARD, cap_percent=100, binds=binds)
        self.desired = 2
        self.bound: dict[str, Pod] = {}
        self.flying: dict[str, tuple[Pod, list[str]]] = {}
        self.number = 0
        for name, cores in self.cpu.items():
            self.ledger.set_node(node(name, cores, 1000))
        self.ledger.set_demand(demand("a", self.desired, SLOT, priority=PRIORITY))

    def apply(self, kind: str, first: int, second: object) -> None:
        match kind, second:
            case (("pod" | "owner"), set()):
                self._filter(kind, first, [f"n{i}" for i in sorted(second)])
            case "land", int():
                self._land(first, second)
            case "gone", _:
                self._remove(first)
            case "nominated", int():
                self._nominate(first, second)
            case _:
                self.desired = first
                self.ledger.set_demand(demand("a", first, SLOT, priority=PRIORITY))

    def _filter(self, kind: str, cpu: int, shown: list[str]) -> None:
        self.number += 1
        who = pod(f"p{self.number}", cpu, app="a" if kind == "owner" else "")
        fitting = [name for name in shown if name in self.cpu and self._free(name) >= cpu * 1000]
        self.ledger.set_pod(who)
        answer = self.ledger.filter(who, fitting, 0.0).nodes
        if answer:
            self.flying[who.uid] = (who, answer)

    def _land(self, which: int, where: int) -> None:
        if not self.flying:
            return
        uid = sorted(self.flying)[which % len(self.flying)]
        who, answer = self.flying.pop(uid)
        on = answer[where % len(answer)]
        if self._free(on) < who.requests["cpu"]:
            self.ledger.remove_pod(uid)
            return
        if self.binds:
            assert not self.ledger.bind(who, on, 0.0).refusal
        self.bound[uid] = replace(who, node_name=on)
        self.ledger.set_pod(self.bound[uid])

    def _remove(self, which: int) -> None:
        uids = sorted([*self.bound, *self.flying])
        if uids:
            uid = uids[which % len(uids)]
            self.bound.pop(uid, None)
            self.flying.pop(uid, None)
            self.ledger.remove_pod(uid)

    def _nominate(self, which: int, where: int) -> None:
        """Before it waits in Permit, kube-scheduler says which of the answers it has chosen."""
        if self.flying:
            uid = sorted(self.flying)[which % len(self.flying)]
            who, answer = self.flying[uid]
            on = answer[where % len(answer)]
            self.flying[uid] = (replace(who, nominated_node_name=on), [on])
            self.ledger.set_pod(self.flying[uid][0])

    def _free(self, name: str) -> int:
        taken = sum(p.requests["cpu"] for p in self.bound.values() if p.node_name == name)
        return self.cpu[name] * 1000 - taken

    def filled(self) -> int:
        return sum(p.labels.get("app") == "a" for p in self.bound.values())

    def certain(self, name: str) -> int:
        """What pods in flight take that can go nowhere else; a nominated one counts as that and as a hole."""
        alone = [who for who, answer in self.flying.values() if answer == [name]]
        return sum(who.requests["cpu"] * (2 if who.nominated_node_name else 1) for who in alone)

    def feasible(self) -> int:
        """Slots that fit beside claims and certain charges."""
        rooms = [self._free(name) - self.certain(name) for name in self.cpu]
        return sum(max(0, room) // (SLOT * 1000) for room in rooms)


@pytest.mark.parametrize("binds", [True, False])
def test_a_slot_that_is_feasible_beside_claims_and_certain_charges_is_held(binds: bool) -> None:
    @settings(max_examples=settings().max_examples * 2, deadline=None)
    @given(st.lists(st.integers(3, 9), min_size=2, max_size=4), st.lists(_ACTION, max_size=25))
    def held(cpu: list[int], actions: list[tuple[str, int, object]]) -> None:
        account = Account(cpu, binds)
        for action in actions:
            account.apply(*action)
            report = account.ledger.report()["default/a"]
            check_columns(account.ledger)
            wanted = max(0, account.desired - account.filled())
            assert report.held >= min(wanted, account.feasible())
            assert report.at_risk <= report.held <= wanted
            if not account.flying:
                assert report.at_risk == 0

    held()


def test_what_stands_at_risk_is_told_and_moves_to_a_safe_place() -> None:
    made = ledger(*nodes(2), mode=Mode.GUARD)
    for number in range(8):
        assert len(made.filter(pod(f"p{number}", 1), names(2), 0.0).nodes) == 2
    made.set_demand(demand("a", 1, 4))
    assert (made.report()["default/a"].held, made.report()["default/a"].at_risk) == (1, 1)
    made.set_node(node("n2", 4))
    report = made.report()["default/a"]
    assert (report.holds, report.at_risk) == ((("n2", 1),), 0)


def test_a_pinned_hold_at_risk_stays() -> None:
    made = ledger(*nodes(2), mode=Mode.GUARD)
    for number in range(8):
        made.filter(pod(f"p{number}", 1), names(2), 0.0)
    made.set_demand(demand("a", 1, 4, mode=PlacementMode.PINNED))
    before = holds(made, "a")
    made.set_node(node("n2", 4))
    assert holds(made, "a") == before


def test_later_answers_leave_out_a_node_with_a_hold_at_risk_but_not_for_its_owner() -> None:
    made = ledger(*nodes(2, 4), mode=Mode.GUARD)
    for number in range(4):
        made.filter(pod(f"p{number}", 1), names(2), 0.0)
    made.set_demand(demand("a", 1, 4))
    (held,) = made.held_nodes()
    assert made.filter(pod("later", 1), names(2), 0.0).nodes == [name for name in names(2) if name != held]
    assert made.filter(pod("later", 1), [held], 0.0).nodes == []
    assert go(made, pod("owner", 4, app="a"), [held]) == held


def test_an_owner_larger_than_its_slot_takes_no_more_beyond_it_than_is_safe() -> None:
    made = ledger(*nodes(2, 6), mode=Mode.GUARD)
    for number in range(3):
        made.filter(pod(f"p{number}", 1), names(2), 0.0)
    made.set_demand(demand("a", 1, 3))
    (held,) = made.held_nodes()
    assert made.filter(pod("larger", 4, app="a"), [held], 0.0).nodes == []
    assert made.filter(pod("owner", 3, app="a"), [held], 0.0).nodes == [held]


def test_a_pod_in_flight_that_lands_where_a_hold_stands_sends_it_elsewhere() -> None:
    made = ledger(*nodes(2, 4), mode=Mode.GUARD)
    for number in range(4):
        made.filter(pod(f"p{number}", 1), names(2), 0.0)
    made.set_demand(demand("a", 1, 4))
    (held,) = made.held_nodes()
    (other,) = set(names(2)) - {held}
    assert made.bind(pod("p0", 1), held, 0.0).unplaced == 0
    assert holds(made, "a") == {other: 1}


@pytest.mark.parametrize("binds", [True, False])
def test_an_owner_that_comes_takes_the_hold_of_its_own_node_and_no_safe_one(binds: bool) -> None:
    made = ledger(node("n0", 10), node("n1", 4), mode=Mode.GUARD, binds=binds)
    for number, cpu in enumerate((2, 1)):
        assert made.filter(pod(f"p{number}", cpu), names(2), 0.0).nodes == names(2)
    assert made.filter(pod("p2", 5), ["n0"], 0.0).nodes == ["n0"]
    made.set_demand(demand("a", 4, 1))
    assert (holds(made, "a"), made.report()["default/a"].at_risk) == ({"n0": 3, "n1": 1}, 1)
    owner = pod("o", 1, app="a")
    assert made.filter(owner, names(2), 0.0).nodes == ["n0"]
    if binds:
        made.bind(owner, "n0", 0.0)
    made.set_pod(replace(owner, node_name="n0"))
    assert (holds(made, "a"), made.report()["default/a"].at_risk) == ({"n0": 2, "n1": 1}, 1)


def test_a_nomination_makes_a_possible_charge_certain() -> None:
    made = ledger(*nodes(2, 4), mode=Mode.GUARD)
    who = pod("p", 1)
    made.filter(who, names(2), 0.0)
    made.set_demand(demand("a", 2, 4))
    assert made.report()["default/a"].held == 2
    made.set_pod(replace(who, nominated_node_name="n1"))
    assert holds(made, "a") == {"n0": 1}


def test_where_bind_can_refuse_a_slot_takes_the_room_of_a_pod_in_flight() -> None:
    made = ledger(node("n0", 8), demand("a", 1, 2))
    late = pod("late", 6)
    assert made.filter(late, ["n0"], 0.0).nodes == ["n0"]
    made.set_demand(demand("a", 2, 2))
    assert holds(made, "a") == {"n0": 2}
    check_columns(made)
    assert made.bind(late, "n0", 0.0).refusal
    assert go(made, pod("other", 4), ["n0"]) == "n0"


def test_where_bind_can_refuse_a_slot_takes_the_hold_of_a_lower_owner_in_flight() -> None:
    made = ledger(node("n0", 4), demand("low", 1, 4))
    late = pod("late", 4, app="low")
    assert made.filter(late, ["n0"], 0.0).nodes == ["n0"]
    made.set_demand(demand("high", 1, 4, priority=PRIORITY))
    assert (holds(made, "high"), holds(made, "low")) == ({"n0": 1}, {})
    check_columns(made)
    assert made.bind(late, "n0", 0.0).refusal
    assert go(made, pod("owner", 4, app="high", priority=PRIORITY), ["n0"]) == "n0"


def test_slots_without_a_place_beside_pods_in_flight_leave_others_their_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One settle may take one search, as with 5,000 nodes: two for one demand never came to the next."""
    monkeypatch.setattr(retries, "_ROWS_VISITED", 2_000)
    made = ledger(*nodes(50, 4), *(demand(f"high{i}", 10, 3, priority=10) for i in range(5)))
    for _ in range(50):
        made.tend()
    assert made.gauges()["holds"] == 50
    for i in range(40):
        assert made.filter(pod(f"f{i}", 1), [f"n{i}"], 0.0).nodes
    for i in range(4):
        made.set_demand(demand(f"none{i}", 1, 4))
    made.set_demand(demand("freed", 11, 1, priority=-1))
    turns = 0
    while made.tend():
        turns += 1
        assert turns < 50
    assert made.gauges()["unplaced"] == 4, "bind refuses a pod in flight whose room was taken"


def test_where_bind_cannot_refuse_a_pod_in_flight_keeps_its_room() -> None:
    made = ledger(node("n0", 8), demand("a", 1, 2), mode=Mode.GUARD)
    assert made.filter(pod("late", 6), ["n0"], 0.0).nodes == ["n0"]
    made.set_demand(demand("a", 2, 2))
    assert holds(made, "a") == {"n0": 1}


@pytest.mark.parametrize("mode", [Mode.GUARD, Mode.STRICT])
def test_a_pod_that_is_gone_takes_no_room_when_filter_is_asked_for_it_late(mode: Mode) -> None:
    made = ledger(node("n0", 8), demand("a", 1, 2), mode=mode)
    gone = pod("gone", 6)
    made.set_pod(gone)
    made.remove_pod("gone")
    assert made.filter(gone, ["n0"], 0.0).nodes == ["n0"]
    assert made.gauges()["in_flight"] == 0
    made.set_pod(gone)  # a list that lagged had not shown it
    assert made.filter(gone, ["n0"], 1.0).nodes == ["n0"]
    assert made.gauges()["in_flight"] == 1
