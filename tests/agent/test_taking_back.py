"""A restore tells the runtime, played here, what others want; what it could not tell is named."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent import taking_back
from agent.nri import messages_pb2 as pb
from agent.nri.records import LinuxResources
from agent.taking_back import take_back
from agent.told import Told
from tests.agent.nri.runtime_side import POD, Rig

FIRST, SECOND = "/kubepods/pod1/c1", "/kubepods/pod1/c2"


def told(run: Path) -> None:
    one = Told(run)
    for path in (FIRST, SECOND):
        one.note(path, {"cpu.shares": "777"}, LinuxResources(cpu_shares=204))


def container(name: str, shares: int, state: int = 3) -> pb.Container:
    made = pb.Container(id=name, pod_sandbox_id=POD.id, name=name, state=state)  # type: ignore[arg-type]
    made.linux.cgroups_path = f"/kubepods/pod1/{name}"
    made.linux.resources.cpu.shares.value = shares
    return made


async def restored(
    folder: Path, *containers: pb.Container, refuse: bool = False
) -> tuple[list[tuple[str, int]], ...]:
    rig = Rig(folder)
    async with rig.listening():
        working = asyncio.create_task(asyncio.to_thread(take_back, rig.socket, folder))
        runtime = await rig.connections.get()
        runtime.refuse = refuse
        await runtime.registered()
        await runtime.configured()
        await runtime.synchronized(pb.SynchronizeRequest(pods=[POD], containers=containers))
        while not working.done():
            listening = asyncio.create_task(runtime.message())
            await asyncio.wait([working, listening], return_when=asyncio.FIRST_COMPLETED)
            if listening.done() and not listening.exception():
                runtime.update(listening.result())
            listening.cancel()
        asked = [
            (one.container_id, one.linux.resources.cpu.shares.value)
            for each in runtime.asked
            for one in each.update
        ]
        return asked, list(working.result())


async def test_what_runs_is_told_and_what_somebody_changed_is_theirs(tmp_path: Path) -> None:
    told(tmp_path)
    asked, left = await restored(tmp_path, container("c1", 777), container("c2", 300))
    assert (asked, left) == ([("c1", 204)], [])
    assert Told(tmp_path).paths() == frozenset()


async def test_what_has_ended_needs_nothing(tmp_path: Path) -> None:
    told(tmp_path)
    assert await restored(tmp_path, container("c1", 777, state=4)) == ([], [])
    assert Told(tmp_path).paths() == frozenset()


async def test_what_is_refused_is_named_and_can_be_tried_again(tmp_path: Path) -> None:
    told(tmp_path)
    asked, left = await restored(tmp_path, container("c1", 777), container("c2", 777), refuse=True)
    assert (len(asked), len(left)) == (2, 2)
    assert "no such container" in str(left[0])
    assert FIRST in str(left[0])
    asked, left = await restored(tmp_path, container("c1", 777), container("c2", 777))
    assert (len(asked), left) == (2, [])


def test_where_no_runtime_is_there_everything_is_named(tmp_path: Path, monkeypatch) -> None:
    told(tmp_path)
    assert len(take_back(None, tmp_path)) == len(take_back(tmp_path / "nri.sock", tmp_path)) == 2
    monkeypatch.setattr(taking_back, "CONNECT_SECONDS", 0.2)
    rig = Rig(tmp_path)

    async def silent() -> tuple[str, ...]:
        async with rig.listening():
            return await asyncio.to_thread(take_back, rig.socket, tmp_path)

    left = asyncio.run(silent())
    assert len(left) == 2
    assert "answers" in left[0]


def test_where_nothing_was_told_nobody_is_asked(tmp_path: Path) -> None:
    assert take_back(tmp_path / "nri.sock", tmp_path) == ()


def test_a_journal_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    told(tmp_path)
    (tmp_path / "told").write_text("nonsense\n")
    (left,) = take_back(None, tmp_path)
    assert "told.bad" in left
