"""What is generated from classes and controllers, and that it is as generated."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kernel.allowed import ALLOWED
from kernel.values import valid
from qos.classes import CLASSES
from qos.plan.controller import OF_PROCESS, UNIFIED, File, all_files
from qos.plan.kernel_table import allowed, table
from qos.plan.node import V1

ROOT = Path(__file__).parents[3]


def test_the_generated_files_are_as_generated():
    assert (ROOT / "kernel" / "allowed.py").read_text() == allowed()
    assert (ROOT / "docs" / "kernel-table.md").read_text() == table()


def test_all_files_are_allowed_and_no_other():
    assert set(ALLOWED) == set(all_files())
    for name, (hierarchy, kind, low, high, order) in ALLOWED.items():
        file = all_files()[name]
        assert (hierarchy, kind, low, high, order) == (
            file.hierarchy,
            file.kind,
            file.low,
            file.high,
            file.order,
        )
        assert low <= high
        assert (hierarchy == UNIFIED) == (V1 not in file.versions)


def test_the_table_has_a_row_for_each_class_and_file():
    text = table()
    for name in CLASSES:
        assert f"| {name} | `" in text
    for name in all_files():
        assert f"| `{name}` | " in text
    assert "| LS | `memory_low_percent` | 100 | `memory.low` | unsupported |" in text
    assert "| LS | `memory_min_percent`" not in text


@pytest.mark.parametrize("file", all_files().values(), ids=lambda file: file.name)
def test_every_file_declares_all_there_is_to_say_of_it(file: File) -> None:
    """Nothing is left for another table: what is missing here is a TypeError in the controller."""
    trial = f"8:0 {file.trial}" if file.per_device else file.trial
    assert bool(file.trial) == (file.hierarchy != OF_PROCESS)
    assert not file.trial or not valid(file.name, trial)
    assert not file.fresh or not valid(file.name, file.fresh)
    assert set(file.hints) <= set(errno.errorcode.values())
    for earlier in file.after:
        assert set(file.versions) <= set(all_files()[earlier].versions)
