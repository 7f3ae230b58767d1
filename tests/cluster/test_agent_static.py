"""Whatever becomes of the agent, its disk, its API server and its clock: what it gave stays, and is kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from agent.nri import messages_pb2 as pb
from lab.agent_process import AgentProcess, part
from lab.cluster import Cluster
from lab.crowd import CrowdPod, crowd
from lab.runtimes.cgroups import Scratch
from tests.agent.nri.runtime_side import Runtime
from tests.cluster.agent_rig import RIGHTS, Place, Witness, place, policy
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="the agent writes cgroup files: be root"),
]

KEPT, FREE, NOBODY, MANY = "kept", "free", "nobody", "many"
PODS, BESIDE = 20, 5
YEAR = 365 * 86400
KUBELETS = 204
"""The shares of a pod of the crowd."""
SHARES = 102
"""Of a container of it."""


@pytest.fixture(scope="module")
def here(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """20 pods with a floor, 5 without."""
    folder = tmp_path_factory.mktemp("static")
    with part("static") as own, crowd(own.mounts) as there, place(cluster, own, there, folder) as made:
        made.apply(policy(KEPT))
        made.pods_that_stay = made.pods(KEPT, PODS) + made.pods(FREE, BESIDE)
        yield made


@pytest.fixture(scope="module")
def theirs(here: Place) -> dict[str, str]:
    """What kubelet wrote."""
    return here.settings()


@pytest.fixture(scope="module")
def first(here: Place, theirs: dict[str, str]) -> Iterator[AgentProcess]:
    made = here.agent("agent")
    yield made
    made.end()


@pytest.fixture
def agent(here: Place, first: AgentProcess) -> AgentProcess:
    """The agent at work: everything that the API server says is done."""
    try:
        first.pid  # noqa: B018 - raises where it does not run
    except Exception:
        first.start()
    settle(here, first)
    return first


@pytest.fixture
def kept(here: Place, agent: AgentProcess, theirs: dict[str, str]) -> dict[str, str]:
    """All settings as they shall stay: every pod with a floor has more than kubelet gave it."""
    now = here.settings()
    changed = {path for path, value in now.items() if value != theirs[path]}
    for pod in here.pods_that_stay:
        assert any(pod.uid in path for path in changed) == (pod.labels["app"] == KEPT), pod.name
    return now


@pytest.fixture
def witness(here: Place) -> Iterator[Witness]:
    made = Witness(here.crowd.mounts)
    yield made
    made.close()


def settle(here: Place, agent: AgentProcess) -> None:
    """Until a pass was completed after the API server had said everything."""
    agent.until(lambda: agent.metric('j10ce_agent_sync_silent_seconds{resource="pods"}') < 1e6, "metrics")
    agent.until(lambda: "has spoken" in last_life(agent), "the API server's word")
    before = agent.metric("j10ce_agent_passes")
    here.apply(policy(NOBODY, cpu=f"{time.monotonic_ns() % 10**6 + 1}m"))
    agent.until(lambda: agent.metric("j10ce_agent_passes") > before, "a pass")


def last_life(agent: AgentProcess) -> str:
    return agent.logged().rpartition("agent.process serving")[2]


def shares(here: Place, pod: CrowdPod) -> Path:
    return here.crowd.file(pod, "cpu", "cpu.shares")


def drift(here: Place, kept: dict[str, str], pod: CrowdPod) -> str:
    """Somebody writes a file that is kept; its path."""
    path = str(shares(here, pod))
    assert kept[path] != "3"
    Path(path).write_text("3")
    assert here.settings([pod])[path] in ("3", kept[path])  # where an agent is at work it may have been quicker
    return path


def until_kept(here: Place, agent: AgentProcess, kept: dict[str, str]) -> None:
    agent.until(lambda: here.settings() == kept, "everything as it was")


def test_killed(here: Place, agent: AgentProcess, kept: dict[str, str], witness: Witness) -> None:
    agent.end(signal.SIGKILL)
    assert here.settings() == kept
    path = drift(here, kept, here.crowd.pods[3])
    assert here.settings() == kept | {path: "3"}  # nobody is there
    agent.start()
    until_kept(here, agent, kept)
    settle(here, agent)
    assert witness.writes(agent.pid, kept) == [path]


def test_a_restart_writes_nothing(
    here: Place, agent: AgentProcess, kept: dict[str, str], witness: Witness
) -> None:
    pid = agent.pid
    assert agent.end(signal.SIGTERM) == 0
    agent.start()
    settle(here, agent)
    assert witness.writes(pid, kept) == witness.writes(agent.pid, kept) == []
    assert here.settings() == kept


def test_its_disk_is_damaged(
    here: Place, agent: AgentProcess, kept: dict[str, str], witness: Witness
) -> None:
    """What it remembers is cut off, is nonsense, is somebody else's, is of another version: floors stay."""
    agent.end()
    saved = here.folder / "saved"
    files = [agent.state / "known.json", agent.state / "budgets.json", agent.run / "originals"]
    files += list((agent.run / "pods").iterdir())[:5]
    for name, damage in DAMAGES.items():
        shutil.copytree(agent.folder, saved)
        for file in files:
            damage(file)
        agent.start()
        settle(here, agent)
        assert here.settings() == kept, name
        assert witness.writes(agent.pid, kept) == [], name
        path = drift(here, kept, here.crowd.pods[1])
        until_kept(here, agent, kept)
        until(lambda: {path} <= set(witness.writes(agent.pid, kept)), f"{name}: it is the agent who repaired")  # noqa: B023
        assert errors(agent) == {}, name
        agent.end()
        for folder in (agent.run, agent.state):
            shutil.rmtree(folder)
            shutil.copytree(saved / folder.name, folder)
        shutil.rmtree(saved)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] if file.exists() else b"")


