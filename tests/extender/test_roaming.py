"""Placeholders for slots without a place: how many there are, and when none is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from extender.roaming import BY_PRIORITY, MOST, Ask, Roaming, laid_out, shared
from ledger.report import Holding
from qos.cluster.objects import Demand, Selector
from qos.cluster.placeholders import Placeholder, Steps
from qos.cluster.refusals import CALM_SECONDS

FORM = "f"


def holding(name: str, unplaced: int, priority: int = 0, nodes: tuple[tuple[str, int], ...] = ()) -> Holding:
    key = f"default/{name}"
    return Holding(
        Demand(key, "default", Selector(), {"cpu": 1000, "pods": 1}, unplaced, priority), nodes, unplaced
    )


def roaming_of(clock, wanted: Callable[[str], int]) -> Roaming:
    return Roaming(wanted, lambda: 0, clock)


def a_round(roaming: Roaming, held: list[Holding]) -> list[int]:
    """How many roam of each once all are known."""
    roaming.begin()
    for one in held:
        roaming.awaited(one)
    if roaming.end():
        return a_round(roaming, held)
    return [roaming.awaited(one) for one in held]


def test_each_policy_has_its_share(clock):
    """Slots that no node will ever do for keep nobody else's from being asked for."""
    wanted = {"default/a": 100, "default/b": 60, "default/c": 5}
    roaming = roaming_of(clock, lambda key: wanted.get(key, 0))
    assert a_round(roaming, [holding(name, 120) for name in "abcd"]) == [48, 47, 5, 0]
    assert a_round(roaming, [holding(name, 3) for name in "abcd"]) == [3, 3, 3, 0]
    assert a_round(roaming, [holding("a", 120)]) == [MOST]


def test_higher_policies_have_half_of_it_first(clock):
    roaming = roaming_of(clock, lambda key: 60 if key == "default/high" else 9)
    low = [holding(f"p{number}", 9) for number in range(MOST + 20)]
    assert a_round(roaming, [holding("high", 60, 1000), *low]) == [50, *[1] * 50, *[0] * (MOST + 20 - 50)]
    assert a_round(roaming, low) == [1] * MOST + [0] * 20


@given(
    st.dictionaries(
        st.text(max_size=3), st.builds(Ask, st.sampled_from([0, 10, 1000]), st.integers(0, 120)), max_size=150
    )
)
def test_all_that_may_wait_are_shared_out(asked):
    given_out = shared(asked)
    assert all(0 <= given_out[key] <= count for key, (_, count) in asked.items())
    assert sum(given_out.values()) == min(MOST, sum(count for _, count in asked.values()))
    waiting = sum(count > 0 for _, count in asked.values())
    if waiting <= MOST - BY_PRIORITY:
        assert all(given_out[key] for key, (_, count) in asked.items() if count), "nobody is passed over"


def test_they_are_below_all_policies_above_ordinary_pods_in_their_order(clock):
    """kube-scheduler heeds a nomination against what is not above it only."""
    roaming = roaming_of(clock, lambda _key: 1)
    held = [holding("high", 1, 1000), holding("middle", 1, 10), holding("low", 1, 0), holding("least", 1, -5)]
    a_round(roaming, held)
    assert [roaming.priority(one.demand) for one in held] == [10, 9, 0, -5]
    a_round(roaming, held[2:])
    assert [roaming.priority(one.demand) for one in held[2:]] == [0, -5]
    assert laid_out([2, 5, 9, 7], 0) == {9: 2, 7: 1, 5: 1, 2: 1}


def test_their_priority_rises_only_when_no_policy_was_so_low_for_a_minute(clock):
    """Who makes a policy and takes it away again would have all that wait made anew each time."""
    roaming, high, low = roaming_of(clock, lambda _key: 1), holding("high", 1, 1000), holding("low", 1, 10)
    none = holding("none", 0, 5)
    a_round(roaming, [high, none])
    assert roaming.priority(high.demand) == 1000, "a policy without slots counts for nothing"
    a_round(roaming, [high, low])
    assert roaming.priority(high.demand) == 10
    clock.advance(CALM_SECONDS - 1)
    a_round(roaming, [high])
    assert roaming.priority(high.demand) == 10
    clock.advance(1)
    a_round(roaming, [high])
    assert roaming.priority(high.demand) == 1000


def test_a_global_default_that_comes_changes_whose_priority_they_have(clock):
    ordinary = 0
    roaming = Roaming(lambda _key: 1, lambda: ordinary, clock)
    held = [holding("high", 1, 1000), holding("low", 1, 10)]
    a_round(roaming, held)
    assert [roaming.priority(one.demand) for one in held] == [10, 9]
    ordinary = 500
    a_round(roaming, held)
    assert [roaming.priority(one.demand) for one in held] == [1000, 10]


