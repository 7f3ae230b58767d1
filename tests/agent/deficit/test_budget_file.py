"""Budgets outlive the agent, and what may happen to their file and to clocks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.deficit.budget import Budgets
from agent.deficit.budget_file import Clocks, load, save

HOUR = 3600.0
NEVER = Clocks(monotonic=50.0, boot="one", wall=1_000_000.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budgets"


def spent() -> Budgets:
    budgets = Budgets()
    budgets.add("shop/web", 1000.0, 100.0, 0.05)
    return budgets


def remaining(path: Path, now: Clocks, window: str = "1h") -> float | None:
    budgets, offset = load(path, now)
    windows = budgets.spent(offset + now.monotonic).get("shop/web")
    return None if windows is None else round(windows[window].remaining, 3)


def later(seconds: float, boot: str = "one", wall: float | None = None) -> Clocks:
    """So much later by the monotonic clock, which another boot begins anew."""
    monotonic = NEVER.monotonic + seconds if boot == NEVER.boot else 5.0
    return Clocks(monotonic, boot, NEVER.wall + (seconds if wall is None else wall))


@pytest.fixture
def saved(path: Path) -> Path:
    save(path, spent(), 1000.0 - NEVER.monotonic, NEVER)
    return path


def test_what_was_spent_is_known_after_a_restart(saved: Path) -> None:
    assert remaining(saved, later(10)) == 0.5
    assert remaining(saved, later(2 * HOUR)) == 1.0
    assert remaining(saved, later(2 * HOUR), "24h") == 0.5
    assert (saved.stat().st_mode & 0o777, list(saved.parent.iterdir())) == (0o600, [saved])


def test_after_a_boot_the_wall_clock_says_how_old_it_is(saved: Path) -> None:
    assert remaining(saved, later(10, boot="two")) == 0.5
    assert remaining(saved, later(2 * HOUR, boot="two")) == 1.0


@pytest.mark.parametrize("wall", [-1e6, 0.0, 1e6])
def test_a_wall_clock_that_was_set_does_not_matter_within_a_boot(saved: Path, wall: float) -> None:
    assert remaining(saved, later(10, wall=wall)) == 0.5


def test_a_wall_clock_before_the_file_is_taken_as_no_time(saved: Path) -> None:
    assert remaining(saved, later(0, boot="two", wall=-1e6)) == 0.5


def test_counting_goes_on_after_a_restart(saved: Path) -> None:
    now = later(60)
    budgets, offset = load(saved, now)
    budgets.add("shop/web", offset + now.monotonic, 100.0, 0.05)
    save(saved, budgets, offset, now)
    again, offset = load(saved, later(120))
    assert again.spent(offset + later(120).monotonic)["shop/web"]["1h"] == (200.0, 0.1)


def test_the_first_start(path: Path) -> None:
    budgets, offset = load(path, NEVER)
    assert (budgets.policies, offset + NEVER.monotonic) == ({}, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00\xff",
        b"{}",
        b'{"version": 1, "clocks": {"monotonic": 1, "boot": "b", "wall": 1}, "time": 1, "policies": []}',
    ],
)
def test_a_damaged_file_is_put_aside(path: Path, text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(text)
    assert load(path, NEVER)[0].policies == {}
    assert "budgets unread" in caplog.text
    assert not path.exists()
    assert path.with_name("budgets.unread").read_bytes() == text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"version":1', '"version":2'),
        ("[16,100.0,0.05]", "[16,100.0,-1]"),
        ("[16,100.0,0.05]", "[16,1.0,2.0]"),
        ("[16,100.0,0.05]", "[16,100.0,0.05],[15,1.0,0.0]"),
        ("[16,100.0,0.05]", '[16,"many",0.05]'),
    ],
)
def test_a_file_that_cannot_be(saved: Path, old: str, new: str) -> None:
    text = saved.read_text()
    assert old in text
    saved.write_text(text.replace(old, new, 1))
    assert remaining(saved, later(1)) is None
    assert saved.with_name("budgets.unread").exists()


def test_a_full_disk_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save(saved, Budgets(), 0.0, NEVER)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]