def nonsense(file: Path) -> None:
    file.write_bytes(os.urandom(3000))


def anybodys(file: Path) -> None:
    file.touch()
    file.chmod(0o666)
    os.chown(file, 65534, 65534)


def newer(file: Path) -> None:
    """As an agent of a version to come has left it."""
    if file.name == "originals":
        file.write_text(
            file.read_text().replace("originals\t1", "originals\t2", 1).replace("/kube", "x/kube")
        )
    elif file.name == "known.json":
        header, _, body = file.read_text().partition("\n")
        file.write_text(json.dumps(json.loads(header) | {"version": 99}) + "\n" + body)
    elif file.name == "budgets.json":
        file.write_text(json.dumps({"version": 99, "what": "ever"}))
        file.chmod(0o600)


def older(file: Path) -> None:
    """As one of before the first version would have."""
    if file.name == "originals":
        file.write_text(file.read_text().replace("originals\t1", "originals\t0", 1))
    elif file.name == "known.json":
        header, _, body = file.read_text().partition("\n")
        file.write_text(json.dumps(json.loads(header) | {"version": 0}) + "\n" + body)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": cut,
    "nonsense": nonsense,
    "anybody's": anybodys,
    "newer": newer,
    "older": older,
    "gone": lambda file: file.unlink(missing_ok=True),
}


def errors(agent: AgentProcess) -> dict[str, float]:
    """Of its loops, each of which would be a bug."""
    return {name: value for name, value in agent.metrics().items() if "loop_errors_total" in name and value}


def test_a_second_one_stands_by(here: Place, agent: AgentProcess, kept: dict[str, str]) -> None:
    second = here.agent("second", home=agent.folder)
    second.start(ready=False)
    try:
        second.until(lambda: "stands by" in second.get("/readyz")[1], "standing by")
        path = drift(here, kept, here.crowd.pods[0])
        until_kept(here, agent, kept)
        assert second.metric("j10ce_agent_pods") == 0
        agent.end(signal.SIGKILL)
        drift(here, kept, here.crowd.pods[0])
        second.wait_ready()
        second.until(lambda: here.settings() == kept, f"{path} repaired by the second")
    finally:
        second.end()


def test_the_api_server_is_away(
    here: Place, agent: AgentProcess, kept: dict[str, str], witness: Witness, cluster: Cluster
) -> None:
    """And a pod is deleted meanwhile: it is forgotten once that is told, though its cgroups are there yet."""
    with here.more(KEPT, 1) as (gone,):
        agent.until(lambda: has_floor(here, gone), "the new pod's floor")
        settle(here, agent)
        agent.until(lambda: gone.uid in (agent.state / "known.json").read_text(), "the new pod in the cache")
        everything = here.settings(here.crowd.pods)
        agent.end()
        here.forget([gone])
        cluster.kill("kube-apiserver")
        try:
            drift(here, everything, here.crowd.pods[2])
            agent.start()  # ready without the API server
            agent.until(lambda: here.settings(here.crowd.pods) == everything, "all as it was")
            agent.end()
            witness.writes(0, ())
            (agent.state / "known.json").write_text("")
            agent.start(ready=False)  # nor does it take anything back when it knows nothing
            agent.until(
                lambda: agent.metric('j10ce_agent_sync_silent_seconds{resource="pods"}') > 2, "silence"
            )
            assert agent.get("/readyz")[0] == 503
            assert witness.writes(agent.pid, everything) == []
        finally:
            cluster.start("kube-apiserver")
        until(lambda: cluster.kubectl("get", "--raw=/readyz", check=False) == "ok", "the API server is back")
        settle(here, agent)
        assert agent.metric("j10ce_agent_pods") == PODS + BESIDE
        assert shares(here, gone).read_text() == f"{KUBELETS}\n"
    settle(here, agent)
    until_kept(here, agent, kept)
    assert not (agent.run / "pods" / gone.uid).exists()


