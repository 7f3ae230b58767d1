"""When the threads of a pod are asked how long they waited, and what their answers sum up to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.monitor.delays import Counts, Delays, Step, step, waited
from agent.monitor.samples import PodSample

FLOOR = 0.5
NANOSECONDS = st.integers(0, 10**12)
COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.tuples(NANOSECONDS, NANOSECONDS))


def sample(at: float, cpu: float) -> PodSample:
    return PodSample(at=at, cpu=cpu, settled=False)


def chosen(before: PodSample | None, now: PodSample, *, known: bool = True, quiet: bool = False) -> Step:
    return step(before, now, FLOOR, known=known, quiet=quiet)


def test_threads_are_asked_only_where_it_matters() -> None:
    begun = sample(0, 0.0)
    assert chosen(None, begun, known=False) is Step.READ
    assert chosen(begun, sample(5, 0.1)) is Step.READ
    assert chosen(begun, sample(5, 2.5)) is Step.FORGET  # it had its floor
    assert chosen(begun, sample(5, 0.0)) is Step.KEEP  # it has not run, so no wait has ended
    assert chosen(begun, sample(5, 0.0), known=False) is Step.READ
    assert chosen(begun, sample(5, 0.1), quiet=True) is Step.FORGET


@given(COUNTS, COUNTS, st.floats(0, 100), st.integers(1, 4), st.booleans())
def test_no_longer_than_the_threads_waited(
    before: Counts, now: Counts, used: float, cpus: int, complete: bool
) -> None:
    waits = sum(delay for _, delay in now.values()) / 1e9
    assert 0 <= waited(before, now, used, cpus, complete=complete) <= waits * 1.000001


@given(COUNTS)
def test_no_time_has_passed(counts: Counts) -> None:
    assert waited(counts, counts, 0.0, FLOOR) == 0


def seconds(*threads: tuple[float, float]) -> dict[str, tuple[int, int]]:
    """How long each thread ran and waited."""
    return {str(at): (int(run * 1e9), int(wait * 1e9)) for at, (run, wait) in enumerate(threads)}


def test_one_thread_waits_for_others() -> None:
    assert waited({}, seconds((0.2, 0.8)), 0.2, FLOOR) == pytest.approx(0.8)


def test_threads_of_one_cpu_share_their_waiting() -> None:
    """Two that always want it and get a tenth each: neither ran for eight tenths."""
    assert waited({}, seconds((0.1, 0.9), (0.1, 0.9)), 0.2, FLOOR) == pytest.approx(0.8)


def test_threads_that_queue_behind_each_other_wait_for_nobody_else() -> None:
    """Ten wake together, ten times a second, and run 3.5 ms one after the other; else they sleep."""
    queue = seconds(*((0.035, 0.035 * place) for place in range(10)))
    assert waited({}, queue, 0.35, FLOOR) == pytest.approx(0, abs=1e-9)


def test_a_floor_of_several_cpus_asks_as_many_threads() -> None:
    assert waited({}, seconds(*[(0.5, 0.5)] * 4), 2.0, 4) == pytest.approx(0.5)
    assert waited({}, seconds(*[(0.25, 0.75)] * 8), 2.0, 4) == pytest.approx(0.5)


def test_new_threads_and_ended_ones() -> None:
    before = seconds((0, 1.0), (0, 0.5))
    now = seconds((0, 1.3)) | {"3": (0, 700_000_000)}
    assert waited(before, now, 0.0, 2) == pytest.approx((0.3 + 0.7) / 2)
    assert waited(before, now, 0.0, 2, complete=False) == pytest.approx(0.3 / 2)


def test_the_counter_of_a_pod() -> None:
    counts = {"1": (0, 1_000_000_000)}
    delays = Delays(seconds=5, first=2.0)

    def ask(at: float, cpu: float, *, quiet: bool = False) -> PodSample:
        assert delays.due(at)
        return delays.settle(sample(at, cpu), FLOOR, counts.copy, quiet=quiet)

    assert not delays.due(1.9)
    first = ask(2, 0.0)
    assert (first.settled, first.cpu_delayed) == (True, 0.0)
    counts["1"] = (100_000_000, 5_000_000_000)
    assert not delays.due(6.9)
    second = ask(7, 0.1)
    assert (second.settled, second.cpu_delayed) == (True, 4.0)
    assert ask(12, 9.9).cpu_delayed is None  # above its floor: nobody asks
    assert ask(17, 9.91).cpu_delayed == 4.0  # a new beginning, from which waiting is counted again


def test_no_more_threads_may_be_asked() -> None:
    delays = Delays(seconds=5, first=0.0)
    assert not delays.settle(sample(0, 0.0), FLOOR, lambda: None, quiet=False).settled
    assert delays.settle(sample(1, 0.0), FLOOR, dict, quiet=False).settled
