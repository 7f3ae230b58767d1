"""The agent told by a container runtime that is played: births and ends of containers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent.nri import messages_pb2 as pb
from lab.agent_process import AgentProcess
from lab.runtimes.cgroups import Scratch
from tests.agent.nri.runtime_side import Runtime
from tests.cluster.agent_at_work import (
    KEPT,
    AtWork,
    assert_nobody_was_evicted,
    errors,
    settle,
    until_kept,
)
from tests.cluster.agent_rig import Place, policy
from tests.waiting import SECONDS, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="the agent writes cgroup files: be root"),
]

SHARES = 102
"""cpu.shares of a container of the crowd."""


@contextlib.asynccontextmanager
async def runtime_of(here: Place, agent: AgentProcess) -> AsyncIterator[tuple[AgentProcess, Runtime]]:
    """The agent again, now with a container runtime that is played."""
    agent.end()
    accepted: asyncio.Queue[Runtime] = asyncio.Queue()
    connections: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await accepted.put(Runtime(reader, writer))

    socket = here.folder / "nri.sock"
    server = await asyncio.start_unix_server(accept, socket)
    told = here.agent("told", "--nri-socket", socket, home=agent.folder)
    try:
        told.start(ready=False)  # it waits a few seconds only for the runtime's answers
        runtime = await asyncio.wait_for(accepted.get(), SECONDS)
        await runtime.registered()
        await runtime.configured()
        await runtime.synchronized()
        await asyncio.to_thread(told.wait_ready)
        await asyncio.to_thread(settle, here, told)
        yield told, runtime
    finally:
        told.end()
        server.close()
        for writer in connections:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@pytest.mark.full  # 20 s
async def test_a_thousand_containers_leave_nothing(
    at_work: AtWork, record_property: Callable[[str, object], None]
) -> None:
    here, agent, kept, _ = at_work
    async with runtime_of(here, agent) as (told, runtime):
        await lives(here, runtime, 50)
        before = await asyncio.to_thread(measured, here, told)
        await lives(here, runtime, 1000)
        after = await asyncio.to_thread(measured, here, told)
        record_property("before", dict(before))
        record_property("after", dict(after))
        for what, bound in (("memory", 4), ("open files", 5), ("threads", 2)):
            assert after.pop(what) - before.pop(what) < bound, what
        assert after == before
        assert errors(told) == {}
        assert here.settings() == kept


async def test_a_pass_between_birth_and_start(at_work: AtWork) -> None:
    """What kubelet asked for is known still when the container starts with our values in its spec."""
    here, agent, kept, _ = at_work
    async with runtime_of(here, agent) as (told, runtime):
        born = Born(here, 0)
        answer = await told_of(runtime, "CreateContainer", born.event)
        given = pb.CreateContainerResponse.FromString(answer).adjust.linux.resources.cpu.shares.value
        assert given > SHARES
        await asyncio.to_thread(settle, here, told)
        group = born.make()
        group.make("pause")  # its pod's sandbox
        file = group.folder("cpu", born.event.container.id) / "cpu.shares"
        file.write_text(str(given))  # as the runtime does
        await told_of(runtime, "StartContainer", born.event)
        assert int(file.read_text()) > SHARES
        here.kubectl("delete", "mrp", KEPT)
        await asyncio.to_thread(until, lambda: file.read_text() == f"{SHARES}\n", "kubelet's value")
        group.remove()
        await told_of(runtime, "RemoveContainer", born.event)
        await told_of(runtime, "RemovePodSandbox", born.event)
        here.apply(policy(KEPT))
        await asyncio.to_thread(until_kept, here, told, kept)


def measured(here: Place, agent: AgentProcess) -> dict[str, float]:
    settle(here, agent)
    known = {pod.uid for pod in here.crowd.pods}
    until(
        lambda: {file.name for file in (agent.run / "pods").iterdir()} <= known,
        "no files of pods that are gone",
    )
    lines = (agent.run / "originals").read_text().splitlines()[1:]
    return {
        "memory": agent.memory(),
        "open files": sum(not any(uid in file for uid in known) for file in agent.open_files()),
        "threads": len(list(Path(f"/proc/{agent.pid}/task").iterdir())),
        "series": sum('pod="life-' in name for name in agent.metrics()),
        "originals of others": len(alive_originals(lines) - known),
        "pods": agent.metric("j10ce_agent_pods"),
        "containers": agent.metric("j10ce_agent_containers"),
    }


def alive_originals(lines: list[str]) -> set[str]:
    """Uids of the pods of which something is known at the journal's end."""
    there: dict[str, set[str]] = {}
    for line in lines:
        path, *rest = line.split("\t")
        if not rest:
            there.pop(path, None)
        elif len(rest) == 1:
            there.get(path, set()).discard(rest[0])
        else:
            there.setdefault(path, set()).add(rest[0])
    return {
        part[3:] for path, slots in there.items() if slots for part in path.split("/") if part[:3] == "pod"
    }


class Born:
    """A container of a pod that the API server never tells of, with a floor."""

    def __init__(self, here: Place, number: int) -> None:
        self.uid, self.id = str(uuid.uuid4()), uuid.uuid4().hex * 2
        name, labels = f"life-{number}", {"app": KEPT}
        pod = pb.PodSandbox(id=self.uid, uid=self.uid, name=name, namespace=here.namespace, labels=labels)
        pod.linux.cgroup_parent = f"/kubepods/burstable/pod{self.uid}"
        app = pb.Container(id=self.id, pod_sandbox_id=pod.id, name="c0")
        app.linux.cgroups_path = f"{pod.linux.cgroup_parent}/{self.id}"
        app.linux.resources.cpu.shares.value = SHARES
        self.event = pb.EventRequest(pod=pod, container=app)
        wanted = {
            name: mount for name, mount in here.crowd.mounts.items() if name in ("cpu", "memory", "blkio")
        }
        self.parent = Scratch("/kubepods/burstable", wanted)

    def make(self, *, started: bool = True) -> Scratch:
        """Its pod's cgroup, and its own."""
        made = self.parent.make(f"pod{self.uid}")
        if started:
            made.make(self.id)
        return made


async def lives(here: Place, runtime: Runtime, count: int) -> None:
    """So many containers, from birth to end; some end oddly."""
    for number in range(count):
        born = Born(here, number)
        group = born.make(started=False)
        await told_of(runtime, "RunPodSandbox", born.event)
        await told_of(runtime, "CreateContainer", born.event)
        if number % 7 != 6:  # its creation fails
            born.make()
            await told_of(runtime, "StartContainer", born.event)
        if number % 5:
            await told_of(runtime, "StopContainer", born.event)
        group.remove()
        if number % 5 < 3:
            await told_of(runtime, "RemoveContainer", born.event)
        await told_of(runtime, "RemovePodSandbox", born.event)


async def told_of(runtime: Runtime, method: str, request: pb.EventRequest) -> bytes:
    status, payload = await asyncio.wait_for(runtime.call(method, request), SECONDS)
    assert status == 0, method
    return payload


def test_nobody_was_evicted(at_work: AtWork) -> None:
    """Through all of the above."""
    assert_nobody_was_evicted(at_work.here)
