"""Placeholders for slots without a place: how many there are, and when none is made."""

from __future__ import annotations

from extender.roaming import MOST, Roaming
from ledger.report import Holding
from qos.cluster.objects import Demand, Selector
from qos.cluster.placeholders import Placeholder, Steps
from qos.cluster.refusals import CALM_SECONDS

FORM = "f"


def holding(name: str, unplaced: int) -> Holding:
    key = f"default/{name}"
    return Holding(Demand(key, "default", Selector(), {"cpu": 1000, "pods": 1}, unplaced, 0), (), unplaced)


def test_each_policy_has_its_share(clock):
    """Slots that no node will ever do for keep nobody else's from being asked for."""
    wanted = {"default/a": 100, "default/b": 60, "default/c": 5}
    roaming = Roaming(lambda key: wanted.get(key, 0), clock)
    held = [holding(name, 120) for name in "abcd"]
    for expected in ([MOST, 0, 0, 0], [47, 47, 5, 0], [47, 47, 5, 0]):
        roaming.begin()
        assert [roaming.awaited(one) for one in (*held, *held)] == 2 * expected
    roaming.begin()
    assert [roaming.awaited(holding(name, 3)) for name in "abcd"] == [3, 3, 3, 0]
    roaming.begin()
    assert roaming.awaited(holding("a", 120)) == MOST


def test_where_too_many_policies_ask_the_first_have_one_each(clock):
    roaming = Roaming(lambda _key: 9, clock)
    held = [holding(f"p{number}", 9) for number in range(MOST + 20)]
    for _ in range(2):
        roaming.begin()
        awaited = [roaming.awaited(one) for one in held]
    assert awaited == [1] * MOST + [0] * 20


def test_one_that_went_astray_ends_it_for_a_while(clock):
    roaming = Roaming(lambda _key: 5, clock)
    astray = Placeholder("u", "p", "default/a", FORM, "n1", bound=True, roams=True)
    lacks = holding("a", 2)
    assert roaming.with_them(Steps(), lacks, FORM, []) == Steps(("", ""))
    assert roaming.with_them(Steps((), (astray,)), lacks, FORM, []) == Steps((), (astray,))
    assert roaming.pauses("default/a")
    clock.advance(1.0)
    roaming.begin()
    assert roaming.with_them(Steps(), lacks, FORM, []) == Steps(("",)), "one is tried"
    clock.advance(CALM_SECONDS)
    roaming.begin()
    assert roaming.with_them(Steps(), lacks, FORM, []) == Steps(("", ""))


def test_a_slot_that_has_got_its_place_leaves_it_to_one_for_a_second(clock):
    roaming = Roaming(lambda _key: 0, clock)
    waits = Placeholder("u", "p", "default/a", FORM, "", bound=False, roams=True)
    placed, create = holding("a", 0), Steps(("n1",))
    assert roaming.with_them(create, placed, FORM, [waits]) == Steps()
    clock.advance(0.9)
    assert roaming.with_them(create, placed, FORM, [waits]) == Steps()
    clock.advance(0.1)
    assert roaming.with_them(create, placed, FORM, [waits]) == Steps(("n1",), (waits,))
