"""Limits that make the kernel reclaim: whoever else writes, starts or asks never waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.enforcement import lowering
from agent.enforcement.enforcer import Enforcer
from agent.enforcement.lowering import STEP, Lowering, next_value
from agent.enforcement.originals import Originals
from agent.enforcement.places import Place
from agent.enforcement.repair import Repairer
from agent.restoring import restore
from agent.state import ContainerKey, Running
from kernel import files as kernel_files
from kernel import lock
from qos.plan.settings import Plan
from tests.agent.enforcement.conftest import Clock, plan
from tests.waiting import eventually, running

MIB = 1 << 20
GIB = 1 << 30
UID = "0a1b2c3d-0000-4000-8000-000000000001"
POD = f"/kubepods/burstable/pod{UID}"
ONE = Running(ContainerKey(UID, "app"), "c" * 64, f"{POD}/{'c' * 64}")
HIGH, MAX = "memory.high", "memory.max"


class Memory:
    """A container's memory as plain files: what is in use is above no limit that was written.

    `free`: while it is cleared, a write that has to reclaim does not come back. `stuck`: bytes that cannot be
    reclaimed.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.mount = folder, folder / "cgroup"
        self.free, self.waits = threading.Event(), threading.Event()
        self.free.set()
        self.stuck = 0
        self.written: list[tuple[str, str]] = []
        self.threads: set[int] = set()
        for path in (*_above(ONE.cgroup), ONE.cgroup):
            at = Path(f"{self.mount}{path}")
            at.mkdir(parents=True)
            (at / "cgroup.procs").write_text("")
        for file, text in {HIGH: "max", MAX: "max", "memory.low": "0", "cpu.weight": "100"}.items():
            self.put(file, text)
        self.put("memory.current", str(GIB))
        (folder / "run").mkdir()
        patch.setattr(kernel_files, "_WRITE", kernel_files._WRITE | os.O_TRUNC)
        patch.setattr(kernel_files.Group, "write", self._slow(kernel_files.Group.write))
        self.clock = Clock()
        self.enforcer = self.agent()

    def agent(self) -> Enforcer:
        """One that has just started."""
        run = self.folder / "run"
        self.enforcer = Enforcer({"": str(self.mount)}, Originals(run), run, clock=self.clock)
        return self.enforcer

    def put(self, file: str, text: str) -> None:
        Path(f"{self.mount}{ONE.cgroup}/{file}").write_text(f"{text}\n")

    def read(self, file: str) -> str:
        return Path(f"{self.mount}{ONE.cgroup}/{file}").read_text().strip()

    def _slow(self, write):
        def slow(group: kernel_files.Group, file: str, value: str) -> None:
            write(group, file, value)
            if file not in (HIGH, MAX):
                return
            self.written.append((file, value))
            limit = GIB if value == "max" else int(value)
            if int(self.read("memory.current")) > limit:
                self.threads.add(threading.get_ident())
                self.waits.set()
                self.free.wait(10)
                self.put("memory.current", str(max(limit, self.stuck)))

        return slow

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        self.free.clear()
        try:
            yield
        finally:
            self.free.set()


def _above(path: str) -> list[str]:
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:end]) for end in range(1, len(parts))]


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    made = Memory(tmp_path, monkeypatch)
    yield made
    made.free.set()


@contextlib.asynccontextmanager
async def at_work(memory: Memory) -> AsyncIterator[None]:
    async with running(memory.enforcer.lowering.run()):
        yield


