"""What goes into a container's spec, and what is left for kernel/."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.nri.adjustment import SAID, adjustment_of
from agent.nri.records import Adjustment, LinuxResources, harmless, still_missing
from kernel.allowed import ALLOWED
from qos.plan.controller import all_files
from qos.plan.node import V2
from qos.plan.settings import Entry

ENTRIES = st.lists(
    st.tuples(
        st.sampled_from((-1, 0, 0, 0, 1)),
        st.sampled_from(("set", "raise")),
        st.sampled_from(sorted(ALLOWED)),
        st.sampled_from(("-1", "1", "77", "max", "max 100000", "0-1")),
    ).filter(lambda entry: entry[3].isdecimal() or entry[2] not in ("cpu.shares",)),
    max_size=8,
)


@pytest.mark.parametrize(
    ("entry", "unified", "adjustment"),
    [
        ((0, "set", "cpu.shares", "777"), False, Adjustment(cpu_shares=777)),
        ((0, "set", "cpu.cfs_quota_us", "-1"), False, Adjustment(cpu_quota=-1)),
        ((0, "set", "cpuset.cpus", "0-1"), False, Adjustment(cpus="0-1")),
        ((0, "set", "cpuset.mems", "0"), True, Adjustment(mems="0")),
        ((0, "set", "pids.max", "99"), True, Adjustment(pids_limit=99)),
        ((0, "set", "cpu.weight", "77"), True, Adjustment(unified={"cpu.weight": "77"})),
        ((0, "set", "cpu.max", "max 100000"), True, Adjustment(unified={"cpu.max": "max 100000"})),
        ((0, "set", "memory.low", "4096"), True, Adjustment(unified={"memory.low": "4096"})),
    ],
)
def test_said(entry: Entry, unified: bool, adjustment: Adjustment) -> None:
    assert adjustment_of([entry], unified) == (adjustment, [])


@pytest.mark.parametrize(
    "entry",
    [
        (1, "set", "cpu.shares", "777"),  # the pod's, which has no spec
        (0, "raise", "cpu.shares", "777"),  # more may be there
        (0, "set", "cpu.cfs_quota_us", "20000"),  # above the parent's it would fail the creation
        (0, "set", "memory.soft_limit_in_bytes", "4096"),  # containerd drops it
        (0, "set", "cpu.idle", "1"),
        (0, "set", "cpu.weight", "77"),  # runc refuses unified on v1
        (0, "set", "pids.max", "max"),
        (0, "set", "pids.max", "0"),  # would be without limit
        (-1, "set", "oom_score_adj", "500"),
    ],
)
def test_left_to_be_written(entry: Entry) -> None:
    assert adjustment_of([entry], unified=False) == (Adjustment(), [entry])


def test_every_field_that_a_file_declares_can_be_said() -> None:
    declared = {one.nri for one in all_files().values()} - {"", "unified"}
    assert declared == set(SAID)
    assert declared <= {field.name for field in fields(Adjustment)}
    assert all(one.versions == (V2,) for one in all_files().values() if one.nri == "unified")


def test_several_join() -> None:
    entries = [
        (0, "set", "cpu.weight", "77"),
        (0, "set", "cpu.max.burst", "1000"),
        (0, "set", "memory.min", "4096"),
        (1, "set", "memory.min", "4096"),
    ]
    adjustment, rest = adjustment_of(entries, unified=True)
    assert adjustment == Adjustment(unified={"cpu.weight": "77", "memory.min": "4096"})
    assert rest == [entries[1], entries[3]]


@given(ENTRIES, st.booleans())
def test_nothing_is_lost_and_nothing_is_written_twice(entries: list[Entry], unified: bool) -> None:
    adjustment, rest = adjustment_of(entries, unified)
    said = [entry for entry in entries if entry not in rest]
    assert all((level, mode) == (0, "set") for level, mode, _, _ in said)
    assert adjustment_of(said, unified) == (adjustment, [])
    assert bool(adjustment) == bool(said)
    if not unified:
        assert not adjustment.unified


def test_an_update_asks_only_for_what_the_spec_does_not_say() -> None:
    has = LinuxResources(cpu_shares=204, cpus="0-1", unified={"cpu.weight": "77", "memory.low": "1"})
    wanted = Adjustment(
        cpu_shares=204, cpu_quota=-1, cpus="0", pids_limit=9, unified={"cpu.weight": "77", "memory.low": "2"}
    )
    assert still_missing(has, wanted) == Adjustment(cpu_quota=-1, cpus="0", unified={"memory.low": "2"})
    assert not still_missing(has, Adjustment(cpu_shares=204, oom_score_adj=5))


def test_at_creation_no_list_of_cpus() -> None:
    assert harmless(Adjustment(cpu_shares=9, cpus="0", mems="0")) == Adjustment(cpu_shares=9)
