"""The machine's meters, and the levels of its pressure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.monitor import node
from agent.monitor.node import HIGH, LEVELS, NONE, SOME, NodeMeters

ORDER = (NONE, SOME, HIGH)
RESOURCES = st.sampled_from(sorted(LEVELS))
SHARES = st.floats(0, 1)


def test_levels() -> None:
    some, high = LEVELS["memory"]
    shares = [0.0, some, some * 0.6, high, high * 0.6, high * 0.4, some * 0.4]
    levels = []
    before = NONE
    for share in shares:
        before = node.level("memory", share, before)
        levels.append(before)
    assert levels == [NONE, SOME, SOME, HIGH, HIGH, SOME, NONE]


@given(RESOURCES, SHARES, SHARES, st.sampled_from(ORDER))
def test_more_pressure_is_never_a_lower_level(resource: str, one: float, other: float, before: str) -> None:
    low, high = sorted((one, other))
    assert ORDER.index(node.level(resource, low, before)) <= ORDER.index(node.level(resource, high, before))


@given(RESOURCES, SHARES, st.sampled_from(ORDER))
def test_a_level_is_kept_while_nothing_changes(resource: str, share: float, before: str) -> None:
    level = node.level(resource, share, before)
    assert node.level(resource, share, level) == level


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "stat").write_text("cpu  100 0 0 300 0 0 0 0 0 0\n")
    (tmp_path / "meminfo").write_text("MemTotal: 8 kB\nMemAvailable: 4 kB\n")
    (tmp_path / "vmstat").write_text("pgpgin 1\npgpgout 2\n")
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "io").write_text(
        "some avg10=50.00 avg60=0 avg300=0 total=7000000\nfull avg10=0 avg60=0 avg300=0 total=0\n"
    )
    return tmp_path


@pytest.fixture
def meters(proc: Path) -> Iterator[NodeMeters]:
    made = NodeMeters(str(proc))
    yield made
    made.close()


def test_what_changes_is_seen_and_disks_each_ten_seconds(meters: NodeMeters, proc: Path) -> None:
    first = meters.sample(100.0)
    assert (first.busy, first.idle, first.memory_available, first.read, first.written) == (
        1,
        3,
        4096,
        1024,
        2048,
    )
    assert {resource: one.some for resource, one in first.pressure.items()} == {"io": 0.5}
    (proc / "stat").write_text("cpu  200 0 0 300 0 0 0 0 0 0\n")
    (proc / "vmstat").write_text("pgpgin 9\npgpgout 2\n")
    second = meters.sample(109.9)
    assert (second.busy, second.read) == (2, 1024)
    assert meters.sample(110.0).read == 9 * 1024


def test_this_machine() -> None:
    meters = NodeMeters("/proc")
    try:
        seen = meters.sample(0.0)
    finally:
        meters.close()
    assert seen.busy > 0
    assert 0 < seen.memory_available < seen.memory_total
    assert set(seen.pressure) <= set(node.RESOURCES)
