"""What a deficit second is."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent.deficit import judge
from agent.deficit.judge import NOTHING, Judged
from agent.monitor.samples import MemoryDetail, PodSample

MIB = 1 << 20
AMOUNTS = st.floats(0, 20)
FLOORS = st.integers(1, 8000)
SECONDS = st.floats(0.5, 10)


def after(
    seconds: float = 1.0,
    *,
    used: float = 0.0,
    stalled: float | None = None,
    delayed: float | None = None,
    full: float | None = None,
    limit: float | None = None,
) -> tuple[PodSample, PodSample]:
    begun = PodSample(
        at=100.0,
        cpu=50.0,
        cpu_full=None if full is None else 2.0,
        cpu_stalled=None if stalled is None else 3.0,
        cpu_delayed=None if delayed is None else 4.0,
    )
    return begun, begun._replace(
        at=100.0 + seconds,
        cpu=50.0 + used,
        cpu_full=None if full is None else 2.0 + full,
        limit=limit,
        cpu_stalled=None if stalled is None else 3.0 + stalled,
        cpu_delayed=None if delayed is None else 4.0 + delayed,
    )


def cpu(floor: int, *samples: PodSample, idle: float = 0.0) -> Judged:
    return judge.cpu(samples[0], samples[1], floor, idle)


@pytest.mark.parametrize(
    ("floor", "pair", "judged"),
    [
        pytest.param(500, after(used=0.5, stalled=0.5), (1, 0), id="received all of it"),
        pytest.param(500, after(used=0.2, stalled=0.8, full=0.8), (1, 1), id="always running or waiting"),
        pytest.param(500, after(used=0.2, stalled=0.8), (1, 1), id="the same before Linux 5.13"),
        pytest.param(500, after(used=0.4, stalled=0.36, full=0.0), (0, 0), id="queued behind itself"),
        pytest.param(500, after(used=0.4, stalled=0.36), (0, 0), id="queued, before Linux 5.13"),
        pytest.param(500, after(used=0.0, stalled=1.0), (1, 1), id="kept waiting all the time"),
        pytest.param(500, after(used=0.0, stalled=0.0), (0, 0), id="idle"),
        pytest.param(500, after(used=0.1, stalled=0.1), (0, 0), id="wanted little, and waited little"),
        pytest.param(500, after(used=0.48, stalled=0.0), (0, 0), id="wanted 96 % of it"),
        pytest.param(500, after(used=0.48, stalled=0.3, full=0.1), (1, 1), id="wanted the last 4 % too"),
        pytest.param(
            500, after(used=0.2, stalled=0.8, full=0.53), (0, 0), id="waited a little less than it missed"
        ),
        pytest.param(
            500, after(used=0.2, stalled=0.8, full=0.55), (1, 1), id="waited nearly as long as it missed"
        ),
        pytest.param(500, after(used=0.1, limit=0.1), (1, 1), id="a limit below the floor"),
        pytest.param(500, after(used=0.6, limit=0.6), (1, 0), id="a limit above the floor"),
        pytest.param(500, after(used=0.25, limit=0.5), (0, 0), id="a burst that met a limit as large"),
        pytest.param(500, after(used=0.46, limit=0.5), (0, 0), id="a limit as large, nearly used"),
        pytest.param(500, after(used=0.2, delayed=0.8), (1, 1), id="v1: waited, by schedstat"),
        pytest.param(500, after(used=0.2, delayed=0.1), (0, 0), id="v1: hardly waited"),
        pytest.param(500, after(used=0.2), (0, 0), id="v1: nobody has asked the threads"),
        pytest.param(4000, after(used=0.5, delayed=0.5), (0, 0), id="one thread never fills four CPUs"),
        pytest.param(4000, after(used=2.0, delayed=0.5), (1, 1), id="half of four CPUs"),
        pytest.param(4000, after(used=2.0, stalled=0.9, full=0.5), (1, 1), id="the same, by PSI"),
        pytest.param(0, after(used=0.0, stalled=1.0), (0, 0), id="no floor"),
    ],
)
def test_a_second_of_cpu(floor: int, pair: tuple[PodSample, PodSample], judged: tuple[float, float]) -> None:
    assert cpu(floor, *pair) == pytest.approx(Judged(*judged))


@pytest.mark.parametrize("waits", [{"stalled": 0.8, "full": 0.8}, {"delayed": 0.8}])
def test_no_deficit_while_the_node_had_idle_time_enough(waits: dict[str, float]) -> None:
    pair = after(used=0.2, **waits)
    assert cpu(500, *pair, idle=0.29).deficit == pytest.approx(1)
    assert cpu(500, *pair, idle=0.31) == NOTHING


def test_a_limit_below_the_floor_is_a_deficit_of_an_idle_node_too() -> None:
    assert cpu(500, *after(used=0.1, limit=0.1), idle=8.0).deficit == pytest.approx(1)
    assert cpu(500, *after(used=0.05, limit=0.1), idle=8.0) == NOTHING  # it did not use that up


@given(FLOORS, SECONDS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_received_is_never_a_deficit(
    floor: int, seconds: float, more: float, stalled: float, delayed: float, limit: float
) -> None:
    used = floor / 1000 * seconds + more
    pair = after(seconds, used=used, stalled=stalled, delayed=delayed, limit=limit)
    assert cpu(floor, *pair) == pytest.approx(Judged(seconds, 0))


@given(FLOORS, SECONDS, st.floats(0, 1.2))
def test_who_waits_for_nothing_has_no_deficit(floor: int, seconds: float, part: float) -> None:
    used = part * floor / 1000 * seconds
    assert cpu(floor, *after(seconds, used=used, stalled=0.0, delayed=0.0)).deficit == 0


@given(FLOORS, SECONDS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_more_waiting_is_never_less_of_a_deficit(
    floor: int, seconds: float, used: float, stalled: float, more: float, delayed: float
) -> None:
    less = cpu(floor, *after(seconds, used=used, full=stalled, delayed=delayed))
    most = cpu(floor, *after(seconds, used=used, full=stalled + more, delayed=delayed))
    assert 0 <= less.deficit <= most.deficit <= most.wanted <= seconds * 1.000001
    assert less.wanted <= most.wanted


@given(FLOORS, st.floats(0, 1), AMOUNTS)
def test_who_waits_whenever_it_does_not_run_has_a_deficit_or_its_floor(
    floor: int, used: float, limit: float
) -> None:
    floor = min(floor, 1000)
    judged = cpu(floor, *after(1, used=used, stalled=1.0, full=1 - used, limit=limit))
    assert judged.wanted == pytest.approx(1)
    least = judge.RECEIVED * floor / 1000
    assume(abs(used - least) > 1e-6)
    assert bool(judged.deficit) is (used < least)


def test_what_cannot_be_compared_is_not_judged() -> None:
    begun, ended = after(used=0.0, stalled=1.0)
    assert judge.cpu(begun, ended, 500, 0.0).deficit == pytest.approx(1)
    assert judge.cpu(begun, ended._replace(made=2), 500, 0.0) == NOTHING  # the cgroup was made anew
    assert judge.cpu(begun, ended._replace(cpu=0.0), 500, 0.0) == NOTHING  # a counter that went back
    assert judge.cpu(begun, ended._replace(at=begun.at), 500, 0.0) == NOTHING
    assert judge.cpu(ended, begun, 500, 0.0) == NOTHING  # time that went back
    assert judge.cpu(begun, ended._replace(at=begun.at + 10.5), 500, 0.0) == NOTHING  # nobody looked
    assert judge.cpu(*after(9.5, stalled=9.5), 500, 0.0).deficit == pytest.approx(
        9.5
    )  # a late tick counts once


def held(before: int, now: int, *, stalled: float | None = None, refaults: int = 0) -> Judged:
    seconds = 1.0 if stalled is not None else 10.0
    begun = PodSample(
        at=100.0,
        memory=before,
        memory_stalled=None if stalled is None else 2.0,
        detail=MemoryDetail(at=100.0, refaults=7),
    )
    ended = begun._replace(
        at=100.0 + seconds,
        memory=now,
        memory_stalled=None if stalled is None else 2.0 + stalled,
        detail=MemoryDetail(at=100.0 + seconds, refaults=7 + refaults),
    )
    return judge.memory(begun, ended, 100 * MIB)


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        pytest.param(
            held(100 * MIB, 100 * MIB, stalled=1.0), (1, 0), id="holds its floor, and waits for more"
        ),
        pytest.param(held(50 * MIB, 50 * MIB, stalled=0.5), (1, 1), id="below its floor, and waits"),
        pytest.param(held(50 * MIB, 50 * MIB, stalled=0.0), (0, 0), id="needs no more"),
        pytest.param(held(50 * MIB, 50 * MIB, stalled=0.005), (0, 0), id="the odd page fault"),
        pytest.param(held(100 * MIB, 50 * MIB, stalled=0.5), (1, 0), id="had it at one end"),
        pytest.param(held(50 * MIB, 50 * MIB, refaults=1000), (10, 10), id="no PSI: pages needed again"),
        pytest.param(held(50 * MIB, 50 * MIB, refaults=50), (0, 0), id="no PSI: hardly any"),
        pytest.param(held(100 * MIB, 100 * MIB, refaults=1000), (10, 0), id="no PSI: holds its floor"),
    ],
)
def test_memory(judged: Judged, expected: tuple[float, float]) -> None:
    assert judged == pytest.approx(Judged(*expected))


@given(st.integers(0, 200), st.integers(0, 200), st.floats(0, 1), st.floats(0, 1))
def test_memory_that_is_held_is_never_a_deficit(before: int, now: int, stalled: float, more: float) -> None:
    judged = held(before * MIB, now * MIB, stalled=min(stalled, more))
    assert 0 <= judged.deficit <= judged.wanted
    if max(before, now) >= 100:
        assert judged.deficit == 0
    assert judged.deficit <= held(before * MIB, now * MIB, stalled=max(stalled, more)).deficit


def test_idle_pods_never_have_a_deficit() -> None:
    idle = PodSample(at=0.0, cpu=1.0, cpu_stalled=5.0, memory_stalled=5.0, detail=MemoryDetail(0.0))
    later = idle._replace(at=1.0, detail=MemoryDetail(1.0))
    for floor in (1, 500, 10**9, 1 << 60):
        assert judge.cpu(idle, later, floor, 0.0) == NOTHING
        assert judge.memory(idle, later, floor) == NOTHING
