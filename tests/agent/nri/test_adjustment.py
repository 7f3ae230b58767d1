"""What goes into a container's spec, and what is left for kernel/."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.nri.adjustment import FIELDS, adjustment_of, said, told_of, unsaid
from agent.nri.records import Adjustment, LinuxResources, harmless, still_missing
from kernel.allowed import ALLOWED
from qos.plan.controller import all_files
from qos.plan.node import V2
from qos.plan.settings import Entry


def _is_of(file: str, value: str) -> bool:
    """Whether a plan may have this value."""
    if file == "cpu.max":
        return value == "max 100000"
    return value.isdecimal() or file not in ("cpu.shares", "cpu.weight")


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from((-1, 0, 0, 0, 1)),
        st.sampled_from(("set", "raise")),
        st.sampled_from(sorted(ALLOWED)),
        st.sampled_from(("-1", "1", "77", "max 100000", "0-1")),
    ).filter(lambda entry: _is_of(entry[2], entry[3])),
    max_size=8,
)


def by_shares(weight: int) -> int:
    """A runtime's conversion, played."""
    return weight * 10


def adjustment(entries: list[Entry], unified: bool) -> Adjustment:
    return adjustment_of(told_of(entries, unified, by_shares))


@pytest.mark.parametrize(
    ("entry", "unified", "wanted"),
    [
        ((0, "set", "cpu.shares", "777"), False, Adjustment(cpu_shares=777)),
        ((0, "set", "cpu.cfs_quota_us", "-1"), False, Adjustment(cpu_quota=-1)),
        ((0, "set", "cpuset.cpus", "0-1"), False, Adjustment(cpus="0-1")),
        ((0, "set", "cpuset.mems", "0"), True, Adjustment(mems="0")),
        ((0, "set", "cpu.weight", "77"), True, Adjustment(cpu_shares=770)),
        ((0, "set", "cpu.max", "max 100000"), True, Adjustment(cpu_quota=-1, cpu_period=100_000)),
        ((0, "set", "cpu.max", "5000 10000"), True, Adjustment(cpu_quota=5000, cpu_period=10_000)),
        ((0, "set", "memory.low", "4096"), True, Adjustment(unified={"memory.low": "4096"})),
    ],
)
def test_said(entry: Entry, unified: bool, wanted: Adjustment) -> None:
    assert adjustment([entry], unified) == wanted
    _, _, file, value = entry
    assert said(file, wanted) == ("770" if file == "cpu.weight" else value), "and is read as it was said"


@pytest.mark.parametrize(
    "entry",
    [
        (1, "set", "cpu.shares", "777"),  # the pod's, which has no spec
        (0, "raise", "cpu.shares", "777"),  # more may be there
        (0, "set", "cpu.cfs_quota_us", "20000"),  # above the parent's it would fail the creation
        (0, "set", "memory.soft_limit_in_bytes", "4096"),  # containerd drops it
        (0, "set", "cpu.idle", "1"),
        (0, "set", "cpu.weight", "77"),  # v1 has none
        (0, "set", "memory.low", "4096"),  # runc refuses unified on v1
        (0, "set", "pids.max", "99"),  # no update carries it, so it could not be taken back
        (0, "set", "cpuset.cpus", ""),
        (-1, "set", "oom_score_adj", "500"),
    ],
)
def test_left_to_be_written(entry: Entry) -> None:
    assert not adjustment([entry], unified=False)


def test_every_field_that_a_file_declares_can_be_said() -> None:
    declared = {one.nri for one in all_files().values()} - {""}
    assert declared == set(FIELDS)
    assert declared <= {field.name for field in fields(Adjustment)}
    assert all(one.versions == (V2,) for one in all_files().values() if one.nri == "unified")


def test_several_join() -> None:
    entries = [
        (0, "set", "cpu.weight", "77"),
        (0, "set", "memory.low", "1"),
        (0, "set", "memory.min", "4096"),
        (1, "set", "memory.min", "5000"),
    ]
    wanted = Adjustment(cpu_shares=770, unified={"memory.low": "1", "memory.min": "4096"})
    assert adjustment(entries, unified=True) == wanted


@given(ENTRIES, st.booleans())
def test_what_is_told_can_be_heard(entries: list[Entry], unified: bool) -> None:
    told = told_of(entries, unified, by_shares)
    assert {file: said(file, adjustment_of(told)) for file in told} == told
    assert bool(adjustment_of(told)) == bool(told)
    if not unified:
        assert not adjustment_of(told).unified


@pytest.mark.parametrize(
    ("file", "same"),
    [
        ("cpu.weight", "1024"),
        ("cpu.max", "max 100000"),
        ("cpu.cfs_quota_us", "-1"),
        ("memory.high", "max"),
        ("memory.min", "0"),
        ("memory.oom.group", "0"),
        ("cpuset.cpus", None),
    ],
)
def test_what_means_the_same_as_nothing(file: str, same: str | None) -> None:
    assert said(file, LinuxResources()) is None
    assert unsaid(file) == same


def test_an_update_asks_only_for_what_the_spec_does_not_say() -> None:
    has = LinuxResources(cpu_shares=204, cpus="0-1", unified={"memory.min": "77", "memory.low": "1"})
    wanted = Adjustment(
        cpu_shares=204, cpu_quota=-1, cpus="0", unified={"memory.min": "77", "memory.low": "2"}
    )
    assert still_missing(has, wanted) == Adjustment(cpu_quota=-1, cpus="0", unified={"memory.low": "2"})
    assert not still_missing(has, Adjustment(cpu_shares=204))


def test_at_creation_no_list_of_cpus() -> None:
    assert harmless(Adjustment(cpu_shares=9, cpus="0", mems="0")) == Adjustment(cpu_shares=9)
