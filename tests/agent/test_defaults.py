"""What the hook gives pods that have no file of their own."""

from __future__ import annotations

from pathlib import Path

from agent import defaults
from kernel import cache
from qos.plan.controller import all_files
from qos.plan.node import V2
from qos.pods.decision import NOTHING_CHOSEN, Choices
from tests.adapters.fake_machine import Fake

FILES = frozenset(name for name, file in all_files().items() if V2 in file.versions)


def test_nobody_is_made_idle_or_the_first_to_be_killed_unasked(tmp_path: Path) -> None:
    """It may be a BestEffort pod that is critical for the node."""
    size = Fake(tmp_path, v1=False, unified=True).machine().size(FILES)
    [(name, entries)] = defaults.best_effort(size, Choices(class_defaults=True)).items()
    assert name == cache.ANY
    files = {entry[2] for entry in entries}
    assert "pids.max" in files
    assert not files & {"cpu.idle", "oom_score_adj"}


def test_nothing_is_given_to_whom_nobody_asks_for_anything(tmp_path: Path) -> None:
    size = Fake(tmp_path, v1=False, unified=True).machine().size(FILES)
    assert defaults.best_effort(size, NOTHING_CHOSEN) == {cache.ANY: []}
