"""When a repair is a fight, and when it is over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.enforcement.fights import FIRST_PAUSE, LONGEST_PAUSE, MOST_REPAIRS, WINDOW, Fights, Verdict
from agent.enforcement.places import Place

FILE = Place("/kubepods/x", "cpu.shares")


def fighting(now: float = 0.0) -> Fights:
    """The number of changes after which one more is a fight."""
    fights = Fights()
    for _ in range(MOST_REPAIRS):
        assert fights.changed(FILE, "other", now) is Verdict.REPAIR
    return fights


def test_some_repairs_are_drift_and_one_more_is_a_fight() -> None:
    fights = fighting()
    assert fights.going_on() == ()
    assert fights.changed(FILE, "systemd", WINDOW - 1) is Verdict.ESCALATE
    (fight,) = fights.going_on()
    assert (fight.place, fight.writer, fight.until) == (FILE, "systemd", WINDOW - 1 + FIRST_PAUSE)
    assert fights.changed(FILE, "systemd", fight.until - 1) is Verdict.LEAVE


def test_kubelets_loop_of_a_minute_is_no_fight() -> None:
    fights = Fights()
    assert {fights.changed(FILE, "kubelet", 60.0 * minute) for minute in range(500)} == {Verdict.REPAIR}


def test_another_file_is_another_matter() -> None:
    assert fighting().changed(Place(FILE.path, "cpu.idle"), "other", 0) is Verdict.REPAIR


def test_after_each_pause_one_more_try_and_a_pause_twice_as_long() -> None:
    fights = fighting()
    assert fights.changed(FILE, "other", 0) is Verdict.ESCALATE
    pauses = []
    for _ in range(9):
        (fight,) = fights.going_on()
        now = fight.until
        assert fights.changed(FILE, "other", now - 0.1) is Verdict.LEAVE
        assert fights.changed(FILE, "other", now) is Verdict.REPAIR
        assert fights.changed(FILE, "other", now + 1) is Verdict.ESCALATE
        pauses.append(fights.going_on()[0].until - now - 1)
    assert pauses == [120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]
    assert fights.going_on()[0].rounds == 10


def test_a_try_that_holds_ends_the_fight() -> None:
    fights = fighting()
    fights.changed(FILE, "other", 0)
    assert fights.changed(FILE, "other", FIRST_PAUSE) is Verdict.REPAIR
    assert fights.sweep(FIRST_PAUSE + WINDOW - 1) == ()
    (over,) = fights.sweep(FIRST_PAUSE + WINDOW)
    assert over.place == FILE
    assert fights.going_on() == ()
    assert fights.changed(FILE, "other", FIRST_PAUSE + WINDOW) is Verdict.REPAIR


def test_a_fight_that_the_other_gave_up_is_over() -> None:
    fights = fighting()
    fights.changed(FILE, "other", 0)
    assert fights.sweep(FIRST_PAUSE + WINDOW) == ()
    assert len(fights.sweep(FIRST_PAUSE + 2 * WINDOW)) == 1


def test_nothing_is_kept_of_a_cgroup_that_is_gone_nor_of_long_ago() -> None:
    fights = fighting()
    fights.changed(FILE, "other", 0)
    fights.changed(Place("/other", "cpu.idle"), "other", 0)
    fights.forget(FILE.path)
    fights.sweep(WINDOW + 1)
    assert fights == Fights()


@given(st.lists(st.floats(0, 300), max_size=200))
def test_however_others_write_repairs_are_bounded(gaps: list[float]) -> None:
    fights, now, repairs = Fights(), 0.0, []
    for gap in gaps:
        now += gap
        if fights.changed(FILE, "other", now) is Verdict.REPAIR:
            repairs.append(now)
    for since in repairs:
        within = [at for at in repairs if since <= at < since + WINDOW]
        assert len(within) <= MOST_REPAIRS


@pytest.mark.parametrize("hours", [1, 24])
def test_a_busy_adversary_costs_a_try_an_hour_in_the_end(hours: int) -> None:
    fights, now, repairs = Fights(), 0.0, 0
    while now < hours * 3600:
        repairs += fights.changed(FILE, "other", now) is Verdict.REPAIR
        now += 1
    assert repairs <= MOST_REPAIRS + 7 + hours * 3600 / LONGEST_PAUSE
