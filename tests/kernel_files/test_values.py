"""Which values are written, and how they compare with what the kernel shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel import values
from kernel.allowed import ALLOWED
from kernel.values import LOWERS, MIXED, RAISES, SAME

UNLIMITED_V1 = "9223372036854771712\n"


@pytest.mark.parametrize(
    ("file", "value"),
    [
        *(("cpu.weight", "1"), ("cpu.weight", "10000"), ("cpu.idle", "0"), ("oom_score_adj", "-1000")),
        *(("memory.min", "max"), ("memory.min", "0"), ("memory.low", "4096"), ("pids.max", "max")),
        *(("memory.limit_in_bytes", "-1"), ("memory.limit_in_bytes", "4096"), ("cpu.cfs_quota_us", "-1")),
        *(("cpu.max", "max 100000"), ("cpu.max", "200000 100000"), ("cpu.cfs_quota_us", "1000")),
        *(("io.max", "8:0 rbps=1"), ("io.max", "259:3 rbps=1 wbps=2 riops=3 wiops=max")),
        *(("io.weight", "default 100"), ("io.weight", "100"), ("blkio.throttle.read_bps_device", "8:0 0")),
        *(("cpuset.cpus", "0"), ("cpuset.cpus", "0-3,8,10-11"), ("cpuset.mems", "0-1")),
    ],
)
def test_valid(file: str, value: str) -> None:
    assert values.valid(file, value) == ""


@pytest.mark.parametrize(
    ("file", "value"),
    [
        *(("cpu.weight", "0"), ("cpu.weight", "10001"), ("cpu.weight", "-1"), ("cpu.weight", "max")),
        *(("cpu.weight", ""), ("cpu.weight", " 1"), ("cpu.weight", "1 "), ("cpu.weight", "1\n")),
        *(("cpu.weight", "01"), ("cpu.weight", "+1"), ("cpu.weight", "1.5"), ("cpu.weight", "0x10")),
        *(("cpu.weight", "1_0"), ("cpu.weight", "\u0663"), ("cpu.weight", "-"), ("cpu.weight", "9" * 5000)),
        *(("cpu.idle", "2"), ("oom_score_adj", "1001"), ("oom_score_adj", "-0"), ("memory.min", "-1")),
        *(("memory.min", "MAX"), ("memory.limit_in_bytes", "-2"), ("memory.limit_in_bytes", "max")),
        *(("cpu.max", "max"), ("cpu.max", "100000"), ("cpu.max", "max 0"), ("cpu.max", "1 2 3")),
        *(("cpu.max", "max  100000"), ("cpu.max", "100000 max"), ("cpu.max", "-1 100000")),
        *(("io.max", "8:0"), ("io.max", "8 rbps=1"), ("io.max", "8:0 rbps"), ("io.max", "8:0 rbps=1 rbps=2")),
        *(("io.max", "8:0 speed=1"), ("io.max", "8:0 rbps=-1"), ("io.max", "sda rbps=1"), ("io.max", "")),
        *(("io.max", "8:0 rbps=1\n8:16 rbps=1"), ("io.weight", "8:0 100"), ("io.weight", "default")),
        *(("cpuset.cpus", ""), ("cpuset.cpus", "3-1"), ("cpuset.cpus", "0-"), ("cpuset.cpus", "0,,1")),
        *(("cpuset.cpus", "0-99999999"), ("cpuset.cpus", "a"), ("cpuset.cpus", "-1")),
        *(("cgroup.procs", "1"), ("memory.force_empty", "0"), ("../cpu.weight", "1"), ("", "1")),
    ],
)
def test_not_valid(file: str, value: str) -> None:
    assert values.valid(file, value) != ""


@pytest.mark.parametrize(
    ("file", "have", "want", "direction"),
    [
        ("cpu.weight", "100\n", "100", SAME),
        ("cpu.weight", "100\n", "200", RAISES),
        ("cpu.weight", "100\n", "50", LOWERS),
        ("memory.min", "max\n", "4096", LOWERS),
        ("memory.min", "4096\n", "max", RAISES),
        ("memory.min", "8192\n", "8193", RAISES),
        ("memory.limit_in_bytes", UNLIMITED_V1, "-1", SAME),
        ("memory.limit_in_bytes", UNLIMITED_V1, "4096", LOWERS),
        ("memory.limit_in_bytes", "4096\n", "-1", RAISES),
        ("cpu.cfs_quota_us", "-1\n", "100000", LOWERS),
        ("cpu.cfs_quota_us", "100000\n", "-1", RAISES),
        ("cpu.max", "max 100000\n", "max 100000", SAME),
        ("cpu.max", "max 100000\n", "5000 10000", LOWERS),
        ("cpu.max", "50000 100000\n", "60000 100000", RAISES),
        ("cpu.max", "50000 100000\n", "25000 50000", LOWERS),
        ("io.weight", "default 100\n8:0 300\n", "default 100", SAME),
        ("io.weight", "default 100\n", "200", RAISES),
        ("io.bfq.weight", "100\n", "50", LOWERS),
        ("io.max", "", "8:0 rbps=1048576", LOWERS),
        ("io.max", "8:0 rbps=1 wbps=max riops=max wiops=max\n", "8:0 rbps=1", SAME),
        ("io.max", "8:0 rbps=1 wbps=2 riops=max wiops=max\n", "8:0 rbps=2 wbps=1", MIXED),
        ("io.max", "8:16 rbps=1 wbps=2 riops=max wiops=max\n", "8:0 rbps=max wbps=max", SAME),
        ("blkio.throttle.read_bps_device", "", "8:0 0", SAME),
        ("blkio.throttle.read_bps_device", "8:0 1048576\n", "8:0 0", RAISES),
        ("blkio.throttle.read_bps_device", "8:0 1048576\n8:16 1\n", "8:16 1", SAME),
        ("cpuset.cpus", "0-3\n", "0,1,2,3", SAME),
        ("cpuset.cpus", "\n", "0", RAISES),
        ("cpuset.cpus", "0-3\n", "1", LOWERS),
        ("cpuset.cpus", "0-1\n", "1-2", MIXED),
    ],
)
def test_direction(file: str, have: str, want: str, direction: int) -> None:
    assert values.higher(file, have, want) == direction
    assert values.equal(file, have, want) == (direction == SAME)


@pytest.mark.parametrize("text", ["", "\n", "garbage", "1 2 3", "1\0", "9" * 100, "--1"])
@pytest.mark.parametrize("file", ["cpu.weight", "memory.min", "memory.limit_in_bytes", "cpu.max"])
def test_garbage_in_a_file_is_an_error_and_not_a_number(file: str, text: str) -> None:
    want = "max 100000" if file == "cpu.max" else "8192"
    with pytest.raises(ValueError, match="not"):
        values.higher(file, text, want)


NUMBERS = st.integers(0, 2**40)
LIMITS = NUMBERS.map(str) | st.just("max")


def _wanted(file: str) -> st.SearchStrategy[str]:
    """Values of a file that are valid, of every form its kind has."""
    _, kind, low, high, _ = ALLOWED[file]
    numbers = st.integers(low, high).map(str)
    positive = st.integers(max(low, 0), high).map(str)
    if kind == "cpus":
        cpus = st.sets(st.integers(low, min(high, 70)), min_size=1)
        return cpus.map(lambda chosen: ",".join(map(str, sorted(chosen))))
    if kind == "quota":
        quotas = numbers | st.just("max")
        return st.tuples(quotas, st.integers(1000, 1000000).map(str)).map(" ".join)
    if kind == "device-limits":
        keys = st.lists(st.sampled_from(["rbps", "wbps", "riops", "wiops"]), min_size=1, unique=True)
        pairs = keys.flatmap(
            lambda names: st.tuples(
                *[(numbers | st.just("max")).map(f"{name}={{}}".format) for name in names]
            )
        )
        return pairs.map(lambda chosen: "8:0 " + " ".join(chosen))
    return {
        "integer": numbers,
        "weight": numbers | numbers.map("default {}".format),
        "signed": positive | st.just("-1"),
        "integer-or-max": numbers | st.just("max"),
        "device-limit": numbers.map("8:0 {}".format),
    }[kind]


FILES_AND_VALUES = st.sampled_from(sorted(ALLOWED)).flatmap(
    lambda file: st.tuples(st.just(file), _wanted(file), _wanted(file))
)


def _shown(file: str, value: str) -> str:
    """As the kernel would show it once written: every key of a device's line."""
    if file == "io.max":
        keys = dict.fromkeys(["rbps", "wbps", "riops", "wiops"], "max")
        keys |= dict(pair.split("=") for pair in value.split(" ")[1:])
        return "8:0 " + " ".join(f"{key}={number}" for key, number in keys.items()) + "\n"
    return "" if value == "8:0 0" else value + "\n"


