"""Who fills a slot: as bind says it, and as the annotations are corrected afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.decisions import Mode
from ledger.seats import NO_SLOT
from tests.ledger.builders import demand, ledger, node, nodes, pod

KEY = "default/web"


def untrue(of):
    """What is to be written: pod's name to value."""
    found = [one for one in of.gather_untrue() if one is not None]
    return {pod.name: value for one in found for pod, value in one.wanted}


def owner(name, slot=None, **others):
    return pod(name, 1, app="web", node=others.pop("node", "n0"), slot=slot, **others)


@pytest.mark.parametrize("mode", list(Mode))
def test_bind_says_who_fills_a_slot(mode):
    made = ledger(*nodes(2), demand("web", 2, cpu=1), mode=mode)
    said = [made.bind(pod(f"p{i}", 1, app="web"), "n0", 0.0) for i in range(3)]
    assert [(one.policy, one.slot) for one in said] == [(KEY, True), (KEY, True), (KEY, False)]
    assert made.bind(pod("other", 1), "n0", 0.0).policy == ""


def test_a_pod_that_ends_denies_no_other_its_floor_from_birth():
    """A rolling update starts new pods while as many old ones take their time to end."""
    ending = [owner(f"p{i}", KEY, deleting=True) for i in range(2)]
    made = ledger(*nodes(1), demand("web", 3, cpu=1), owner("p2", KEY), *ending)
    said = [made.bind(pod(f"new{i}", 1, app="web"), "n0", 0.0).slot for i in range(3)]
    assert said == [True, True, False]


def test_a_suspended_policy_holds_nothing_and_its_pods_keep_their_floors():
    made = ledger(*nodes(1), demand("web", 0, cpu=1, slots=2))
    assert made.bind(pod("p", 1, app="web"), "n0", 0.0).slot


def test_a_policy_that_is_made_over_running_pods_marks_those_beyond_its_slots_only():
    made = ledger(*nodes(1), *(owner(f"p{i}") for i in range(5)))
    assert untrue(made) == {}
    made.set_demand(demand("web", 3, cpu=1))
    assert list(untrue(made).values()) == [NO_SLOT] * 2
    assert untrue(made) == {}, "asked once for each change"


def test_who_fills_a_slot_keeps_it_and_the_first_of_the_others_follows():
    made = ledger(*nodes(1), demand("web", 2, cpu=1), *(owner(f"p{i}", KEY) for i in range(2)))
    made.set_pod(owner("a", NO_SLOT))
    made.set_pod(owner("b", NO_SLOT))
    assert untrue(made) == {}
    made.remove_pod("p0")
    assert untrue(made) == {"a": KEY}
    made.set_pod(owner("a", KEY))
    assert untrue(made) == {}


def test_a_scale_of_the_policy_is_followed():
    made = ledger(*nodes(1), demand("web", 1, cpu=1), owner("p0", KEY), owner("p1", NO_SLOT))
    made.set_demand(demand("web", 2, cpu=1))
    assert untrue(made) == {"p1": KEY}
    made.set_pod(owner("p1", KEY))
    made.set_demand(demand("web", 1, cpu=1))
    assert untrue(made) == {"p1": NO_SLOT}


def test_before_an_upgrade_every_pod_of_a_policy_was_said_to_fill_a_slot():
    made = ledger(*nodes(1), demand("web", 1, cpu=1), owner("p0", KEY), owner("p1", KEY))
    assert untrue(made) == {"p1": NO_SLOT}


def test_what_was_bound_by_others_fills_a_slot_without_a_write():
    made = ledger(*nodes(1), demand("web", 2, cpu=1), owner("p0"), owner("p1"))
    assert untrue(made) == {}
    made.set_pod(owner("p2"))
    assert untrue(made) == {"p2": NO_SLOT}


def test_a_pod_that_ends_gives_its_slot_on_and_is_not_written_to():
    made = ledger(*nodes(1), demand("web", 1, cpu=1), owner("p0", KEY), owner("p1", NO_SLOT))
    made.set_pod(owner("p0", KEY, deleting=True))
    assert untrue(made) == {"p1": KEY}


def test_a_pod_on_a_lost_node_fills_none():
    made = ledger(*nodes(2), demand("web", 1, cpu=1), owner("p0", KEY), owner("p1", NO_SLOT, node="n1"))
    made.remove_node("n0")
    assert untrue(made) == {"p1": KEY}


def test_a_pod_whose_binding_is_under_way_is_counted_and_not_written_to():
    made = ledger(*nodes(1), demand("web", 1, cpu=1))
    made.bind(pod("p0", 1, app="web"), "n0", 0.0)
    made.bind(pod("p1", 1, app="web"), "n0", 0.0)
    assert untrue(made) == {}


def test_of_two_policies_the_one_whose_slot_it_fills_is_named():
    made = ledger(*nodes(1), demand("web", 2, cpu=1), owner("p0", KEY))
    made.set_demand(replace(demand("web", 2, cpu=1), key="default/vip", priority=9))
    while made.tend():
        pass
    assert untrue(made) == {"p0": "default/vip"}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([None, KEY, NO_SLOT, "default/gone"]), max_size=8),
    st.lists(st.tuples(st.sampled_from(["come", "end", "go", "scale"]), st.integers(0, 7)), max_size=12),
)
def test_in_the_end_as_many_have_a_floor_as_there_are_slots(said, changes):
    """And none of those who filled a slot, and still can, has lost it."""
    made, slots = ledger(node("n0", 64), demand("web", 3, cpu=1)), 3
    there = {f"p{i}": owner(f"p{i}", slot) for i, slot in enumerate(said)}
    for one in there.values():
        made.set_pod(one)
    for what, number in [("scale", 3), *changes]:
        before = {name for name, one in there.items() if one.slot == KEY}
        if what == "scale":
            slots = number
            made.set_demand(demand("web", slots, cpu=1))
        elif what == "end":
            if one := there.pop(f"p{number}", None):
                made.set_pod(replace(one, deleting=True))
        elif what == "go":
            there.pop(f"p{number}", None)
            made.remove_pod(f"p{number}")
        elif f"p{number}" not in there:
            made.set_pod(there.setdefault(f"p{number}", owner(f"p{number}")))
        for name, value in untrue(made).items():
            there[name] = owner(name, value)
            made.set_pod(there[name])
        assert untrue(made) == {}
        floors = {name for name, one in there.items() if one.slot in (None, KEY)}
        assert len(floors) == min(slots, len(there))
        kept = before & there.keys()
        assert len(kept & floors) == min(len(kept), slots)
    assert made.bind(pod("next", 1, app="web"), "n0", 0.0).slot is (len(there) < slots)