def has_floor(here: Place, pod: CrowdPod) -> bool:
    """More than what kubelet gave it."""
    return int(shares(here, pod).read_text()) > KUBELETS


def test_clocks_step(here: Place, agent: AgentProcess, kept: dict[str, str]) -> None:
    """The wall clock while it runs, both ways; the others with a boot of which it knows nothing."""
    agent.end()
    step = here.folder / "step"
    step.write_text("0")
    code = (
        "import functools, pathlib, sys, time; from agent import commands, program;"
        f"wall = lambda: time.time() + float(pathlib.Path({str(step)!r}).read_text());"
        "program.Agent = functools.partial(program.Agent, wall=wall); commands.main()"
    )
    stepped = here.agent("stepped", program=(sys.executable, "-P", "-c", code), home=agent.folder)
    stepped.start()
    for seconds in (YEAR, -30 * YEAR, 0):
        step.write_text(str(seconds))
        drift(here, kept, here.crowd.pods[4])
        stepped.until(lambda: here.settings() == kept, f"{seconds} s off")
        settle(here, stepped)
        assert errors(stepped) == {}
    stepped.end(signal.SIGTERM)
    for days in (400, 2, 1000):
        boots(here, agent, kept, days)
    assert here.settings() == kept


def boots(here: Place, agent: AgentProcess, kept: dict[str, str], days: int) -> None:
    """A life of the agent in which the monotonic clocks are so many days ahead."""
    clocks = [f"--{clock}={days * 86400}" for clock in ("monotonic", "boottime")]
    unshare = ["unshare", "--time", "--fork", "--kill-child", *clocks]
    wrap = lambda argv: here.part.argv([*unshare, *argv])  # noqa: E731
    later = here.agent("later", wrap=wrap, home=agent.folder, parent=True)
    later.start()
    drift(here, kept, here.crowd.pods[5])
    later.until(lambda: here.settings() == kept, f"{days} days later")
    settle(here, later)
    assert errors(later) == {}
    assert later.end(signal.SIGTERM) == 0


def test_cgroups_go_in_the_middle_of_a_pass(
    here: Place, agent: AgentProcess, kept: dict[str, str], witness: Witness
) -> None:
    agent.end()
    with here.more(KEPT, 12, empty=True) as new:
        files = here.settings(new)
        agent.start(ready=False)
        until(lambda: witness.writes(agent.pid, files), "the first write of a pass")
        for pod in reversed(new):
            here.crowd.remove(pod)
        agent.wait_ready()
        settle(here, agent)
        assert errors(agent) == {}
        assert all(has_floor(here, pod) for pod in here.pods_that_stay[:PODS])
    settle(here, agent)
    assert agent.metric("j10ce_agent_pods") == PODS + BESIDE
    until_kept(here, agent, kept)


@pytest.mark.parametrize("full", ["bytes", "inodes"])
def test_the_disk_is_full(
    here: Place, agent: AgentProcess, kept: dict[str, str], theirs: dict[str, str], full: str
) -> None:
    """A new agent that cannot write a byte; and one that was there, and cannot make a file."""
    agent.end()
    folder = here.folder / "small"
    folder.mkdir(exist_ok=True)
    inside(here, "mount", "-t", "tmpfs", "-o", "size=2m,nr_inodes=100", full, folder)
    inside(here, "mkdir", "-m", "700", folder / "run", folder / "state")
    put_back(theirs)  # it is new here
    small = here.agent(f"full-of-{full}", home=folder)
    try:
        if full == "inodes":
            small.start()
            small.end()
            put_back(theirs)
        inside(here, "sh", "-c", FILL[full], folder)
        small.start()
        until_kept(here, small, kept)
        with here.more(KEPT, 1) as (new,):
            small.until(lambda: has_floor(here, new), "a new pod's floor")
            shares(here, new).write_text("3")
            small.until(lambda: has_floor(here, new), "a repair")
            small.until(
                lambda: small.metric('j10ce_agent_store_saves_total{outcome="failed"}'), "it tries to save"
            )
        assert errors(small) == {}
        inside(here, "mount", "-o", "remount,size=64m,nr_inodes=1000", folder)
        small.end(signal.SIGTERM)
        inside(here, "test", "-s", folder / "state" / "known.json")
    finally:
        small.end()
        inside(here, "umount", folder)
        put_back(theirs)