async def test_the_loop_and_the_hooks_lock_are_free_while_the_kernel_reclaims(memory: Memory) -> None:
    async with at_work(memory):
        with memory.hanging():
            first = memory.enforcer.apply(ONE, plan((0, "cpu.weight", 200), (0, HIGH, 512 * MIB)))
            await eventually(memory.waits.is_set, "the kernel reclaims")
            assert threading.get_ident() not in memory.threads
            assert memory.read("cpu.weight") == "200", "nothing else waits for it"
            lock.release(lock.take(str(memory.folder / "run"), 0.0))
            assert not first.applied
            assert "lowered in steps" in str(first.refusals[0])
        await eventually(lambda: memory.enforcer.reports[ONE.key].applied, "it is reached")
    assert memory.read(HIGH) == str(512 * MIB)
    assert memory.enforcer.reports[ONE.key].refusals == ()
    assert threading.get_ident() not in memory.threads


async def test_in_steps_and_known_on_the_disk_before_each(memory: Memory) -> None:
    async with at_work(memory):
        memory.enforcer.apply(ONE, plan((0, HIGH, GIB - 2 * STEP - MIB)))
        await eventually(lambda: not len(memory.enforcer.lowering), "it is reached")
    expected = [GIB - STEP, GIB - 2 * STEP, GIB - 2 * STEP - MIB]
    assert memory.written == [(HIGH, str(value)) for value in expected]
    assert memory.agent().originals.record(Place(ONE.cgroup, HIGH)) == (str(expected[-1]), "max")


async def test_what_is_not_in_use_is_written_at_once(memory: Memory) -> None:
    assert memory.enforcer.apply(ONE, plan((0, HIGH, 2 * GIB))).applied
    assert memory.read(HIGH) == str(2 * GIB)


async def test_a_newer_plan_overtakes_a_write_under_way(memory: Memory) -> None:
    async with at_work(memory):
        with memory.hanging():
            memory.enforcer.apply(ONE, plan((0, HIGH, 512 * MIB)))
            await eventually(memory.waits.is_set, "the kernel reclaims")
            assert memory.enforcer.apply(ONE, plan((0, HIGH, 2 * GIB))).applied
            assert memory.read(HIGH) == str(2 * GIB)
            memory.put(HIGH, str(GIB - STEP))  # as v1 does: its write goes on until it is in effect
        await eventually(lambda: memory.read(HIGH) == str(2 * GIB), "what came back late is put right")
    assert dict(memory.enforcer.originals)[ONE.cgroup, HIGH] == "max", "our own step is nobody's wish"
    assert not len(memory.enforcer.lowering)


async def test_a_plan_without_it_takes_it_back_meanwhile(memory: Memory) -> None:
    async with at_work(memory):
        with memory.hanging():
            memory.enforcer.apply(ONE, plan((0, HIGH, 512 * MIB)))
            await eventually(memory.waits.is_set, "the kernel reclaims")
            assert memory.enforcer.apply(ONE, Plan(())).applied
        await eventually(lambda: not memory.enforcer.lowering._flying, "it has come back")
    assert memory.read(HIGH) == "max"
    assert dict(memory.enforcer.originals) == {}


async def test_high_before_max_and_max_never_below_what_is_in_use(memory: Memory) -> None:
    async with at_work(memory):
        memory.enforcer.apply(ONE, plan((0, MAX, 600 * MIB), (0, HIGH, 512 * MIB)))
        await eventually(lambda: memory.enforcer.reports[ONE.key].applied, "both are reached")
    files = [file for file, _ in memory.written]
    assert files == [HIGH] * (len(files) - 1) + [MAX]


async def test_what_cannot_be_reclaimed_is_given_up_and_throttled_no_further(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lowering, "TRY_SECONDS", 0.2)
    monkeypatch.setattr(lowering, "REST_SECONDS", 600.0)
    memory.stuck = 900 * MIB
    memory.put("memory.current", str(memory.stuck))
    async with at_work(memory):
        memory.enforcer.apply(ONE, plan((0, "cpu.weight", 200), (0, HIGH, 512 * MIB)))
        report = memory.enforcer.reports[ONE.key]
        await eventually(lambda: "could not be reclaimed" in str(report.refusals[0]), "it is given up")
        assert memory.read(HIGH) == str(900 * MIB + STEP)
        assert not report.applied
        assert memory.read("cpu.weight") == "200"
        assert memory.enforcer.lowering.outcomes == {lowering.LATE: 1}
        memory.stuck = 0
        monkeypatch.setattr(lowering, "TRY_SECONDS", 30.0)
        memory.enforcer.apply(ONE, plan((0, HIGH, 500 * MIB)))  # a newer plan is tried at once
        await eventually(lambda: memory.enforcer.reports[ONE.key].applied, "a later try reaches it")
    assert memory.read(HIGH) == str(500 * MIB)


