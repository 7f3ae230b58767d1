"""Ordinary pods get in beside slots held at risk, as far as no slot can be lost by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import PlacementMode, Pod
from tests.ledger.builders import demand, holds, ledger, names, node, nodes, pod

NODES = 20


def _crashed(binds: bool = True) -> Ledger:
    """12 pods of 1 CPU in flight to 20 nodes, each with a slot that has just come free; 108 CPUs beside."""
    made = ledger(*nodes(NODES, 16), mode=Mode.GUARD, binds=binds)
    owners = [pod(f"owner{i}", 1, app="a", node=f"n{i}") for i in range(NODES)]
    runs = [pod(f"runs{i}", 1, node=f"n{i % NODES}") for i in range(NODES * 16 - NODES - 108)]
    for who in (*owners, *runs):
        made.set_pod(who)
    for i in range(12):
        assert len(made.filter(pod(f"flying{i}", 1), names(NODES), 0.0).nodes) == NODES
    made.set_demand(demand("a", NODES, 1))  # now: beside owners the pods would not have been answered all
    for owner in owners:
        made.remove_pod(owner.uid)
    report = made.report()["default/a"]
    assert (report.held, report.at_risk) == (NODES, NODES)
    return made


def _taken(made: Ledger, shown: list[str], most: int) -> int:
    """How many ordinary pods get in, one after the other."""
    for number in range(most):
        who = pod(f"late{number}", 1)
        answer = made.filter(who, shown, 1.0).nodes
        if not answer:
            return number
        made.set_pod(replace(who, node_name=answer[0]))
    return most


@pytest.mark.parametrize("binds", [True, False])
def test_pods_in_flight_keep_no_more_than_they_can_take_from_ordinary_pods(binds: bool) -> None:
    made = _crashed(binds)
    assert _taken(made, names(NODES), 200) == 108 - 12
    full = sorted(made.held_nodes())[:12]
    for i, name in enumerate(full):
        made.set_pod(pod(f"flying{i}", 1, node=name))
    assert made.report()["default/a"].missing == 0


def test_they_get_in_before_the_first_of_them_is_bound() -> None:
    made = _crashed()
    answers = [made.filter(pod(f"late{number}", 1), names(NODES), 1.0).nodes for number in range(200)]
    assert sum(map(bool, answers)) == 108 - 12


def test_a_safe_hold_stays_safe() -> None:
    """On n0 the pod in flight fits beside the hold, a second one would not."""
    made = ledger(node("n0", 3), node("n1", 1), mode=Mode.GUARD)
    assert made.filter(pod("flying", 1), names(2), 0.0).nodes == names(2)
    made.set_demand(demand("a", 2, 1))
    assert holds(made, "a") == {"n0": 2}
    assert made.filter(pod("late", 1), ["n0"], 0.0).nodes == []


def test_a_pinned_hold_is_not_moved_out_of_the_way() -> None:
    made = ledger(*nodes(2, 4), mode=Mode.GUARD)
    for number in range(4):
        made.filter(pod(f"flying{number}", 1), names(2), 0.0)
    made.set_demand(demand("a", 1, 1, mode=PlacementMode.PINNED))
    (held,) = made.held_nodes()
    assert made.filter(pod("late", 1), [held], 0.0).nodes == []


_AMOUNTS = st.sampled_from([(1, 0), (1, 1), (1, 2), (2, 0)])


class Landing:
    """Pods in flight to every node, then slots, then ordinary pods that take what they get beside holds at
    risk; then all of the first land, anywhere.
    """

    def __init__(self, cpu: list[int], flying: list[tuple[int, int]]) -> None:
        self.cpu = {f"n{i}": cores for i, cores in enumerate(cpu)}
        self.made = ledger(*[node(n, c, c) for n, c in self.cpu.items()], mode=Mode.GUARD, binds=False)
        self.landed: dict[str, Pod] = {}
        self.flying: dict[str, tuple[Pod, list[str]]] = {}
        for number, amounts in enumerate(flying):
            who = pod(f"flying{number}", *amounts)
            self.flying[who.uid] = (who, self.made.filter(who, [*self.cpu], 0.0).nodes)

    def fitting(self, who: Pod, shown: Iterable[str]) -> list[str]:
        """Where kube-scheduler finds room for it."""
        found = []
        for name in shown:
            there = [p.requests for p in self.landed.values() if p.node_name == name]
            left = {"cpu": self.cpu[name] * 1000, "memory": self.cpu[name]}
            if all(who.requests[d] + sum(r[d] for r in there) <= left[d] for d in left):
                found.append(name)
        return found

    def take(self, who: Pod) -> bool:
        """Whether an ordinary pod got onto a node with holds, some of which are at risk."""
        risky = any(report.at_risk for report in self.made.report().values())
        shown = sorted(self.made.held_nodes()) if risky else []
        answer = self.made.filter(who, self.fitting(who, shown), 0.0).nodes
        if answer:
            self.land(who, answer[0])
        return bool(answer)

    def land(self, who: Pod, name: str) -> None:
        self.landed[who.uid] = replace(who, node_name=name)
        self.made.set_pod(self.landed[who.uid])

    def missing(self) -> dict[str, int]:
        return {key: report.missing for key, report in self.made.report().items()}


def test_no_slot_is_lost_wherever_pods_in_flight_land_after_others_got_in() -> None:
    taken = Counter[int]()

    @settings(max_examples=settings().max_examples * 2, deadline=None)
    @given(
        st.lists(st.integers(4, 7), min_size=4, max_size=7),
        st.lists(_AMOUNTS, min_size=5, max_size=9),
        st.lists(st.tuples(st.integers(3, 7), _AMOUNTS), min_size=1, max_size=2),
        st.lists(_AMOUNTS, min_size=1, max_size=12),
        st.permutations(range(9)),
        st.lists(st.integers(0, 59), min_size=9, max_size=9),
    )
    def lands(
        cpu: list[int],
        flying: list[tuple[int, int]],
        slots: list[tuple[int, tuple[int, int]]],
        late: list[tuple[int, int]],
        order: list[int],
        where: list[int],
    ) -> None:
        case = Landing(cpu, flying)
        for app, (desired, vector) in zip("ab", slots, strict=False):
            case.made.set_demand(demand(app, desired, *vector))
        before = case.missing()
        got_in = sum([case.take(pod(f"late{i}", *amounts)) for i, amounts in enumerate(late)])
        taken[got_in] += 1
        for number in order if got_in else ():
            who, answer = case.flying.get(f"flying{number}", (None, []))
            if who is None:
                continue
            if there := case.fitting(who, answer):
                case.land(who, there[where[number] % len(there)])
            else:
                case.made.remove_pod(who.uid)
            assert case.missing() == before

    lands()
    assert sum(taken.values()) - taken[0] >= 20, taken
