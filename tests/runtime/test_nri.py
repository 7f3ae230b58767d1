"""The NRI plugin with a real containerd and runc: from birth, through updates, restarts, hangs and crowds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.nri.records import Adjustment, State
from agent.nri.rpc import NriError
from lab.runtimes import containerd as rig
from lab.runtimes.cgroups import Scratch
from lab.runtimes.containerd import Containerd, Options
from tests.runtime.nri_node import FLOOR, NONE, SOFT, Node, from_birth_to_its_end
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
OTHER_PLUGIN = """
import asyncio, sys
from pathlib import Path
from prometheus_client import CollectorRegistry
from agent.nri.plugin import NriPlugin

class Handler:
    async def synchronize(self, pods, containers):
        print("synchronized", flush=True)
        return {}

socket, lock = map(Path, sys.argv[1:])
asyncio.run(NriPlugin(socket, Handler(), lock=lock, registry=CollectorRegistry()).run())
"""


@pytest.fixture(scope="module")
def containerd(programs: Path) -> Iterator[Containerd]:
    with rig.containerd(programs, Options(patience=30)) as running:
        yield running


@pytest.fixture
def node(containerd: Containerd, scratch: Scratch, tmp_path: Path) -> Iterator[Node]:
    yield Node(containerd, scratch, tmp_path)
    containerd.cri.remove_all()


async def test_from_birth_to_its_end(node: Node) -> None:
    """The first instruction finds all; an update that asks for something else leaves it; all is told."""
    await from_birth_to_its_end(node, "containerd 2")


async def test_what_runs_already_is_told_and_updated(node: Node) -> None:
    pod, sandbox = await node.pod()
    app, first = await node.start(pod, sandbox)
    assert first == NONE
    node.agent.synchronized = {app: Adjustment(cpu_shares=777)}
    async with node.plugin():
        await eventually(lambda: node.values(pod, app)[0] == "777")
        ((_, pods, containers),) = node.agent.told
        assert [one.uid for one in pods] == [pod.uid]
        assert [(one.id, one.name, one.state) for one in containers] == [(app, "app", State.RUNNING)]
    async with node.plugin():
        assert node.count("Synchronize", "empty") == 1  # its spec says so by now


@pytest.mark.full
async def test_what_is_too_much_for_one_message_is_told_in_parts(node: Node) -> None:
    pods = await asyncio.gather(*(node.pod({"j10ce.io/big": "x" * 400_000}) for _ in range(12)))
    async with node.plugin():
        ((_, told, _),) = node.agent.told
        assert sorted(one.uid for one in told) == sorted(pod.uid for pod, _ in pods)
        assert node.count("Synchronize", "empty") == 2  # two parts, and neither had an answer


async def test_updates_of_our_own(node: Node) -> None:
    async with node.plugin() as plugin:
        pod, sandbox = await node.pod()
        app, _ = await node.start(pod, sandbox)
        with pytest.raises(NriError, match="UpdateContainers"):
            await plugin.update({app: Adjustment(cpus="1000")})  # v1 refuses a CPU that is not there
        nobody = "0" * 9000  # longer than a Go reader's buffer; a container that is gone is no failure
        await plugin.update({nobody: Adjustment(cpu_shares=2), app: Adjustment(cpu_shares=888)})
        assert node.values(pod, app) == ["888", "-1", SOFT]


@pytest.fixture
def other(node: Node) -> Iterator[subprocess.Popen[bytes]]:
    """An instance in another process, connected; it changes nothing."""
    argv = [sys.executable, "-c", OTHER_PLUGIN, str(node.containerd.nri_socket), str(node.lock)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"synchronized\n"
        yield process
        process.kill()


async def test_of_two_instances_one_is_asked_and_the_other_follows_a_kill(
    node: Node, other: subprocess.Popen[bytes]
) -> None:
    async with node.plugin(connected=False) as standby:
        pod, sandbox = await node.pod()
        before, first = await node.start(pod, sandbox, "before")
        assert (first, node.agent.told) == (NONE, [])
        other.kill()
        await eventually(lambda: standby.connected)
        assert [one.id for one in node.agent.told[0][2]] == [before]
        assert (await node.start(pod, sandbox, "after"))[1] == FLOOR


@pytest.mark.parametrize("event", ["create", "starting"])
async def test_a_handler_that_hangs_costs_its_budget_once(node: Node, event: str) -> None:
    forever = asyncio.Event()
    node.agent.does[event] = forever.wait
    async with node.plugin() as plugin:
        pod, sandbox = await node.pod()
        _, first = await node.start(pod, sandbox, "hung")
        assert first == ([*NONE[:2], SOFT] if event == "create" else FLOOR[:2] + NONE[2:])
        assert plugin.connected
        del node.agent.does[event]
        assert (await node.start(pod, sandbox, "next"))[1] == FLOOR
        assert node.agent.names().count("synchronize") == 1  # containerd never gave up on us
        forever.set()
    method = {"create": "CreateContainer", "starting": "StartContainer"}[event]
    assert node.count(method, "late") == 1


async def test_a_handler_that_fails_fails_no_container(node: Node) -> None:
    async def fails() -> None:
        raise OSError(28, "No space left on device")

    node.agent.does = dict.fromkeys(("pod_started", "create", "starting", "update", "updated"), fails)
    async with node.plugin() as plugin:
        pod, sandbox = await node.pod()
        app, first = await node.start(pod, sandbox)
        await node.call("update", "--memory", "134217728", app)
        assert (first, plugin.connected) == (NONE, True)
    assert node.count("CreateContainer", "failed") == 1


async def test_twenty_at_once(node: Node) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(20))
    async with node.plugin():
        pods = await asyncio.gather(*(node.pod() for _ in range(4)))
        names = [(pod, sandbox, f"app{number}") for pod, sandbox in pods for number in range(5)]
        found = await asyncio.gather(*(node.start(*one) for one in names))
        assert [first for _, first in found] == [FLOOR] * 20
        assert node.agent.names().count("starting") == 20


async def test_containerd_starts_again(node: Node) -> None:
    """Last: the containerd that follows is a process of this test's."""
    async with node.plugin() as plugin:
        pod, sandbox = await node.pod()
        app, _ = await node.start(pod, sandbox, "before")
        with restarted(node.containerd) as start:
            await eventually(lambda: not plugin.connected)
            start()
            await eventually(lambda: plugin.connected)
            assert [one.id for one in node.agent.told[-1][2]] == [app]
            assert node.values(pod, app) == FLOOR
            assert (await node.start(pod, sandbox, "after"))[1] == FLOOR
            await asyncio.to_thread(node.containerd.cri.remove_all)


@contextlib.contextmanager
def restarted(containerd: Containerd) -> Iterator[Callable[[], None]]:
    """Kill containerd; what is yielded starts another in its namespaces, until the context ends."""
    config = str(containerd.folder / "config.toml")
    argv = [str(containerd.programs / "containerd"), "--config", config]
    pid = next(int(one.name) for one in Path("/proc").iterdir() if _command(one) == argv)
    inside = ["nsenter", f"--mount=/proc/{_parent(pid)}/ns/mnt", f"--pid=/proc/{_parent(pid)}/ns/pid"]
    os.kill(pid, signal.SIGKILL)
    started: list[subprocess.Popen[bytes]] = []
    environ = os.environ | {"PATH": f"{containerd.programs}:{os.environ['PATH']}"}
    with (containerd.folder / "containerd.log").open("ab") as log:
        try:
            yield lambda: started.append(
                subprocess.Popen([*inside, *argv], env=environ, stdout=log, stderr=log)
            )
        finally:
            for process in started:
                process.kill()
                process.wait()


def _command(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
