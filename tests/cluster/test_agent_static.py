"""Whatever becomes of the agent, its memory, its API server: what it gave stays, and is kept."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.agent_process import AgentProcess
from lab.cluster import Cluster
from tests.cluster.agent_at_work import (
    KEPT,
    KUBELETS,
    PODS,
    AtWork,
    Crowded,
    assert_nobody_was_evicted,
    drift,
    errors,
    everybody_is_known,
    has_floor,
    settle,
    shares,
    until_kept,
)
from tests.cluster.agent_rig import Witness
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="the agent writes cgroup files: be root"),
]


@pytest.fixture
def witness(crowded: Crowded) -> Iterator[Witness]:
    made = Witness(crowded.here.crowd.mounts)
    yield made
    made.close()


def test_killed(at_work: AtWork, witness: Witness) -> None:
    here, agent, kept, _ = at_work
    agent.end(signal.SIGKILL)
    assert here.settings() == kept
    path = drift(here, kept, here.crowd.pods[3])
    assert here.settings() == kept | {path: "3"}  # nobody is there
    agent.start()
    until_kept(here, agent, kept)
    settle(here, agent)
    assert witness.writes(agent.pid, kept) == [path]


def test_a_restart_writes_nothing(at_work: AtWork, witness: Witness) -> None:
    here, agent, kept, _ = at_work
    pid = agent.pid
    assert agent.end(signal.SIGTERM) == 0
    agent.start()
    settle(here, agent)
    assert witness.writes(pid, kept) == []
    assert witness.writes(agent.pid, kept) == []
    assert here.settings() == kept


def test_its_disk_is_damaged(at_work: AtWork, witness: Witness) -> None:
    """What it remembers is cut off, is nonsense, is somebody else's, is of another version: floors stay."""
    here, agent, kept, _ = at_work
    agent.until(lambda: remembered(agent), "what it knows is on its disk")
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
        until(lambda: path in witness.writes(agent.pid, kept), f"{name}: it is the agent who repaired")  # noqa: B023
        assert errors(agent) == {}, name
        agent.end()
        for folder in (agent.run, agent.state):
            shutil.rmtree(folder)
            shutil.copytree(saved / folder.name, folder)
        shutil.rmtree(saved)


def test_a_second_one_stands_by(at_work: AtWork) -> None:
    here, agent, kept, _ = at_work
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


def test_cgroups_go_in_the_middle_of_a_pass(at_work: AtWork, witness: Witness) -> None:
    here, agent, kept, _ = at_work
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
    everybody_is_known(agent)
    settle(here, agent)
    until_kept(here, agent, kept)


def test_the_api_server_is_away(at_work: AtWork, witness: Witness, cluster: Cluster) -> None:
    """And a pod is deleted meanwhile: it is forgotten once that is reported, though its cgroups are still
    there.
    """
    here, agent, kept, _ = at_work
    with here.more(KEPT, 1) as (gone,):
        agent.until(lambda: has_floor(here, gone), "the new pod's floor")
        settle(here, agent)
        agent.until(lambda: gone.uid in remembered(agent), "the new pod on the disk")
        everything = here.settings(here.crowd.pods)
        agent.end()
        here.forget([gone])
        cluster.kill("kube-apiserver")
        try:
            drift(here, everything, here.crowd.pods[2])
            agent.start()  # ready without the API server
            agent.until(lambda: here.settings(here.crowd.pods) == everything, "all as it was")
            agent.end()
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
        everybody_is_known(agent)
        settle(here, agent)
        assert shares(here, gone).read_text() == f"{KUBELETS}\n"
    settle(here, agent)
    until_kept(here, agent, kept)
    agent.until(lambda: not (agent.run / "pods" / gone.uid).exists(), "no file of the pod that is gone")


def remembered(agent: AgentProcess) -> str:
    """Its own copy of what it knows; empty where there is none yet."""
    file = agent.state / "known.json"
    return file.read_text() if file.exists() else ""


def test_nobody_was_evicted(at_work: AtWork) -> None:
    """Through all of the above."""
    assert_nobody_was_evicted(at_work.here)


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
