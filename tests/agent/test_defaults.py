"""What the hook gives pods that have no file of their own."""

from __future__ import annotations

from pathlib import Path

from agent import defaults
from kernel import cache
from qos.plan.controller import all_files
from qos.plan.node import V2
from tests.adapters.fake_machine import Fake

FILES = frozenset(name for name, file in all_files().items() if V2 in file.versions)


def test_nobody_is_made_idle_or_the_first_to_be_killed_unasked(tmp_path: Path) -> None:
    """It may be a BestEffort pod that is critical for the node."""
    size = Fake(tmp_path, v1=False, unified=True).machine().size(FILES)
    [(name, entries)] = defaults.best_effort(size).items()
    assert name == cache.ANY
    files = {entry[2] for entry in entries}
    assert "pids.max" in files
    assert not files & {"cpu.idle", "oom_score_adj"}
