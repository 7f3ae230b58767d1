"""The checker's arithmetic of topology spread, and floors that break by it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from lab.checker import Kind
from lab.evenness import Evenness, Rule
from qos.cluster.objects import Requirement, Selector, Spread
from tests.lab.test_checker import Stream, kinds

CHECKOUT = Selector((Requirement("app", "In", ("checkout",)),))


def rule(pods: dict[str, int], skew: int = 1, **others: int | bool) -> Rule:
    """A node a domain, of the same name."""
    return Rule(Spread("zone", skew, CHECKOUT, **others), {name: name for name in pods}, pods)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3),
    st.integers(1, 2),
    st.integers(0, 8),
)
def test_no_order_places_more(domains: list[tuple[int, int]], skew: int, count: int) -> None:
    pods = {f"z{i}": number for i, (number, _) in enumerate(domains)}
    room = {f"z{i}": number for i, (_, number) in enumerate(domains)}
    placed = Evenness((rule(pods, skew),)).place(room, count)
    best = 0
    for counts in product(*(range(number + 1) for number in room.values())):
        after = [there + new for there, new in zip(pods.values(), counts, strict=True)]
        even = all(not new or level - min(after) <= skew for new, level in zip(counts, after, strict=True))
        if even and sum(counts) <= count:
            best = max(best, sum(counts))
    assert sum(placed.values()) == best


def test_missing_domains_count_as_empty_ones() -> None:
    assert Evenness((rule({"a": 0, "b": 0}, min_domains=3),)).place({"a": 9, "b": 9}, 9) == {"a": 1, "b": 1}


def test_pods_that_do_not_count_themselves_go_where_the_others_are_few() -> None:
    even = Evenness((rule({"a": 2, "b": 0}, itself=False),))
    assert even.place({"a": 9, "b": 3}, 9) == {"b": 3}


def zoned() -> Stream:
    """A node of 4 CPU in each of three zones; a slot of 2 CPU in each."""
    stream = Stream()
    for zone in "abc":
        stream.node(f"n{zone}", labels={"zone": zone})
    stream.policy("checkout", 2000, 3, spread=(Spread("zone", 1, CHECKOUT),))
    stream.later()
    return stream


def test_room_in_the_wrong_zone_is_no_room() -> None:
    stream = zoned()
    stream.pod("batch", 4000, "na")
    verdict = stream.verdict()
    # One slot in b and one in c: a third would be two above zone a, which has none.
    assert kinds(verdict) == [Kind.FLOOR_BROKEN]
    assert verdict.kept == {"default/checkout": 2}


def test_what_leaves_each_zone_its_slot_is_no_finding() -> None:
    stream = zoned()
    for zone in "abc":
        stream.pod("batch", 2000, f"n{zone}")
    for zone in "cab":
        stream.pod("checkout", 2000, f"n{zone}")
    assert not stream.verdict().findings


def test_a_pod_that_is_counted_and_no_owner_is_noted() -> None:
    stream = Stream()
    for zone in "ab":
        stream.node(f"n{zone}", labels={"zone": zone})
    other = Selector((Requirement("app", "In", ("other",)),))
    stream.policy("checkout", 1000, 4, spread=(Spread("zone", 1, other),))
    stream.later()
    for _ in range(2):
        stream.pod("other", 500, "na")
    verdict = stream.verdict()
    assert not verdict.violations
    assert verdict.kept == {"default/checkout": 4}, "all in the zone that has fewer of the others"


def test_a_pod_on_its_way_out_is_not_counted() -> None:
    stream = zoned()
    owner = stream.pod("checkout", 2000, "na")
    stream.put(replace(owner, deleting=True))
    stream.later()
    assert stream.verdict().kept == {"default/checkout": 3}
