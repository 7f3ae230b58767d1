"""Text of kernel files as levels and rivals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qos.plan import observed
from qos.plan.node import Level, Rival

GI = 2**30
EXPECTED = Level("/a", 157, (Rival(100),), assumed=True)
V2 = {
    "cpu.weight": "8\n",
    "cpu.idle": "0\n",
    "cpu.max": "20000 100000\n",
    "memory.min": "4096\n",
    "memory.low": "max\n",
    "memory.max": "67108864\n",
}
V1 = {
    "cpu.shares": "204\n",
    "cpu.idle": "1\n",
    "cpu.cfs_quota_us": "20000\n",
    "cpu.cfs_period_us": "50000\n",
    "memory.limit_in_bytes": "67108864\n",
}


def test_cgroup_v2() -> None:
    level = observed.level(EXPECTED, V2, [], GI)
    assert level == Level("/a", 8, cpu_quota=200, memory_min=4096, memory_low=67108864, memory_max=67108864)


def test_cgroup_v1() -> None:
    level = observed.level(EXPECTED, V1, [], GI)
    assert level == Level("/a", 204, idle=True, cpu_quota=400, cpu_period=50_000, memory_max=67108864)


def test_what_says_unlimited() -> None:
    free = observed.level(EXPECTED, V2 | {"cpu.max": "max 100000\n", "memory.max": "max\n"}, [], GI)
    assert (free.cpu_quota, free.memory_max) == (None, None)
    old = V1 | {"cpu.cfs_quota_us": "-1\n", "memory.limit_in_bytes": "9223372036854771712\n"}
    free = observed.level(EXPECTED, old, [], GI)
    assert (free.cpu_quota, free.memory_max) == (None, None)


def test_a_quota_without_its_period_is_of_100_ms() -> None:
    assert observed.level(EXPECTED, V2 | {"cpu.max": "5000"}, [], GI).cpu_quota == 50
    assert observed.level(EXPECTED, {"cpu.shares": "2", "cpu.cfs_quota_us": "5000"}, [], GI).cpu_quota == 50


def test_a_cgroup_that_is_not_there_yet_keeps_what_is_expected_but_for_its_siblings() -> None:
    level = observed.level(EXPECTED, None, [{"cpu.weight": "7"}], GI)
    assert level == Level("/a", 157, (Rival(7),), assumed=True)


def test_where_not_even_the_parent_exists_all_is_as_expected() -> None:
    assert observed.level(EXPECTED, None, None, GI) == EXPECTED


def test_the_period_of_a_quota_is_what_kubelet_wrote_so_a_burst_can_be_no_larger() -> None:
    short = V2 | {"cpu.max": "20000 10000\n"}
    assert (level := observed.level(EXPECTED, short, [], GI)) == Level(
        "/a", 8, cpu_quota=2000, cpu_period=10_000, memory_min=4096, memory_low=67108864, memory_max=67108864
    )
    assert level.cpu_quota * level.cpu_period // 1000 == 20_000  # type: ignore[operator]
    free = observed.level(EXPECTED, V2 | {"cpu.max": "max 10000\n"}, [], GI)
    assert (free.cpu_quota, free.cpu_period) == (None, 10_000)
    free = observed.level(EXPECTED, V1 | {"cpu.cfs_quota_us": "-1\n"}, [], GI)
    assert (free.cpu_quota, free.cpu_period) == (None, 50_000)


def test_what_has_no_quota_file_has_the_period_that_is_expected() -> None:
    expected = replace(EXPECTED, cpu_period=20_000)
    assert observed.level(expected, {"cpu.weight": "1"}, [], GI).cpu_period == 20_000


def test_siblings() -> None:
    assert observed.rival({"cpu.weight": "8", "memory.min": "4096", "memory.low": "7"}, GI) == Rival(
        8, memory_min=4096, memory_low=7
    )
    assert observed.rival({"cpu.weight": "0", "cpu.idle": "1"}, GI) == Rival(0, idle=True)
    assert observed.rival({}, GI) == Rival(100)


def test_a_sibling_that_claims_all_claims_its_limit_or_all_memory() -> None:
    """systemd writes max for MemoryMin=infinity and MemoryLow=infinity."""
    both = {"cpu.weight": "1", "memory.min": "max\n", "memory.low": "max\n"}
    assert observed.rival(both, GI) == Rival(1, memory_min=GI, memory_low=GI)
    assert observed.rival(both | {"memory.max": "max"}, GI) == Rival(1, memory_min=GI, memory_low=GI)
    assert observed.rival(both | {"memory.max": "4096"}, GI) == Rival(1, memory_min=4096, memory_low=4096)
    assert observed.rival(both | {"memory.max": str(2 * GI)}, GI).memory_low == GI
    assert observed.level(EXPECTED, None, [both], GI).rivals == (Rival(1, memory_min=GI, memory_low=GI),)


def test_what_is_no_number() -> None:
    with pytest.raises(ValueError, match=r"cpu\.weight: 'many' is not a number"):
        observed.rival({"cpu.weight": "many"}, GI)
