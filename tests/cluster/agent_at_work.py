"""An agent at work on a crowd of pods, most of which have a floor, and what its tests ask again and again."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from lab.agent_process import AgentProcess, part
from lab.cluster import Cluster, LabError
from lab.crowd import CrowdPod, crowd
from tests.cluster.agent_rig import RIGHTS, Place, place, policy

KEPT, FREE, NOBODY = "kept", "free", "nobody"
PODS, BESIDE = 20, 5
KUBELETS: Final = 16
"""The shares of a pod of the crowd that has a floor: it requests it, 16m, and all fit on half a CPU."""
_STRANGER: Final = 256_000
"""Millicores that a cgroup weighs which is no pod's: of up to 50 CPUs it leaves no pod its floor."""
_NUMBERS = itertools.count(1)


class AtWork(NamedTuple):
    """kept: all settings as they shall stay, path -> value; theirs: what kubelet wrote."""

    here: Place
    agent: AgentProcess
    kept: dict[str, str]
    theirs: dict[str, str]


class Crowded(NamedTuple):
    """20 pods with a floor, 5 without, and an agent for them that may run or not.

    Floors need more than kubelet's weights because of a cgroup that is no pod's. The pods without a floor
    request no CPU: what they have they need not keep.
    """

    here: Place
    agent: AgentProcess
    theirs: dict[str, str]

    def at_work(self) -> AtWork:
        """The agent runs, and has done everything that the API server says."""
        try:
            self.agent.pid  # noqa: B018 - raises where it does not run
        except LabError:
            self.agent.start()
        everybody_is_known(self.agent)
        settle(self.here, self.agent)
        return AtWork(self.here, self.agent, self._kept(), self.theirs)

    def _kept(self) -> dict[str, str]:
        """Every pod with a floor has more than kubelet gave it."""
        now = self.here.settings()
        changed = {path for path, value in now.items() if value != self.theirs[path]}
        for pod in self.here.pods_that_stay:
            assert any(pod.uid in path for path in changed) == (pod.labels["app"] == KEPT), pod.name
        return now


@contextlib.contextmanager
def in_a_crowd(cluster: Cluster, folder: Path) -> Iterator[Crowded]:
    """A node of its own for the time of the block."""
    with part("static") as own, crowd(own.mounts) as there, place(cluster, own, there, folder) as here:
        here.apply(policy(KEPT))
        there.stranger(_STRANGER)
        here.pods_that_stay = here.pods(KEPT, PODS) + here.pods(FREE, BESIDE, cpu=0)
        agent = here.agent("agent")
        yield Crowded(here, agent, here.settings())
        agent.end()


def everybody_is_known(agent: AgentProcess) -> None:
    """All pods that stay, with their containers, and nobody else."""
    agent.until(lambda: agent.metric("j10ce_agent_pods") == PODS + BESIDE, "all pods are known, and no other")
    agent.until(lambda: agent.metric("j10ce_agent_containers") == 2 * (PODS + BESIDE), "and their containers")


def settle(here: Place, agent: AgentProcess) -> None:
    """Until a pass was completed that began after the API server had said everything."""
    agent.until(lambda: "has spoken" in agent.last_life(), "the API server's word")
    for _ in range(2):  # the pass that ends first may have begun before
        before = agent.metric("j10ce_agent_passes_total")
        here.apply(policy(NOBODY, cpu=f"{next(_NUMBERS)}m"))
        agent.until(lambda: agent.metric("j10ce_agent_passes_total") > before, "a pass")  # noqa: B023


def shares(here: Place, pod: CrowdPod) -> Path:
    return here.crowd.file(pod, "cpu", "cpu.shares")


def drift(here: Place, kept: dict[str, str], pod: CrowdPod) -> str:
    """Somebody writes a file that is kept; its path."""
    path = str(shares(here, pod))
    assert kept[path] != "3"
    Path(path).write_text("3")
    assert here.settings([pod])[path] in ("3", kept[path])  # an agent at work may have been quicker
    return path


def until_kept(here: Place, agent: AgentProcess, kept: dict[str, str]) -> None:
    agent.until(lambda: here.settings() == kept, "everything as it was")


def has_floor(here: Place, pod: CrowdPod) -> bool:
    """More than what kubelet gave it."""
    return int(shares(here, pod).read_text()) > KUBELETS


def errors(agent: AgentProcess) -> dict[str, float]:
    """Errors of its loops, each of which would be a bug."""
    return {name: value for name, value in agent.metrics().items() if "loop_errors_total" in name and value}


def assert_nobody_was_evicted(here: Place) -> None:
    """The agent has no rights to remove a pod, and never asked for what it has not."""
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
