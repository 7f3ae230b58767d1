"""What a map lacks, and the bytes of its entries."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.network.bpf import difference
from qos.network.wanted import Direction, class_id

ENTRIES = st.dictionaries(st.binary(min_size=1, max_size=2), st.binary(min_size=1, max_size=1), max_size=8)


@given(ENTRIES, ENTRIES)
def test_applied_it_makes_the_one_of_the_other(wanted: dict[bytes, bytes], found: dict[bytes, bytes]) -> None:
    changes = difference.difference(wanted, found)
    after = {key: value for key, value in found.items() if key not in changes.drop} | dict(changes.put)
    assert after == wanted
    assert all(found.get(key) != value for key, value in changes.put.items())
    assert set(changes.drop) == set(found) - set(wanted)
    assert bool(changes) == (wanted != found)


def test_entries_are_in_the_bytes_that_the_programs_read() -> None:
    address = bytes.fromhex("00000000000000000000ffff0a000007")
    assert difference.address_entries({address: class_id(5)}) == {address: struct.pack("=I", 0x10CE0005)}
    assert difference.cgroup_entries({77: class_id(6)}) == {
        struct.pack("=Q", 77): struct.pack("=I", 0x10CE0006)
    }
    limits = {(class_id(5), Direction.EGRESS): 1_250_000, (class_id(5), Direction.INGRESS): 7}
    assert difference.limit_entries(limits) == {
        struct.pack("=II", 0x10CE0005, 0): struct.pack("=QQ", 1_250_000, 250_000_000),
        struct.pack("=II", 0x10CE0005, 1): struct.pack("=QQ", 7, 250_000_000),
    }


def test_an_address_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="0a000007: 4 bytes"):
        difference.address_entries({bytes([10, 0, 0, 7]): class_id(5)})


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="0x10ce0005: a limit of 0"):
        difference.limit_entries({(class_id(5), Direction.EGRESS): 0})


@pytest.mark.parametrize("cgroups", [False, True])
@pytest.mark.parametrize("marks", [False, True])
def test_no_packet_pays_for_what_is_not_in_use(cgroups: bool, marks: bool) -> None:
    found = difference.settings_entry(cgroups=cgroups, marks=marks)
    assert found == {struct.pack("=I", 0): struct.pack("=II", 0xFFFE if cgroups else 0, marks)}
