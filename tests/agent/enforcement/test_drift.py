"""The whole of it on a loop: others write real cgroup files, and soon they are as planned again."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Callable

import pytest

from agent.enforcement import drift
from agent.enforcement.drift import EXPECTED_SECONDS, DriftWatch
from agent.enforcement.fights import MOST_REPAIRS
from agent.enforcement.places import Place
from agent.enforcement.repair import Drift
from agent.enforcement.watch import INOTIFY, InotifyWatch
from agent.state import Running
from tests.agent.enforcement.conftest import ID, Rig, above, another_writes, plan
from tests.waiting import SECONDS, eventually, running

SHARES = "cpu.shares"


class Told:
    """What was counted."""

    def __init__(self) -> None:
        self.drifts: list[Drift] = []
        self.fights: list[Place] = []
        self.losses = 0
        self.foreign: list[tuple[str, str, str]] = []

    def drifted(self, drift: Drift) -> None:
        self.drifts.append(drift)

    def escalated(self, place: Place) -> None:
        self.fights.append(place)

    def lost(self) -> None:
        self.losses += 1


@pytest.fixture
def rig(kernel_rig: Rig) -> Rig:
    """Who wrote is told by fanotify, which needs rights."""
    return kernel_rig


@pytest.fixture
def told() -> Told:
    return Told()


def watching(rig: Rig, told: Told, **options: object) -> DriftWatch:
    def foreign(path: str, file: str, writer: str) -> None:
        told.foreign.append((path, file, writer))

    return DriftWatch(rig.enforcer, told, foreign, **options)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def shell() -> AsyncIterator[Callable[[str], None]]:
    """Somebody at a terminal, who stays."""
    process = await asyncio.create_subprocess_exec("sh", stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        yield lambda line: process.stdin.write(f"{line}\n".encode())  # type: ignore[union-attr]
    finally:
        process.stdin.close()
        await process.wait()


async def test_a_write_is_undone_and_counted(rig: Rig, told: Told) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((1, SHARES, 700), (0, SHARES, 600)))
    async with running(watching(rig, told).run()), shell() as person:
        person(f"echo 77 > {rig.file(one.cgroup, SHARES)}")
        await eventually(lambda: told.drifts)
        assert rig.read(one.cgroup, SHARES) == "600"
        (drift,) = told.drifts
        assert (drift.have, drift.want, drift.writer, drift.controller, drift.repaired) == (
            "77",
            "600",
            "other",
            "cpu",
            True,
        )
        assert told.foreign == [(one.cgroup, SHARES, "other")]
        rig.enforcer.apply(one, plan((1, SHARES, 700), (0, SHARES, 601)))  # ours is no drift
        person(f"echo 55 > {rig.file(above(one.cgroup, 1), SHARES)}")
        await eventually(lambda: len(told.drifts) == 2)
    assert rig.read(above(one.cgroup, 1), SHARES) == "700"
    assert [drift.have for drift in told.drifts] == ["77", "55"]
    rig.write(one.cgroup, SHARES, 77)  # nobody watches any more, and nothing is undone
    assert rig.read(above(one.cgroup, 1), SHARES) == "700"


async def test_an_update_that_was_announced_is_the_runtimes(rig: Rig, told: Told) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    watch = watching(rig, told)
    async with running(watch.run()):
        watch.expect(one.cgroup)
        another_writes(rig.file(one.cgroup, SHARES), "77")
        await eventually(lambda: len(told.drifts) == 1)
        rig.clock.now += EXPECTED_SECONDS
        another_writes(rig.file(one.cgroup, SHARES), "77")
        await eventually(lambda: len(told.drifts) == 2)
    assert told.drifts[0].writer == "runtime"
    assert rig.enforcer.originals[one.cgroup, SHARES] == "77"
    assert rig.read(one.cgroup, SHARES) == "600"


async def test_while_nri_announces_what_is_not_announced_is_not_the_runtimes(rig: Rig, told: Told) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    async with running(watching(rig, told, announced=lambda: True).run()):
        another_writes(rig.file(one.cgroup, SHARES), "77")
        await eventually(lambda: told.drifts)
    assert told.drifts[0].writer == "other"
    assert rig.enforcer.originals[one.cgroup, SHARES] == "1024"


async def test_it_may_be_run_again(rig: Rig, told: Told) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    watch = watching(rig, told)
    for value in ("77", "78"):
        async with running(watch.run()), asyncio.timeout(SECONDS):
            while not told.drifts or told.drifts[-1].have != value:  # it may not listen yet
                another_writes(rig.file(one.cgroup, SHARES), value)
                await asyncio.sleep(0.02)


async def test_without_fanotify(rig: Rig, told: Told) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    source = InotifyWatch(rig.mounts, rig.enforcer.writing.notes.index)
    watch = watching(rig, told, source=source)
    assert watch.kind == INOTIFY
    async with running(watch.run()):
        await eventually(source.watched)
        rig.write(one.cgroup, SHARES, 77)  # by this very process: inotify does not tell
        await eventually(lambda: told.drifts)
        assert rig.read(one.cgroup, SHARES) == "600"
    assert [drift.writer for drift in told.drifts] == ["other"]


class Silent:
    """Tells of nothing but losses, when it is asked to."""

    kind = "fanotify"
    tells_writers = True

    def __init__(self) -> None:
        self.lost: Callable[[], None] | None = None

    async def run(self, _: object, lost: Callable[[], None]) -> None:
        self.lost = lost
        await asyncio.Event().wait()


async def test_what_was_missed_is_found_at_the_next_check(rig: Rig, told: Told) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    async with running(watching(rig, told, source=Silent(), check_seconds=0.05).run()):
        rig.write(one.cgroup, SHARES, 77)
        await eventually(lambda: told.drifts)
    assert rig.read(one.cgroup, SHARES) == "600"


async def test_after_a_loss_everything_is_checked_at_once(rig: Rig, told: Told) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    source = Silent()
    async with running(watching(rig, told, source=source, check_seconds=3600).run()):
        rig.write(one.cgroup, SHARES, 77)
        await eventually(lambda: source.lost is not None)
        assert source.lost is not None
        source.lost()
        await eventually(lambda: told.drifts)
    assert told.losses == 1


async def test_a_fight_is_given_up(rig: Rig, told: Told) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    file = rig.file(one.cgroup, SHARES)
    async with running(watching(rig, told).run()), shell() as person:
        (rig.run / "on").touch()
        person(f"while [ -e {rig.run}/on ]; do [ $(cat {file}) = 77 ] || echo 77 > {file}; sleep 0.01; done")
        await eventually(lambda: told.fights)
        assert [fight.place.path for fight in rig.enforcer.fights.going_on()] == [one.cgroup]
        (rig.run / "on").unlink()
    assert len(told.drifts) == MOST_REPAIRS
    assert any(drift.repaired for drift in told.drifts)  # not all: he may be back before it was read back


async def test_an_error_costs_one_repair_and_no_more(
    rig: Rig, told: Told, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    real = rig.enforcer.kept
    broken = [ZeroDivisionError]

    def kept(container_id: str) -> object:
        if broken:
            raise broken.pop()
        return real(container_id)

    monkeypatch.setattr(rig.enforcer, "kept", kept)
    async with running(watching(rig, told).run()), shell() as person:
        person(f"echo 77 > {rig.file(one.cgroup, SHARES)}")
        await eventually(lambda: not broken)
        person(f"echo 78 > {rig.file(one.cgroup, SHARES)}")
        await eventually(lambda: told.drifts)
    assert "repair failed" in caplog.text
    assert rig.read(one.cgroup, SHARES) == "600"


async def test_repaired_soon_among_many(rig: Rig, told: Told) -> None:
    """Not the latency of a loaded machine, but that it does not grow with the number of containers."""
    for number in range(40):
        uid = f"0a1b2c3d-0000-4000-8000-{number:012}"
        one: Running = rig.container("app", f"{number:064}", uid)
        rig.enforcer.apply(one, plan((2, SHARES, 5000), (1, SHARES, 700), (0, SHARES, 600)))
    async with running(watching(rig, told).run()), shell() as person:
        before = time.process_time()
        person(f"echo 77 > {rig.file(one.cgroup, SHARES)}")
        await eventually(lambda: told.drifts)
        assert rig.read(one.cgroup, SHARES) == "600"
        assert time.process_time() - before < 0.5
    assert ID not in rig.enforcer.ids()


async def test_many_writes_at_once_hold_up_nobody_else(
    rig: Rig, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, turns, mended = asyncio.get_running_loop(), [0], []

    def turn() -> None:
        turns[0] += 1
        loop.call_soon(turn)

    watch = watching(rig, told)
    monkeypatch.setattr(drift, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(watch._repairer, "mend", lambda *_: mended.append(turns[0]))
    turn()
    for number in range(20):
        watch._mend_soon(f"/pod{number}")
    await eventually(lambda: len(mended) == 20)
    assert len(set(mended)) == 20
