"""Whose an address is, while pods come and go."""

from __future__ import annotations

import socket
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from agent.network.addresses import Claim, owned


def v4(text: str) -> bytes:
    return socket.inet_pton(socket.AF_INET, text)


def v6(text: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6, text)


def test_both_versions_of_a_pod() -> None:
    claim = Claim("a", stated=("10.1.0.7", "fd00::7"))
    assert owned([claim]) == {"a": (v4("10.1.0.7"), v6("fd00::7"))}


def test_the_runtime_counts_before_a_status_which_comes_late() -> None:
    restarted = Claim("a", stated=("10.1.0.7",), told=("10.1.0.9",))
    assert owned([restarted]) == {"a": (v4("10.1.0.9"),)}


def test_an_address_that_was_given_again() -> None:
    old, new = Claim("old", stated=("10.1.0.7",)), Claim("new", stated=("10.1.0.7",), told=("10.1.0.7",))
    for claims in permutations([old, new]):
        assert owned(claims) == {"old": (), "new": (v4("10.1.0.7"),)}
    alive = Claim("new", stated=("10.1.0.7",), alive=True)
    for claims in permutations([old, alive]):
        assert owned(claims) == {"old": (), "new": (v4("10.1.0.7"),)}


def test_one_that_two_claim_with_the_same_right_is_nobodys() -> None:
    claims = [Claim("a", told=("10.1.0.7", "10.1.0.8")), Claim("b", told=("10.1.0.7",))]
    assert owned(claims) == {"a": (v4("10.1.0.8"),), "b": ()}


def test_the_nodes_own_addresses_are_no_pods() -> None:
    host = Claim("host", stated=("192.0.2.1", "2001:db8::1"), host=True)
    liar = Claim("pod", told=("192.0.2.1", "10.1.0.7"))
    assert owned([host, liar]) == {"pod": (v4("10.1.0.7"),)}


def test_what_is_no_address_of_one_pod() -> None:
    texts = ("", "x", "127.0.0.1", "::1", "::", "0.0.0.0", "fe80::1", "169.254.1.1", "224.0.0.1", "ff02::1")
    assert owned([Claim("a", stated=(*texts, "10.1.0.7", "10.1.0.7", "::ffff:10.1.0.8"))]) == {
        "a": (v4("10.1.0.7"), v4("10.1.0.8"))
    }


_ADDRESSES = st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1", "nonsense"]), max_size=3).map(tuple)
_CLAIMS = st.builds(
    Claim, st.sampled_from("abcd"), _ADDRESSES, _ADDRESSES, alive=st.booleans(), host=st.booleans()
)


@given(st.lists(_CLAIMS, max_size=4, unique_by=lambda claim: claim.uid))
def test_never_two_owners_and_never_another_answer_in_another_order(claims: list[Claim]) -> None:
    found = owned(claims)
    all_of_them = [address for addresses in found.values() for address in addresses]
    assert len(all_of_them) == len(set(all_of_them))
    assert owned(claims[::-1]) == found
    said = {claim.uid: claim for claim in claims}
    assert found.keys() == {uid for uid, claim in said.items() if not claim.host}
