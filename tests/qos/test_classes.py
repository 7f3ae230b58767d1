"""The table of classes, and what overrides make of it."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.classes import CLASSES, Contradiction, contradiction, promises_of
from qos.promises import CpuQuota, CpuSet, IoLimit, Overrides, Promises

PERCENT = st.integers(0, 100)
OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        "cpu_idle": st.booleans(),
        "cpu_weight": st.none() | st.integers(1, 10000),
        "cpu_quota": st.sampled_from(CpuQuota),
        "cpu_burst_percent": PERCENT,
        "cpus": st.sampled_from(CpuSet),
        "memory_min_percent": PERCENT,
        "memory_high_percent": PERCENT,
        "memory_oom_group": st.booleans(),
        "oom_score_adj": st.none() | st.integers(-1000, 1000),
        "io_limit": st.none() | st.builds(IoLimit, st.integers(0, 2**40)),
    },
)


def test_the_table_has_koordinators_classes() -> None:
    assert list(CLASSES) == ["SYSTEM", "LSE", "LSR", "LS", "BE"]


@pytest.mark.parametrize("name", CLASSES)
def test_no_class_contradicts_itself(name: str) -> None:
    assert contradiction(name, promises_of(name)) is None


@pytest.mark.parametrize("name", [name for name, row in CLASSES.items() if row.has_floor])
def test_a_class_with_a_floor_protects_all_of_it(name: str) -> None:
    promises = promises_of(name)
    assert promises.memory_low_percent == 100
    assert promises.memory_min_percent == 0, "what others have beside a floor must stay reclaimable"
    assert not promises.cpu_idle


@pytest.mark.parametrize("name", CLASSES)
def test_a_request_is_no_promise(name: str) -> None:
    """Else every pod on a node would be locked into memory; Koordinator's defaults are 0 too."""
    promises = promises_of(name)
    assert promises.memory_request_min_percent == promises.memory_request_low_percent == 0


@pytest.mark.parametrize("name", CLASSES)
def test_a_label_gives_nothing_that_was_not_paid_for(name: str) -> None:
    promises = promises_of(name)
    assert promises.oom_score_adj in (None, 1000)
    assert promises.io_weight is None or promises.io_weight < 100


@pytest.mark.parametrize("name", CLASSES)
def test_only_pinned_classes_have_no_quota(name: str) -> None:
    promises = promises_of(name)
    pinned = promises.cpus in (CpuSet.RESERVED, CpuSet.EXCLUSIVE)
    assert (promises.cpu_quota is CpuQuota.NONE) == pinned


@given(st.sampled_from(list(CLASSES)), OVERRIDES)
def test_what_is_overridden_is_promised_and_the_rest_is_the_class(name: str, overrides: Overrides) -> None:
    promises = promises_of(name, overrides)
    for field in (field.name for field in fields(Promises)):
        wanted = overrides.get(field, getattr(CLASSES[name].promises, field))
        assert getattr(promises, field) == wanted


@given(st.sampled_from(list(CLASSES)), OVERRIDES)
def test_a_contradiction_names_a_promise_that_takes_part_in_it(name: str, overrides: Overrides) -> None:
    promises = promises_of(name, overrides)
    found = contradiction(name, promises)
    if found is None:
        return
    assert isinstance(found, Contradiction)
    kept = replace(promises, **{found.field: getattr(Promises(), found.field)})
    assert contradiction(name, kept) != found, "without that promise it is gone"


def test_an_unknown_class_is_an_error() -> None:
    with pytest.raises(KeyError, match="FAST"):
        promises_of("FAST")