async def test_drift_of_the_same_file_is_noted_and_lowered_again(memory: Memory) -> None:
    repairer = Repairer(memory.enforcer, lambda _: None, lambda _: None)
    async with at_work(memory):
        with memory.hanging():
            memory.enforcer.apply(ONE, plan((0, HIGH, 512 * MIB)))
            await eventually(memory.waits.is_set, "the kernel reclaims")
            repairer.mend(ONE.cgroup)
            assert dict(memory.enforcer.originals)[ONE.cgroup, HIGH] == "max", "a step is no drift"
            memory.put(HIGH, str(3 * GIB))
            repairer.mend(ONE.cgroup, {(ONE.cgroup, HIGH): "kubelet"})
            assert dict(memory.enforcer.originals)[ONE.cgroup, HIGH] == str(3 * GIB)
        await eventually(lambda: memory.enforcer.reports[ONE.key].applied, "it is reached")
    assert memory.read(HIGH) == str(512 * MIB)


async def test_a_cgroup_that_goes_meanwhile_is_forgotten(memory: Memory) -> None:
    async with at_work(memory):
        with memory.hanging():
            memory.enforcer.apply(ONE, plan((0, HIGH, 512 * MIB)))
            await eventually(memory.waits.is_set, "the kernel reclaims")
            memory.enforcer.forget(ONE.container_id)
        await eventually(lambda: not memory.enforcer.lowering._flying, "it has come back")
    assert not len(memory.enforcer.lowering)
    assert memory.enforcer.reports == {}


async def test_the_end_waits_for_no_write_and_the_next_agent_goes_on(memory: Memory) -> None:
    with memory.hanging():
        async with at_work(memory):
            memory.enforcer.apply(ONE, plan((0, HIGH, 512 * MIB)))
            await eventually(memory.waits.is_set, "the kernel reclaims")
        assert memory.read(HIGH) == str(GIB - STEP)
    await eventually(
        lambda: memory.read("memory.current") == str(GIB - STEP), "the write has ended by itself"
    )
    memory.agent().apply(ONE, plan((0, HIGH, 512 * MIB)))
    assert dict(memory.enforcer.originals)[ONE.cgroup, HIGH] == "max"
    async with at_work(memory):
        await eventually(lambda: memory.enforcer.reports[ONE.key].applied, "it is reached")