@given(FILES_AND_VALUES)
def test_all_values_of_a_kind_are_valid_and_survive(case: tuple[str, str, str]) -> None:
    file, value, other = case
    assert values.valid(file, value) == values.valid(file, other) == ""
    form = values.parse(file, value)
    assert values.equal(file, _shown(file, value), value)
    assert values.parse(file, values.render(file, form)) == form


@given(FILES_AND_VALUES)
def test_what_was_there_can_be_put_back(case: tuple[str, str, str]) -> None:
    file, have, want = case
    before = values.present(file, _shown(file, have), values.parse(file, want))
    text = values.render(file, before)
    assert values.valid(file, text) == ""
    assert values.present(file, _shown(file, text), values.parse(file, want)) == before


@given(FILES_AND_VALUES)
def test_a_join_is_lower_than_neither(case: tuple[str, str, str]) -> None:
    file, have, want = case
    wanted = values.parse(file, want)
    present = values.present(file, _shown(file, have), wanted)
    joined = values.joined(file, present, wanted)
    assert values.compare(file, present, joined) in (SAME, RAISES)
    assert values.compare(file, wanted, joined) in (SAME, RAISES)
    assert values.joined(file, joined, wanted) == joined


@given(FILES_AND_VALUES)
def test_directions_are_opposite(case: tuple[str, str, str]) -> None:
    file, one, other = case
    if file == "io.max":
        return  # a line that names fewer keys says less
    there = values.higher(file, _shown(file, one), other)
    back = values.higher(file, _shown(file, other), one)
    assert (there, back) in ((SAME, SAME), (RAISES, LOWERS), (LOWERS, RAISES), (MIXED, MIXED))


@given(st.sampled_from(sorted(ALLOWED)), st.text(max_size=40))
def test_any_text_is_refused_or_exact(file: str, text: str) -> None:
    if values.valid(file, text) == "":
        assert text.isascii()
        assert "\n" not in text
        assert values.render(file, values.parse(file, text))
