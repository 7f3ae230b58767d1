"""Where placeholders are to be: the least steps, there before here, and never a wait without an end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qos.cluster.objects import Anchor, Demand, NodePredicate, Selector, Toleration
from qos.cluster.placeholders import (
    InTurns,
    Placeholder,
    Steps,
    decide,
    form_of,
    may_roam,
    owner_priority_of,
    priority_of,
    shared_out,
    with_roaming,
)
from qos.keys import BANDWIDTHS

FORM = "f"
NODES = "abcd"


def placeholder(name: str, node: str, *, bound: bool = True, form: str = FORM) -> Placeholder:
    return Placeholder(f"uid-{name}", name, "default/p", form, node, bound)


def demand(priority: int = 1000, **more: object) -> Demand:
    made = Demand("default/p", "default", Selector(), {"cpu": 1000, "pods": 1}, 2, priority)
    return replace(made, **more)  # type: ignore[arg-type]


THERE = placeholder("there", "a")
ASKS = placeholder("asks", "b", bound=False)
OLD = placeholder("old", "a", form="before")


@pytest.mark.parametrize(
    ("wanted", "there", "crowded", "steps"),
    [
        ({}, [], {}, Steps()),
        ({"a": 2}, [], {}, Steps(("a", "a"))),
        ({"a": 1}, [THERE], {}, Steps()),
        ({"b": 1}, [ASKS], {}, Steps()),
        ({"b": 1}, [THERE], {}, Steps(("b",))),  # moved: there before here
        ({"b": 1}, [THERE, ASKS], {}, Steps()),
        ({"b": 1}, [THERE, replace(ASKS, bound=True)], {}, Steps((), (THERE,))),
        ({"b": 1}, [THERE, ASKS], {"a": 1}, Steps((), (THERE,))),  # another one waits for its place
        ({"b": 1}, [THERE, ASKS], {"b": 1}, Steps()),
        ({}, [THERE, ASKS], {}, Steps((), (ASKS, THERE))),
        ({"a": 1}, [THERE, ASKS], {}, Steps((), (ASKS,))),  # it holds nothing yet
        ({"a": 1}, [OLD], {}, Steps(("a",))),
        ({"a": 1}, [OLD, THERE], {}, Steps((), (OLD,))),
        ({"a": 1}, [OLD, placeholder("new", "a", bound=False)], {}, Steps()),
        ({"a": 1}, [OLD, placeholder("new", "a", bound=False)], {"a": 1}, Steps((), (OLD,))),
    ],
)
def test_what_is_done_next(wanted, there, crowded, steps):
    assert decide(wanted, FORM, there, crowded) == steps


NOMINATED = replace(ASKS, nominated=True)


@pytest.mark.parametrize(
    ("wanted", "there", "standby", "steps"),
    [
        ({}, [], {"b": 1}, Steps(("b",))),
        ({}, [ASKS], {"b": 1}, Steps(nominate=(ASKS,))),
        ({}, [NOMINATED], {"b": 1}, Steps()),
        ({}, [ASKS, NOMINATED], {"b": 1}, Steps((), (ASKS,))),  # the room is never without one
        ({}, [NOMINATED], {}, Steps((), (NOMINATED,))),
        ({"b": 1}, [NOMINATED, replace(NOMINATED, name="z")], {}, Steps((), (replace(NOMINATED, name="z"),))),
        ({"b": 1}, [NOMINATED], {"b": 1}, Steps(("b",))),
        (
            {},
            [replace(ASKS, bound=True)],
            {"b": 1},
            Steps(("b",), (replace(ASKS, bound=True),)),
        ),  # came too soon
        ({"b": 1}, [replace(ASKS, bound=True)], {"b": 1}, Steps(("b",))),  # its turn has come
        ({"b": 1}, [THERE], {"a": 1}, Steps(("a", "b"))),
    ],
)
def test_who_stands_by_waits_and_no_more(wanted, there, standby, steps):
    assert decide(wanted, FORM, there, standby=standby) == steps


@pytest.mark.parametrize(
    ("asked", "most", "given"),
    [
        ({"a": {"n": 3}}, 2, {"a": {"n": 2}}),
        ({"a": {"n": 2, "m": 2}}, 3, {"a": {"n": 1, "m": 2}}),
        ({"a": {"n": 9}, "b": {"n": 1}}, 4, {"a": {"n": 3}, "b": {"n": 1}}),
        ({"a": {"n": 9, "m": 1}}, 9, {"a": {"n": 3, "m": 1}}),  # no more than three on a node
        ({"a": {"n": 1}, "b": {"n": 1}}, 1, {"a": {"n": 1}}),  # the first is the more important
        ({"a": {}}, 5, {}),
    ],
)
def test_those_who_stand_by_are_shared_out(asked, most, given):
    assert shared_out(asked, most, 3) == given


ROAMS = replace(placeholder("roams", "", bound=False), roams=True)
OTHER = replace(ROAMS, name="roams-too", uid="uid-other")


@pytest.mark.parametrize(
    ("steps", "roaming", "awaited", "patient", "then"),
    [
        (Steps(), [], 0, True, Steps()),
        (Steps(), [], 2, True, Steps(("", ""))),
        (Steps(), [ROAMS], 2, True, Steps(("",))),
        (Steps(), [ROAMS, OTHER], 1, True, Steps((), (OTHER,))),
        (Steps(), [replace(ROAMS, form="before")], 1, True, Steps(("",), (replace(ROAMS, form="before"),))),
        (Steps(("a",)), [ROAMS], 0, True, Steps()),  # kube-scheduler is about to bind it there
        (Steps(("a",)), [ROAMS], 0, False, Steps(("a",), (ROAMS,))),  # it did not
        (Steps(("a", "b")), [ROAMS], 0, True, Steps(("b",))),
        (Steps(("a",)), [ROAMS], 1, True, Steps(("",))),
        (Steps(("a",)), [], 1, True, Steps(("a", ""))),
        (Steps((), (THERE,)), [ROAMS], 0, True, Steps((), (THERE, ROAMS))),
    ],
)
def test_for_slots_without_a_place_placeholders_roam(steps, roaming, awaited, patient, then):
    assert with_roaming(steps, roaming, FORM, awaited, patient=patient) == then


def test_who_may_roam():
    assert may_roam(demand())
    assert not may_roam(demand(max_slots_per_node=1))
    assert not may_roam(demand(needs=frozenset()))
    assert not may_roam(demand(anchors=(Anchor((), {}),)))
    assert not may_roam(demand(vector={"cpu": 1000, **dict.fromkeys(BANDWIDTHS.values(), 1)}))


def test_none_is_made_where_kubelet_refuses_them():
    assert decide({"a": 2, "b": 1}, FORM, [THERE], barred={"a"}) == Steps(("b",))
    # What is missing there keeps others where they are.
    assert decide({"b": 1}, FORM, [THERE], barred={"b"}) == Steps()


def test_of_those_wanted_elsewhere_the_ones_on_lost_nodes_go_first():
    there = [THERE, replace(ASKS, bound=True)]
    wanted = {"c": 2, "d": 0}
    come = placeholder("come", "c")
    assert decide(wanted, FORM, [*there, come], lost={"b"}).delete == (there[1],)
    assert decide(wanted, FORM, [*there, come], lost={"a"}).delete == (THERE,)


@pytest.mark.parametrize(
    ("there", "more", "gone"),
    [
        ([THERE], {"unplaced": 1}, ()),
        ([THERE], {"unplaced": 0}, (THERE,)),  # the policy wants fewer
        ([THERE, replace(THERE, name="z", uid="z")], {"unplaced": 1}, (THERE,)),
        ([THERE, replace(ASKS, bound=True)], {"unplaced": 2}, (replace(ASKS, bound=True),)),
        ([OLD], {"unplaced": 1}, (OLD,)),
        ([THERE], {"unplaced": 1, "lost": {"a"}}, (THERE,)),
        ([THERE], {"unplaced": 1, "crowded": {"a": 1}}, (THERE,)),
    ],
)
def test_it_stays_where_kubelet_may_refuse_who_took_its_room(there, more, gone):
    assert decide({}, FORM, there, overcommitted={"a"}, **more).delete == gone


holdings = st.dictionaries(st.sampled_from(NODES), st.integers(1, 3), max_size=4)
standing = st.lists(
    st.builds(
        lambda number, node, bound, form: placeholder(f"p{number}", node, bound=bound, form=form),
        st.integers(0, 10_000),
        st.sampled_from(NODES),
        st.booleans(),
        st.sampled_from([FORM, FORM, "before"]),
    ),
    max_size=8,
    unique_by=lambda one: one.name,
)


@settings(max_examples=300, deadline=None)
@given(wanted=holdings, there=standing)
def test_it_makes_only_what_is_missing_and_lets_nothing_go_that_is_needed(wanted, there):
    steps = decide(wanted, FORM, there)
    have = Counter(one.node for one in there if one.form == FORM)
    assert Counter(steps.create) == Counter(
        {node: slots - have[node] for node, slots in wanted.items() if slots > have[node]}
    )
    left = [one for one in there if one not in steps.delete]
    bound = sum(one.bound for one in there)
    assert sum(one.bound for one in left) >= min(bound, sum(wanted.values()))
    assert all(node in wanted for node in {one.node for one in left if not one.bound})


@settings(max_examples=300, deadline=None)
@given(first=holdings, second=holdings, room=st.integers(0, 2))
def test_two_policies_that_change_places_end_where_they_are_wanted(first, second, room):
    """Nodes have as much room as both come to, whatever stands there first: each may wait for the other."""
    numbers = count()
    wanted = {"x": first, "y": second}
    capacity = Counter(first) + Counter(second) + Counter(dict.fromkeys(NODES, room))
    there = {
        key: [
            placeholder(f"{key}{next(numbers)}", node)
            for node, slots in wanted[other].items()
            for _ in range(slots)
        ]
        for key, other in (("x", "y"), ("y", "x"))
    }
    asked: Counter[str] = Counter()
    for _ in range(60):
        for key in there:
            late = Counter(
                one.node for own in there.values() for one in own if not one.bound and asked[one.name] > 2
            )
            steps = decide(wanted[key], FORM, there[key], late)
            there[key] = [one for one in there[key] if one not in steps.delete]
            there[key] += [placeholder(f"{key}{next(numbers)}", node, bound=False) for node in steps.create]
        taken = Counter(one.node for own in there.values() for one in own if one.bound)
        for own in there.values():
            for number, one in enumerate(own):
                asked[one.name] += 1
                if not one.bound and taken[one.node] < capacity[one.node]:
                    taken[one.node] += 1
                    own[number] = replace(one, bound=True)
    assert {key: dict(Counter(one.node for one in own if one.bound)) for key, own in there.items()} == wanted
    assert all(one.bound for own in there.values() for one in own)


def test_what_makes_them_another_form():
    one = demand()
    assert form_of(one, 999) == form_of(replace(one, desired=7, created=5.0), 999)
    others = (
        replace(one, vector={"cpu": 2000, "pods": 1}),
        replace(one, where=NodePredicate(tolerations=(Toleration("gpu", "Exists"),))),
    )
    own = {form_of(one, 999), form_of(one, 998), form_of(one, 999, "pause")}
    assert len({*own, *(form_of(other, 999) for other in others)}) == 5


@pytest.mark.parametrize(
    ("priority", "theirs", "owners"),
    [
        (1000, 1000, 1001),
        (0, 0, 1),
        (-1, -1, 0),
        (999_999_999, 999_999_999, 1_000_000_000),
        (1_000_000_000, 1_000_000_000, None),  # no PriorityClass may be higher: such owners wait
        (2_000_000_000, 1_000_000_000, None),
    ],
)
def test_their_priority_and_what_owners_are_raised_to(priority, theirs, owners):
    assert (priority_of(demand(priority)), owner_priority_of(demand(priority))) == (theirs, owners)


def test_policies_take_turns_in_their_order():
    asked = ["a1", "a2", "a3", "b1", "c1", "c2"]
    assert InTurns().next(asked, initial, 4) == (["a1", "b1", "c1", "a2"], ["c2", "a3"])
    assert InTurns().next([], str, 4) == ([], [])


def test_who_was_left_out_comes_before_those_that_ask_again():
    turns = InTurns()
    assert turns.next(["a1", "b1", "c1", "d1"], initial, 2)[0] == ["a1", "b1"]
    assert turns.next(["a2", "b2", "c1", "d1", "e1"], initial, 2)[0] == ["c1", "d1"]
    assert turns.next(["a2", "b2", "c2", "d2", "e1"], initial, 2)[0] == ["a2", "b2"]
    assert turns.next(["a3", "b3", "c2", "d2", "e1"], initial, 2)[0] == ["e1", "c2"]


@given(st.integers(1, 5), st.lists(st.sets(st.sampled_from("abcdefg")), max_size=20))
def test_nobody_who_asks_on_is_left_out_for_ever(most, rounds):
    """Whatever others ask."""
    turns, waited = InTurns(), 0
    for others in rounds:
        served, _ = turns.next([*sorted(others), "z"], initial, most)
        waited = 0 if "z" in served else waited + 1
        assert waited <= 7 // most + 1


def initial(name: str) -> str:
    """Whose it is."""
    return name[0]
