"""What is unplaced is tried again where it could have a place by now, and nowhere else."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import pytest

from ledger import placement
from ledger.decisions import Mode
from ledger.ledger import Ledger
from ledger.moves import EFFORT
from qos.cluster.objects import Demand
from tests.ledger.builders import demand, go, holds, ledger, names, nodes, pod

UNPLACED = 20


class Tries:
    """The demands that placement tried to place, in order, while the block ran."""

    def __init__(self, of: Ledger) -> None:
        self._state = of._state
        self.keys: list[str] = []

    def __enter__(self) -> list[str]:
        fill = placement._fill

        def counted(state, number, want, rows):
            self.keys.append(self._state.demands[number].key)
            return fill(state, number, want, rows)

        self._patch = patch.object(placement, "_fill", counted)
        self._patch.start()
        return self.keys

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def _full(mode: Mode, *others: Demand, cap_percent: int = 100) -> Ledger:
    """Four nodes of 8 CPU, and policies whose slots of 9 CPU fit nowhere."""
    unplaced = [demand(f"u{i}", 1, 9) for i in range(UNPLACED)]
    made = ledger(*nodes(4), *unplaced, *others, mode=mode, cap_percent=cap_percent)
    assert sum(report.missing for report in made.report().values()) >= UNPLACED
    return made


@pytest.mark.parametrize("mode", [Mode.GUARD, Mode.STRICT])
def test_a_bind_tries_none_of_the_unplaced_slots_again(mode: Mode) -> None:
    made = _full(mode, demand("a", 1, 4))
    with Tries(made) as tried:
        for number in range(8):
            assert go(made, pod(f"p{number}", 1), names(4))
    assert tried == []


def test_a_pod_that_goes_lets_only_those_be_tried_that_could_fit_there() -> None:
    made = _full(Mode.GUARD, demand("z", 1, 4), pod("p", 6, node="n0"), pod("q", 8, node="n1"))
    for name in ("n2", "n3"):
        made.set_pod(pod(f"full-{name}", 8, node=name))
    assert made.report()["default/z"].missing == 1
    with Tries(made) as tried:
        made.remove_pod("p")
        assert made.held_nodes() == {"n0"}
    assert tried == ["default/z"]


def test_a_charge_that_goes_away_is_no_room_unless_it_was_certain() -> None:
    made = ledger(*nodes(2), *(pod(f"p{i}", 4, node=f"n{i}") for i in range(2)), mode=Mode.GUARD)
    made.filter(pod("certain", 2), ["n0"], 0.0)
    made.filter(pod("possible", 2), ["n0", "n1"], 0.0)
    made.set_demand(demand("a", 2, 4))
    assert holds(made, "a") == {"n1": 1}
    with Tries(made) as tried:
        made.settle("possible")
        assert made.held_nodes() == {"n1"}
    assert tried == []
    made.settle("certain")
    assert made.held_nodes() == {"n0", "n1"}


def test_what_the_cap_kept_back_is_tried_when_holds_go() -> None:
    made = ledger(*nodes(4), demand("a", 2, 4), demand("b", 2, 4, created=1.0), cap_percent=30)
    assert (holds(made, "a"), holds(made, "b")) == ({"n0": 2}, {})
    made.set_demand(demand("a", 1, 4))
    assert sum(holds(made, "b").values()) == 1
    owner = pod("o", 4, app="a", node="n3")
    made.set_pod(owner)
    assert sum(holds(made, "b").values()) == 2
    made.set_pod(replace(owner, phase="Succeeded"))
    assert (sum(holds(made, "a").values()), sum(holds(made, "b").values())) == (1, 1)


def test_what_one_call_may_take_never_leaves_a_search_out_time_and_again() -> None:
    with patch("ledger.retries._ROWS_VISITED", 1):
        made = ledger(*nodes(1, 14), demand("a", 3, 5))
        turns = iter(range(20))
        while made.tend():
            next(turns)
        assert holds(made, "a") == {"n0": 2}


def test_one_call_makes_no_more_than_one_long_search_where_holds_displace_each_other() -> None:
    """Each of 60 policies that lost its hold drove a later one's away, and each was searched for."""
    policies = [demand(f"a{i}", 1, 4, 1 + i, max_slots_per_node=1) for i in range(60)]
    there = [pod(f"f{i}", 4, node=f"n{i}") for i in range(60)]
    made = ledger(*nodes(60, 8, memory=100), *policies, *there, mode=Mode.GUARD, cap_percent=100)
    made.report()
    steps = Counter[str]()
    longest = 0
    for number in range(6):
        made.set_pod(pod(f"x{number}", 0.25, node=f"n{7 * number}", priority=5_000))
        steps.clear()
        sys.setprofile(lambda frame, event, _: steps.update((frame.f_code.co_name,) * (event == "call")))
        try:
            made.prioritize(pod(f"p{number}", 1), names(60), 0.0)
        finally:
            sys.setprofile(None)
        longest = max(longest, steps["_try"] + steps["_relocate"])
    assert 0 < longest <= EFFORT
