"""Rescheduling ends: histories by seed, and that the judge notices planted mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rescheduling import passing, rescheduler
from rescheduling.budgets import Budgets
from rescheduling.classifying import Bounds
from rescheduling.rescheduler import Rescheduler
from simulation.load.play import play, summary

MOST = 150
"""Seeds in which each planted mistake is found; without one, all of those pass."""


@pytest.mark.parametrize("first", range(0, 16, 8))
def test_no_pod_moves_twice_and_it_ends(first: int) -> None:
    results = [play(seed) for seed in range(first, first + 8)]
    assert [one for one in results if one.broken] == []
    assert sum(one.before + one.moves for one in results) > 0


@pytest.mark.full
def test_it_ends_in_many_histories() -> None:
    results = [play(seed) for seed in range(1000, 1600)]
    assert [one for one in results if one.broken] == []
    assert "0 of them broke a rule" in summary(results)


def _hot_targets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Bounds, "has_room", lambda self, gauge, more, margin: True)


def _no_memory_of_moves(patch: pytest.MonkeyPatch) -> None:
    _hot_targets(patch)
    patch.setattr(passing, "unrested", lambda *_: "")


def _no_budget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Budgets, "full", lambda self, node: "")


def _old_reports(patch: pytest.MonkeyPatch) -> None:
    init = Rescheduler.__init__
    patch.setattr(
        rescheduler.Rescheduler,
        "__init__",
        lambda self, settings: init(self, replace(settings, expiry=1e9, fresh=0.0)),
    )


def _floors_moved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(passing, "obstacle", lambda *_: "")


@pytest.mark.full
@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (_hot_targets, "became hot|nothing changed|twice"),
        (_no_memory_of_moves, "nothing changed|twice|became hot"),
        (_no_budget, "under way"),
        (_old_reports, "silent"),
        (_floors_moved, "must never move"),
    ],
)
def test_the_judge_notices(
    plant: Callable[[pytest.MonkeyPatch], None], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    broken = next((one.broken for one in map(play, range(MOST)) if one.broken), "")
    assert any(words in broken for words in found.split("|")), broken