def test_restore_lowers_in_steps_and_names_what_it_could_not(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.put(HIGH, str(512 * MIB))
    assert memory.enforcer.apply(ONE, plan((0, HIGH, 2 * GIB))).applied
    state = memory.folder / "state"
    state.mkdir()
    monkeypatch.setattr("agent.restoring.LOWER_SECONDS", 0.3)
    memory.stuck = 900 * MIB
    done = restore({"": str(memory.mount)}, memory.folder / "run", state)
    assert [one for one in done.left if HIGH in one]
    memory.stuck = 0
    monkeypatch.setattr("agent.restoring.LOWER_SECONDS", 30.0)
    assert restore({"": str(memory.mount)}, memory.folder / "run", state).left == ()
    assert memory.read(HIGH) == str(512 * MIB)
    assert threading.get_ident() not in memory.threads


sizes = st.integers(0, 4 * GIB)


@given(st.sampled_from((HIGH, MAX, "memory.limit_in_bytes")), sizes, sizes, sizes)
def test_a_step_reclaims_no_more_than_one_and_ends_at_the_target(
    file: str, have: int, in_use: int, target: int
) -> None:
    have = max(have, target)
    for _ in range(4 * GIB // STEP + 2):
        value = next_value(file, have, in_use, target)
        if value is None:
            assert file == MAX
            assert in_use > target
            return
        assert target <= value <= have
        assert in_use - value <= STEP or value == have
        if value == target:
            return
        have, in_use = value, min(in_use, value)
    raise AssertionError("it never ends")


def test_a_real_limit_gives_up_page_cache(kernel_rig, tmp_path: Path) -> None:
    """cgroup v1, whose write goes on until enough is reclaimed, or says EBUSY."""
    one = kernel_rig.container()
    procs = kernel_rig.file(one.cgroup, "memory.limit_in_bytes").with_name("cgroup.procs")
    script = (
        f"echo $$ > {procs} && dd if=/dev/zero of={tmp_path}/pages bs=1M count=160 conv=fsync status=none"
    )
    assert os.waitstatus_to_exitcode(os.system(script)) == 0
    in_use = int(kernel_rig.read(one.cgroup, "memory.usage_in_bytes"))
    if in_use < 128 * MIB:
        pytest.skip(f"the file system keeps no page cache: {in_use} bytes in use")

    async def lowered() -> None:
        async with running(kernel_rig.enforcer.lowering.run()):
            report = kernel_rig.enforcer.apply(one, plan((0, "memory.limit_in_bytes", 48 * MIB)))
            assert not report.applied
            still = int(kernel_rig.read(one.cgroup, "memory.usage_in_bytes"))
            assert still > in_use - 16 * MIB  # the kernel may free a page or two by itself
            await eventually(lambda: kernel_rig.enforcer.reports[one.key].applied, "it is reached")

    asyncio.run(lowered())
    assert int(kernel_rig.read(one.cgroup, "memory.usage_in_bytes")) <= 48 * MIB
    assert kernel_rig.read(one.cgroup, "memory.limit_in_bytes") == str(48 * MIB)
    assert kernel_rig.enforcer.lowering.outcomes == {lowering.REACHED: 1}


def many(folder: Path, clock: Callable[[], float], count: int) -> Lowering:
    """So many limits that would kill if they were lowered now."""
    made = Lowering({"": str(folder)}, Originals(folder), clock)
    for number in range(count):
        place = Place(f"/kubepods/pod{number}/{'c' * 64}", MAX)
        at = Path(f"{folder}{place.path}")
        at.mkdir(parents=True)
        (at / MAX).write_text("max\n")
        (at / "memory.current").write_text(f"{GIB}\n")
        made.put(place, SimpleNamespace(value=str(GIB // 2), before="max"))
    return made


async def test_the_loop_is_free_while_many_limits_wait(tmp_path: Path) -> None:
    now = asked = most = 0

    def clock() -> float:
        nonlocal now, asked, most
        now, asked = now + 1, asked + 1
        most = max(most, asked)
        if asked > 1000:
            raise TimeoutError("nobody else had a turn")
        return now / 1000

    async with running(many(tmp_path, clock, 200).run()):
        for _ in range(500):
            asked = 0
            await asyncio.sleep(0)
    assert most < 10


async def test_many_limits_that_wait_are_looked_at_as_seldom_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    made, looks = many(tmp_path, clock, 300), 0
    real = Lowering._look

    def look(self: Lowering, place: Place) -> tuple[int, int]:
        nonlocal looks
        looks += 1
        return real(self, place)

    monkeypatch.setattr(Lowering, "_look", look)
    async with running(made.run()):
        await eventually(lambda: looks >= 300)
        clock.now += 1.0
        made._news.set()
        for _ in range(1000):
            await asyncio.sleep(0)
        assert looks == 300
        clock.now += 2.0
        made._news.set()
        await eventually(lambda: looks >= 600)
