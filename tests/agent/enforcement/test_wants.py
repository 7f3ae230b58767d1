"""What several containers make of one file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.enforcement.places import Place, Wanted
from agent.enforcement.wants import Wants
from kernel.change import RAISE, SET

TIER, POD = Place("/kubepods/burstable", "cpu.shares"), Place("/kubepods/burstable/podX", "cpu.shares")


def test_the_newest_counts_where_a_file_is_set() -> None:
    wants = Wants()
    wants.put("a", {POD: Wanted(SET, "5")})
    wants.put("b", {POD: Wanted(SET, "7")})
    assert wants.wanted(POD, "99") == Wanted(SET, "7")
    wants.put("a", {POD: Wanted(SET, "6")})
    assert wants.wanted(POD, None) == Wanted(SET, "6")
    assert wants.wanting(POD) == ("b", "a")
    assert not wants.only("a", POD)
    wants.drop("b")
    assert wants.only("a", POD)


def test_without_an_original_a_shared_file_is_only_raised() -> None:
    wants = Wants()
    wants.put("a", {TIER: Wanted(RAISE, "500")})
    assert wants.wanted(TIER, None) == Wanted(RAISE, "500")
    assert wants.wanted(TIER, "900") == Wanted(SET, "900")
    assert list(wants.shared_paths()) == [TIER.path]


shares = st.integers(2, 262144)


@given(
    st.dictionaries(st.text("abcd", min_size=1, max_size=1), shares, max_size=4),
    shares,
    st.sets(st.sampled_from("abcd")),
)
def test_a_shared_file_has_the_least_that_suffices(
    asked: dict[str, int], original: int, gone: set[str]
) -> None:
    wants = Wants()
    for container, value in asked.items():
        wants.put(container, {TIER: Wanted(RAISE, "2")})
        wants.put(container, {TIER: Wanted(RAISE, str(value))})
    for container in gone:
        wants.drop(container)
    left = [value for container, value in asked.items() if container not in gone]
    expected = Wanted(SET, str(max(original, *left))) if left else None
    assert wants.wanted(TIER, str(original)) == expected
    assert wants.is_shared(TIER) == bool(left)
    assert len(wants) == bool(left)


def test_nothing_is_left_of_containers_that_are_gone() -> None:
    wants = Wants()
    wants.put("a", {TIER: Wanted(RAISE, "5"), POD: Wanted(SET, "5")})
    wants.put("a", {POD: Wanted(SET, "5")})
    assert TIER not in wants
    wants.drop("a")
    assert (len(wants), wants.at(POD.path), list(wants.shared_paths())) == (0, frozenset(), [])
