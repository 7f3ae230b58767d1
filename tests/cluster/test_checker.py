"""The checker catches planted faults on a real control plane; and scenarios run in somebody's own cluster."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import extender_process
from lab.cluster import Cluster

J10CE = Path(sysconfig.get_path("scripts")) / "j10ce"
CONFIGS = Path(__file__).parents[2] / "scheduler-config"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ALWAYS = "no floor broken, no node over-committed, at any moment"
SCENARIO = """\
name: planted
description: a floor of three slots on two nodes of four CPU
cluster:
  schedulerConfig: CONFIG
  extender: {EXTENDER}
nodes:
  - {name: planted, count: 2, allocatable: {cpu: "4", memory: 16Gi}}
policies:
  - name: checkout
    spec:
      selector: {matchLabels: {app: checkout}}
      floor: {resources: {cpu: "2"}}
      slots: {count: 3}
steps:
"""


def scenario(folder: Path, extender: str, steps: str) -> Path:
    text = SCENARIO.replace("CONFIG", str(CONFIGS / "default-scheduler.yaml")).replace("EXTENDER", extender)
    file = folder / "planted.yaml"
    file.write_text(text + steps)
    return file


def run(file: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [J10CE, "scenario", "run", file, "-o", "json", *options],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)[0], done.stderr


def violations(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What the checker found; and nothing but that made the run fail."""
    (one,) = result["runs"]
    missed = [outcome for outcome in one["expectations"] if not outcome["met"]]
    assert [outcome["says"] for outcome in missed] == [ALWAYS], missed
    found: list[dict[str, Any]] = one["checker"]["violations"]
    return found


@pytest.mark.usefixtures("binaries")
def test_a_flood_without_an_extender_breaks_the_floor(tmp_path: Path) -> None:
    steps = """\
  - wait: {until: [{policy: {name: checkout, promised: 3}}], within: 60s}
  - create: {name: batch, count: 10, requests: {cpu: "1"}}
  - wait: {until: [{pods: {workload: batch, bound: 8}}], within: 60s}
"""
    code, result, _ = run(scenario(tmp_path, "enabled: false", steps))
    assert code == 1
    broken = violations(result)
    assert {(v["kind"], v["policy"]) for v in broken} == {("FloorBroken", "scenario/checkout")}
    assert len(broken) == 3
    assert all(v["pod"].startswith("scenario/batch-") and v["node"].startswith("planted-") for v in broken)


@pytest.mark.usefixtures("binaries")
def test_a_bind_behind_the_extenders_back_breaks_the_floor_and_the_node(tmp_path: Path) -> None:
    """The pods wait, refused; then somebody binds them as if kube-scheduler had."""
    steps = """\
  - wait: {until: [{policy: {name: checkout, held: 3, promised: 3}}], within: 60s}
  - create: {name: batch, count: 5, requests: {cpu: "3"}}
  - wait:
      until:
        - pods: {workload: batch, pending: 5}
        - event: {reason: FailedScheduling, about: batch-, count: {atLeast: 5}}
      within: 60s
  - bind: {workload: batch, nodes: planted-}
"""
    code, result, _ = run(scenario(tmp_path, "mode: Strict", steps))
    assert code == 1
    kinds = [v["kind"] for v in violations(result)]
    assert "FloorBroken" in kinds
    assert "OverCommitted" in kinds


def test_in_a_cluster_of_ones_own(tmp_path: Path, make_cluster: Callable[..., Cluster]) -> None:
    """It passes there, beside objects of others, and leaves nothing behind."""
    cluster = make_cluster(CONFIGS / "default-scheduler.yaml")
    extender = extender_process.start(cluster, extra=["--cap-percent=100"])
    extender.wait_ready(60)
    cluster.kubectl("create", "namespace", "theirs")
    cluster.kubectl("create", "priorityclass", "theirs", "--value=7")
    before = everything(cluster)
    steps = """\
  - wait: {until: [{policy: {name: checkout, held: 3, promised: 3}}], within: 60s}
  - create: {name: batch, count: 10, requests: {cpu: "1"}}
  - wait: {until: [{pods: {workload: batch, bound: 2, pending: 8}}], within: 60s}
  - create: {name: checkout, count: 3, requests: {cpu: "2"}}
expectations:
  - pods: {workload: checkout, bound: 3}
"""
    file = scenario(tmp_path, "mode: Guard", steps)
    code, result, errors = run(file, "--kubeconfig", str(cluster.kubeconfig))
    assert code == 0, f"{result}\n{errors}"
    gone = ("wait", "namespace", "--selector=j10ce.io/scenario", "--for=delete", "--timeout=180s")
    cluster.kubectl(*gone, seconds=200)
    assert everything(cluster) == before


def test_what_kills_components_is_refused_there(tmp_path: Path, cluster: Cluster) -> None:
    file = scenario(tmp_path, "mode: Guard", "  - kill: {component: extender}\n")
    done = subprocess.run(
        [J10CE, "scenario", "run", file, "--kubeconfig", cluster.kubeconfig],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert "kills components: it needs a lab cluster" in done.stderr


def everything(cluster: Cluster) -> str:
    """Names of all that a scenario could leave behind."""
    kinds = "namespaces,nodes,priorityclasses,qosprofiles,minimalreservationpolicies,pods"
    return cluster.kubectl("get", kinds, "--all-namespaces", "--output=name")
