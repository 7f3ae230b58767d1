"""What several containers make of one file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.enforcement.claims import Claims
from agent.enforcement.places import Place, Wanted
from kernel.change import RAISE, SET

TIER, POD = Place("/kubepods/burstable", "cpu.shares"), Place("/kubepods/burstable/podX", "cpu.shares")


def test_the_newest_counts_where_a_file_is_set() -> None:
    claims = Claims()
    claims.put("a", {POD: Wanted(SET, "5")})
    claims.put("b", {POD: Wanted(SET, "7")})
    assert claims.wanted(POD, "99") == Wanted(SET, "7")
    claims.put("a", {POD: Wanted(SET, "6")})
    assert claims.wanted(POD, None) == Wanted(SET, "6")
    assert claims.holders(POD) == ("b", "a")
    assert not claims.only("a", POD)
    claims.drop("b")
    assert claims.only("a", POD)


def test_without_an_original_a_shared_file_is_only_raised() -> None:
    claims = Claims()
    claims.put("a", {TIER: Wanted(RAISE, "500")})
    assert claims.wanted(TIER, None) == Wanted(RAISE, "500")
    assert claims.wanted(TIER, "900") == Wanted(SET, "900")
    assert list(claims.shared_paths()) == [TIER.path]


shares = st.integers(2, 262144)


@given(
    st.dictionaries(st.text("abcd", min_size=1, max_size=1), shares, max_size=4),
    shares,
    st.sets(st.sampled_from("abcd")),
)
def test_a_shared_file_has_the_least_that_suffices(
    wants: dict[str, int], original: int, gone: set[str]
) -> None:
    claims = Claims()
    for container, value in wants.items():
        claims.put(container, {TIER: Wanted(RAISE, "2")})
        claims.put(container, {TIER: Wanted(RAISE, str(value))})
    for container in gone:
        claims.drop(container)
    left = [value for container, value in wants.items() if container not in gone]
    expected = Wanted(SET, str(max(original, *left))) if left else None
    assert claims.wanted(TIER, str(original)) == expected
    assert claims.is_shared(TIER) == bool(left)
    assert len(claims) == bool(left)


def test_nothing_is_left_of_containers_that_are_gone() -> None:
    claims = Claims()
    claims.put("a", {TIER: Wanted(RAISE, "5"), POD: Wanted(SET, "5")})
    claims.put("a", {POD: Wanted(SET, "5")})
    assert TIER not in claims
    claims.drop("a")
    assert (len(claims), claims.at(POD.path), list(claims.shared_paths())) == (0, frozenset(), [])
