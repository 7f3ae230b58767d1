"""Seeds: the same every time, and clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.generator import history
from simulation.history import History, World, load
from simulation.play import play

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_breaks_nothing(seed: int) -> None:
    assert not play(history(seed)).broken


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_history_that_once_failed_breaks_nothing(path: Path) -> None:
    outcome = play(load(path), story=True)
    assert not outcome.broken, "\n".join([*outcome.story, *map(str, outcome.broken)])


def test_a_seed_decides_everything() -> None:
    first, second = (play(history(7), story=True) for _ in range(2))
    assert first == second
    assert len(first.story) > 100


def test_a_saved_history_is_the_same_history(tmp_path: Path) -> None:
    made = history(3)
    made.save(tmp_path / "h.json")
    assert load(tmp_path / "h.json") == made


def test_a_slot_is_held_filled_and_held_again() -> None:
    steps = (
        (0.0, "node", ("n0", 2000, 2048, 20)),
        (0.0, "policy", ("a", {"floor": {"resources": {"cpu": "1"}}, "slots": {"count": 1}})),
        (1.0, "flood", ("f", 3, 1000, 64, 0)),
        (1.0, "app", ("a", 1, 1000, 64, 0)),
        (2.0, "crash", ("a", 0, 0.0)),
        (0.01, "flood", ("g", 3, 1000, 64, 0)),
    )
    story = play(History(World(1), steps), story=True).story
    bound = [line.split()[1] for line in story if "is bound to" in line]
    assert bound == ["f-0", "a-1", "a-2"]