FILL = {
    "bytes": 'yes 2>&- >"$0/fill" || :',
    "inodes": 'number=0; while touch "$0/fill-$number"; do number=$((number + 1)); done',
}


def put_back(settings: dict[str, str]) -> None:
    """As if an agent had never been here."""
    for path, value in settings.items():
        if Path(path).read_text().strip() != value:
            Path(path).write_text(value)


def inside(here: Place, *argv: str | Path) -> None:
    subprocess.run(here.part.argv(argv), check=True, timeout=30, stderr=subprocess.DEVNULL)


def test_a_policy_changes_and_goes(
    here: Place, agent: AgentProcess, kept: dict[str, str], theirs: dict[str, str]
) -> None:
    """Others' files stay as kubelet wrote them, whatever the policy says; without it all are kubelet's."""
    ours = {path for path, value in kept.items() if value != theirs[path]}
    here.apply(policy(KEPT, cpu="42m"))
    agent.until(lambda: all(here.settings()[path] != kept[path] for path in ours), "the new floor")
    now = here.settings()
    assert {path for path in now if now[path] != kept[path]} == ours
    assert all(has_floor(here, pod) for pod in here.pods_that_stay[:PODS])
    here.kubectl("delete", "mrp", KEPT)
    agent.until(lambda: here.settings() == theirs, "everything as kubelet wrote it")
    assert not (agent.run / "originals").read_text().count("pod" + here.crowd.pods[0].uid + "\tcpu.shares\t9")
    here.apply(policy(KEPT))
    until_kept(here, agent, kept)


def test_250_at_once(
    here: Place, agent: AgentProcess, kept: dict[str, str], record_property: Callable[[str, object], None]
) -> None:
    began, cpu = agent.metric("j10ce_agent_passes"), agent.cpu_seconds()
    here.apply(policy(MANY, cpu="2m", memory="1Mi"))
    with here.more(MANY, 250, cpu=1, empty=True) as new:
        agent.until(
            lambda: all(shares(here, pod).read_text() != "2\n" for pod in new), "all have their floors"
        )
        settle(here, agent)
        record_property("passes", agent.metric("j10ce_agent_passes") - began)
        record_property("seconds of the last pass", agent.metric("j10ce_agent_pass_seconds"))
        record_property("CPU seconds", agent.cpu_seconds() - cpu)
        assert errors(agent) == {}
    agent.until(lambda: agent.metric("j10ce_agent_pods") == PODS + BESIDE, "all are forgotten")
    settle(here, agent)  # nobody tells it of cgroups that go
    until_kept(here, agent, kept)


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
        await asyncio.to_thread(told.start)
        runtime = await asyncio.wait_for(accepted.get(), 60)
        await runtime.registered()
        await runtime.configured()
        await runtime.synchronized()
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
    here: Place, agent: AgentProcess, kept: dict[str, str], record_property: Callable[[str, object], None]
) -> None:
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


async def test_a_pass_between_birth_and_start(here: Place, agent: AgentProcess, kept: dict[str, str]) -> None:
    """What kubelet asked for is known still when the container starts with our values in its spec."""
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
    status, payload = await runtime.call(method, request)
    assert status == 0, method
    return payload


def test_nothing_was_evicted(here: Place, agent: AgentProcess) -> None:
    """Through all of the above: it has no rights to remove a pod, and never asked for what it has not."""
    assert here.alive() == {pod.name: pod.uid for pod in here.crowd.pods}
    account = f"--as=system:serviceaccount:{here.namespace}:agent"
    for verb, what in (
        ("delete", "pods"),
        ("create", "pods/eviction"),
        ("patch", "pods"),
        ("delete", "nodes"),
    ):
        assert here.cluster.kubectl("auth", "can-i", verb, what, account, check=False) == "no\n"
    logs = "".join(log.read_text() for log in here.folder.glob("*/agent.log"))
    assert "spoken" in logs
    refused = set(re.findall(r'cannot (\w+) resource \\*"(\w+)', logs))  # while an API server begins, it may
    assert refused <= {
        (verb, name) for rule in RIGHTS for verb in rule["verbs"] for name in rule["resources"]
    }
