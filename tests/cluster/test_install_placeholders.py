"""`j10ce install --keeper placeholders` on a stock kube-scheduler: floors hold; uninstall leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.kubectl import find
from lab import placeholders
from lab.cluster import Cluster
from qos import keys
from tests.cluster.test_installed_rights import as_account
from tests.cluster.test_placeholders import HIGH, Rig, pod, policy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

J10CE = Path(sys.executable).with_name("j10ce")


def j10ce(cluster: Cluster, *arguments: str) -> Any:
    done = subprocess.run(
        [str(J10CE), *arguments, "--kubeconfig", str(cluster.kubeconfig), "-o", "json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def names(rig: Rig, *what: str) -> set[str]:
    return {one["metadata"]["name"] for one in rig.get(*what)["items"]}


def gates(rig: Rig, name: str) -> list[str]:
    return [one["name"] for one in rig.get("pod", name)["spec"].get("schedulingGates", [])]


def assert_nothing_is_left(rig: Rig, classes: set[str]) -> None:
    """Of ours; `classes`: the PriorityClasses that are not."""
    assert names(rig, "priorityclasses") == classes
    admission = ("mutatingwebhookconfigurations", "validatingadmissionpolicies", "mutatingadmissionpolicies")
    for kind in (*admission, "mutatingadmissionpolicybindings"):
        assert not any(name.startswith("j10ce") for name in names(rig, kind))
    assert not {placeholders.NAMESPACE, "j10ce-system"} & names(rig, "namespaces")
    assert names(rig, "pods", "-n", placeholders.NAMESPACE) == set()


@pytest.mark.full
def test_installed_it_keeps_floors_and_uninstalled_it_leaves_nothing(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(crds=False)
    kubectl = find(os.environ, cluster.kubeconfig, "")
    before = {item["metadata"]["name"] for item in kubectl.objects("get", "priorityclasses")}
    install = ("install", "--keeper", "placeholders", "--without", "manager")
    made = j10ce(cluster, *install)
    assert {change["action"] for change in made["changes"]} == {"create"}
    rig = Rig(cluster, as_account(cluster, kubectl))
    rig.with_nodes(2, "8")
    rig.create(HIGH, policy(2, "2", priorityClassName="high"))
    rig.wait(lambda: rig.stand() == 2, "a placeholder for each slot")
    rig.wait(lambda: "j10ce-owner-1001" in names(rig, "priorityclasses"), "what owners are raised to")
    again = j10ce(cluster, "install", "--without", "manager")  # as it is installed
    assert [one for one in again["changes"] if one["action"] != "keep"] == []
    rig.wait(lambda: rig.get("mutatingwebhookconfigurations", "j10ce-hand-over").get("webhooks"), "a webhook")

    rig.create(*(pod(f"batch-{number}", "1", "batch") for number in range(20)))
    rig.wait(lambda: len(rig.bound("batch")) >= 10, "batch pods take what is not held")
    rig.create(pod("checkout-0", "2", "checkout", priorityClassName="high"))
    rig.wait(lambda: len(rig.bound("checkout")) == 1, "an owner gets its slot on full nodes")
    assert rig.evicted() == 0
    rig.wait(lambda: rig.stand() == 1, "one placeholder is left")

    rig.program.kill()  # as the Deployment's end does
    other = {"name": "example.com/other"}
    rig.create(
        pod("waits", "2", "checkout", schedulingGates=[{"name": keys.HAND_OVER_GATE}]),
        pod("waits-longer", "2", "checkout", schedulingGates=[other, {"name": keys.HAND_OVER_GATE}]),
    )
    said = j10ce(cluster, "uninstall", "--dry-run")
    assert sorted(said["gatedPods"]) == ["default/waits", "default/waits-longer"]
    assert said["placeholders"] >= 1
    j10ce(cluster, "uninstall", "--yes")
    assert (gates(rig, "waits"), gates(rig, "waits-longer")) == ([], ["example.com/other"])
    assert_nothing_is_left(rig, before | {"high"})
