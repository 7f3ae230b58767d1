"""The object files of BPF, read without a kernel."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.network.bpf import elf, objects
from agent.network.bpf.elf import ObjectError

NAMES = ("classify", "count", "mark", "police", "receive")
PROGRAMS = {
    "classify": {"classify"},
    "mark": {"mark"},
    "count": {"count_tx", "count_rx"},
    "police": {"police_tx", "police_rx"},
    "receive": {"classify_rx"},
}
HASH, ARRAY, PERCPU_HASH, NO_PREALLOC = 1, 2, 5, 1


def content(name: str) -> bytes:
    return (objects.FOLDER / objects.OBJECTS / f"{name}.o").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_what_we_ship_is_read_whole(name: str) -> None:
    found = objects.load(name)
    assert {program.name for program in found.programs} == PROGRAMS[name]
    assert found.license == "Dual BSD/GPL"
    for program in found.programs:
        assert len(program.code) % elf.INSTRUCTION == 0
        assert set(program.maps.values()) <= set(found.maps)


def test_maps_have_the_measures_of_the_source() -> None:
    maps = {name: shape for one in NAMES for name, shape in objects.load(one).maps.items()}
    assert {name: shape.measures for name, shape in maps.items()} == {
        "by_address": (HASH, 16, 4, 4096, 0),
        "by_cgroup": (HASH, 8, 4, 1024, 0),
        "by_interface": (HASH, 4, 4, 4096, 0),
        "settings": (ARRAY, 4, 8, 1, 0),
        "traffic": (PERCPU_HASH, 8, 32, 1024, NO_PREALLOC),
        "limits": (HASH, 8, 16, 2048, 0),
        "buckets": (HASH, 8, 56, 2048, 0),
    }


def test_linking_puts_the_descriptors_where_maps_are_loaded_and_nowhere_else() -> None:
    (program,) = objects.load("classify").programs
    linked = program.linked({"by_address": 7, "by_cgroup": 8, "settings": 9})
    for offset, name in program.maps.items():
        registers, immediate = linked[offset + 1], struct.unpack_from("<i", linked, offset + 4)[0]
        assert registers >> 4 == 1  # BPF_PSEUDO_MAP_FD
        assert immediate == {"by_address": 7, "by_cgroup": 8, "settings": 9}[name]
    touched = {at for offset in program.maps for at in range(offset + 1, offset + 8)}
    same = [at for at in range(len(linked)) if at not in touched]
    assert all(linked[at] == program.code[at] for at in same)
    assert program.maps


@given(st.integers(0, len(content("classify")) - 1))
def test_what_is_cut_short_is_refused(length: int) -> None:
    with pytest.raises(ObjectError):
        elf.read(content("classify")[:length])


@given(st.binary(max_size=400))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(ObjectError):
        elf.read(garbage)


@given(st.integers(0, len(content("count")) - 1), st.integers(1, 255))
def test_a_damaged_byte_is_refused_or_changes_nothing_of_the_reader(at: int, flipped: int) -> None:
    damaged = bytearray(content("count"))
    damaged[at] ^= flipped
    try:
        elf.read(bytes(damaged))
    except ObjectError as error:
        assert str(error)  # noqa: PT017  (that it raises nothing else is what is tested)


def test_a_call_of_another_function_is_refused_by_its_name() -> None:
    """The symbol of a map becomes one in the section of the code, as a function's would be."""
    data = bytearray(content("classify"))
    symbol = _symbol_of(bytes(data), "by_address")
    struct.pack_into("<H", data, symbol + 6, 2)
    with pytest.raises(ObjectError, match=r"by_address at byte .* is no map"):
        elf.read(bytes(data))


def _symbol_of(data: bytes, name: str) -> int:
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    for index in range(count):
        _, kind, _, _, offset, length, link, *_ = struct.unpack_from(
            "<IIQQQQIIQQ", data, table + index * size
        )
        if kind != 2:
            continue
        (strings,) = struct.unpack_from("<Q", data, table + link * size + 24)
        for at in range(offset, offset + length, 24):
            begin = strings + struct.unpack_from("<I", data, at)[0]
            if data[begin : begin + len(name) + 1] == name.encode() + b"\0":
                return at
    raise AssertionError(name)