def test_who_lacks_more_in_one_round_and_less_in_the_next_is_not_passed_over(clock):
    roaming = roaming_of(clock, lambda _key: 9)
    a_round(roaming, [holding("a", 5)])
    found = []
    for unplaced in (6, 5, 6, 5):
        roaming.begin()
        found.append(roaming.awaited(holding("a", unplaced)))
        assert roaming.end()
    assert found == [None, 5, None, 5]


def on(node: str, name: str = "u") -> Placeholder:
    return Placeholder(name, name, "default/a", FORM, node, bound=bool(node), roams=True)


def test_one_that_went_astray_ends_it_for_a_while(clock):
    roaming, astray = roaming_of(clock, lambda _key: 5), on("n1")
    lacks = holding("a", 2)
    a_round(roaming, [lacks])
    assert roaming.with_them(Steps(), lacks, FORM, []) == Steps(("", ""))
    assert roaming.with_them(Steps((), (astray,)), lacks, FORM, [astray]) == Steps((), (astray,))
    assert roaming.pauses("default/a")
    clock.advance(1.0)
    a_round(roaming, [lacks])
    assert roaming.with_them(Steps(), lacks, FORM, []) == Steps(("",)), "one is tried"
    clock.advance(CALM_SECONDS)
    a_round(roaming, [lacks])
    assert roaming.with_them(Steps(), lacks, FORM, []) == Steps(("", ""))


def test_one_that_was_wanted_where_it_was_bound_did_not_go_astray(clock):
    """A cordon, or a policy that has fewer slots: others are to wait as before."""
    roaming, moved, kept = roaming_of(clock, lambda _key: 5), on("n1"), on("n2", "v")
    wanted = holding("a", 2, nodes=(("n1", 1), ("n2", 1)))
    a_round(roaming, [wanted])
    roaming.with_them(Steps(), wanted, FORM, [])
    roaming.with_them(Steps(), wanted, FORM, [moved, kept])
    fewer = holding("a", 2, nodes=(("n2", 1),))
    roaming.with_them(Steps((), (moved,)), fewer, FORM, [moved, kept])
    assert not roaming.pauses("default/a")


def test_one_that_comes_while_others_are_replaced_did_not_go_astray(clock):
    """One that was welcome and what replaces it on its node are one slot."""
    roaming, first, second = roaming_of(clock, lambda _key: 5), on("n1"), on("n1", "v")
    wanted = holding("a", 2, 1000, nodes=(("n1", 2),))
    a_round(roaming, [wanted])
    follows = Placeholder("s", "s", "default/a", "its own form", "n1", bound=True, priority=1000)
    roaming.with_them(Steps(), wanted, FORM, [])
    roaming.with_them(Steps(), wanted, FORM, [first])
    roaming.with_them(Steps((), (second,)), wanted, FORM, [first, follows, second])
    assert not roaming.pauses("default/a")
    third = on("n1", "w")
    roaming.with_them(
        Steps((), (third,)), wanted, FORM, [first, follows, second, third, replace(follows, uid="t")]
    )
    assert roaming.pauses("default/a"), "it is one more than there are slots"


def test_after_a_restart_nobody_knows_which_went_astray(clock):
    roaming, one = roaming_of(clock, lambda _key: 5), on("n1")
    roaming.with_them(Steps((), (one,)), holding("a", 2), FORM, [one])
    assert not roaming.pauses("default/a")


def test_those_that_wait_stay_while_nobody_knows_how_many_are_to(clock):
    """After a start, and until a round has shared out what all ask for."""
    known: dict[str, int | None] = {}
    roaming, lacks, waits = roaming_of(clock, known.get), holding("a", 2), on("")
    assert a_round(roaming, [lacks]) == [None]
    assert roaming.with_them(Steps(("n1",)), lacks, "another form", [waits]) == Steps(("n1",))
    assert roaming.with_them(Steps(("n1",)), lacks, FORM, [waits]) == Steps(), "it is about to be bound there"
    known["default/a"] = 1
    assert a_round(roaming, [lacks]) == [1]
    assert roaming.with_them(Steps(), lacks, "another form", [waits]) == Steps(("",), (waits,))
    known["default/a"] = 0
    assert a_round(roaming, [lacks]) == [0]
    assert roaming.with_them(Steps(), lacks, FORM, [waits]) == Steps((), (waits,))


def test_a_slot_that_has_got_its_place_leaves_it_to_one_for_a_second(clock):
    roaming = roaming_of(clock, lambda _key: 0)
    waits = Placeholder("u", "p", "default/a", FORM, "", bound=False, roams=True)
    placed, create = holding("a", 0), Steps(("n1",))
    a_round(roaming, [placed])
    assert roaming.with_them(create, placed, FORM, [waits]) == Steps()
    clock.advance(0.9)
    assert roaming.with_them(create, placed, FORM, [waits]) == Steps()
    clock.advance(0.1)
    assert roaming.with_them(create, placed, FORM, [waits]) == Steps(("n1",), (waits,))
