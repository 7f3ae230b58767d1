"""The agent while clocks step, the disk is full, policies change and pods come in hundreds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from adapters import atomic_file
from lab.agent_process import AgentProcess
from tests.cluster.agent_at_work import (
    KEPT,
    PODS,
    AtWork,
    assert_nobody_was_evicted,
    drift,
    errors,
    everybody_is_known,
    has_floor,
    settle,
    shares,
    until_kept,
)
from tests.cluster.agent_rig import Place, policy

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="the agent writes cgroup files: be root"),
]

MANY = "many"
YEAR = 365 * 86400


def test_clocks_step(at_work: AtWork) -> None:
    """The wall clock while it runs, both ways; the others with a boot of which it knows nothing."""
    here, agent, kept, _ = at_work
    agent.end()
    step = here.folder / "step"
    atomic_file.write(step, b"0")
    code = (
        "import functools, pathlib, sys, time; from agent import commands, program;"
        f"wall = lambda: time.time() + float(pathlib.Path({str(step)!r}).read_text());"
        "program.Agent = functools.partial(program.Agent, wall=wall); commands.main()"
    )
    stepped = here.agent("stepped", program=(sys.executable, "-P", "-c", code), home=agent.folder)
    stepped.start()
    for seconds in (YEAR, -30 * YEAR, 0):
        atomic_file.write(step, str(seconds).encode())  # it is read all the time
        drift(here, kept, here.crowd.pods[4])
        stepped.until(lambda: here.settings() == kept, f"{seconds} s off")
        settle(here, stepped)
        assert errors(stepped) == {}
    stepped.end(signal.SIGTERM)
    for days in (400, 2, 1000):
        boots(here, agent, kept, days)
    assert here.settings() == kept


def boots(here: Place, agent: AgentProcess, kept: dict[str, str], days: int) -> None:
    """A life of the agent in which the monotonic clocks are this many days ahead."""
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


@pytest.mark.parametrize("full", ["bytes", "inodes"])
def test_the_disk_is_full(at_work: AtWork, full: str) -> None:
    """A new agent that cannot write a byte; and one that was there, and cannot make a file."""
    here, agent, kept, theirs = at_work
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


def test_a_policy_changes_and_goes(at_work: AtWork) -> None:
    """Others' files stay as kubelet wrote them, whatever the policy says; without it all are kubelet's."""
    here, agent, kept, theirs = at_work
    ours = {path for path, value in kept.items() if value != theirs[path]}
    pods = here.pods_that_stay[:PODS]
    weights = {pod.uid: shares(here, pod).read_text() for pod in pods}
    here.apply(policy(KEPT, cpu="10m"))
    agent.until(
        lambda: all(shares(here, pod).read_text() != weights[pod.uid] for pod in pods), "the new floor"
    )
    settle(here, agent)
    assert changed(here, kept) <= ours
    assert all(has_floor(here, pod) for pod in pods)
    here.kubectl("delete", "mrp", KEPT)
    agent.until(lambda: here.settings() == theirs, "everything as kubelet wrote it")
    assert not (agent.run / "originals").read_text().count("pod" + here.crowd.pods[0].uid + "\tcpu.shares\t9")
    here.apply(policy(KEPT))
    until_kept(here, agent, kept)


def changed(here: Place, before: dict[str, str]) -> set[str]:
    """The files that have other values now."""
    return {path for path, value in here.settings().items() if value != before[path]}


@pytest.mark.full
def test_250_at_once(at_work: AtWork, record_property: Callable[[str, object], None]) -> None:
    here, agent, kept, _ = at_work
    began, cpu = agent.metric("j10ce_agent_passes_total"), agent.cpu_seconds()
    here.apply(policy(MANY, cpu="2m", memory="1Mi"))
    with here.more(MANY, 250, cpu=1, empty=True) as new:
        agent.until(
            lambda: all(shares(here, pod).read_text() != "2\n" for pod in new), "all have their floors"
        )
        settle(here, agent)
        record_property("passes", agent.metric("j10ce_agent_passes_total") - began)
        record_property("seconds of the last pass", agent.metric("j10ce_agent_pass_seconds"))
        record_property("CPU seconds", agent.cpu_seconds() - cpu)
        assert errors(agent) == {}
    everybody_is_known(agent)
    settle(here, agent)  # nobody tells it of cgroups that go
    until_kept(here, agent, kept)


def test_nobody_was_evicted(at_work: AtWork) -> None:
    """Through all of the above."""
    assert_nobody_was_evicted(at_work.here)
