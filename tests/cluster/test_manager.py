"""The manager as it is installed: at work with its own account's rights, which are few, and killed."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import manifests
from lab import ports
from lab.cluster import Cluster
from qos import keys
from tests.cluster.narrowed import APPLY
from tests.waiting import until

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]
SECONDS = 240.0
ACCOUNT = "system:serviceaccount:j10ce-system:j10ce-manager"


@pytest.fixture(scope="module")
def installed(kubectl: Kubectl) -> Iterator[None]:
    """All of manifests/manager; its Deployment finds no node."""
    with manifests.overlay("second-scheduler") as folder:
        manager = str(folder.parents[1] / "manager")
        kubectl(*APPLY, "-k", manager)
        yield
        kubectl("delete", "--ignore-not-found", "-k", manager)


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    name = f"manager-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.parametrize(
    ("verb", "resource", "allowed"),
    [
        ("list", "pods", True),
        ("watch", "minimalreservationpolicies.j10ce.io", True),
        ("create", "events.events.k8s.io", True),
        ("get", "secrets", False),
        ("list", "secrets", False),
        ("create", "pods", False),
        ("patch", "pods", False),
        ("delete", "pods", False),
        ("patch", "pods/status", False),
        ("update", "minimalreservationpolicies.j10ce.io", False),
        ("patch", "minimalreservationpolicies.j10ce.io/status", False),
        ("list", "nodes", False),
        ("update", "leases.coordination.k8s.io", False),
        ("patch", "mutatingadmissionpolicies.admissionregistration.k8s.io", False),
    ],
)
def test_it_may_do_little(installed: None, kubectl: Kubectl, verb: str, resource: str, allowed: bool) -> None:
    said = kubectl("auth", "can-i", verb, resource, "-A", f"--as={ACCOUNT}", check=False).stdout.strip()
    assert said == ("yes" if allowed else "no")


@contextmanager
def at_work(
    cluster: Cluster, kubectl: Kubectl, folder: Path
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The manager as a process with its account's token, and its log."""
    document = json.loads(kubectl("config", "view", "--raw", "--minify", "-o", "json").stdout)
    token = kubectl("create", "token", "j10ce-manager", "-n", "j10ce-system").stdout.strip()
    for user in document["users"]:
        user["user"] = {"token": token}
    (folder / "kubeconfig").write_text(json.dumps(document))
    (port,) = ports.reserve(folder, 1)
    argv = [sys.executable, "-P", "-c", "from manager.commands import main; main()"]
    argv += ["--kubeconfig", str(folder / "kubeconfig"), "--address", f"127.0.0.1:{port}", "--identity", "m1"]
    log = folder / "log"
    with log.open("wb") as out, subprocess.Popen(argv, stderr=out) as started:
        try:
            yield started, log
        finally:
            started.kill()


def pod(name: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "checkout"}},
        "spec": {"containers": [{"name": "c", "image": "a:1", "resources": resources}]},
    }


POLICY = {
    "apiVersion": keys.API_VERSION,
    "kind": "MinimalReservationPolicy",
    "metadata": {"name": "checkout"},
    "spec": {
        "selector": {"matchLabels": {"app": "checkout"}},
        "floor": {"resources": {"cpu": "2"}},
        "slots": {"count": 0},
    },
}


def test_it_says_who_runs_below_the_floor_and_is_missed_by_no_pod(
    installed: None, cluster: Cluster, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    def notes() -> list[str]:
        found = json.loads(kubectl("get", "events.events.k8s.io", "-n", namespace, "-o", "json").stdout)
        return [one["note"] for one in found["items"] if one["reason"] == "RequestsBelowFloor"]

    def is_raised() -> bool:
        made = kubectl(
            "create", "--dry-run=server", "-o", "json", "-n", namespace, "-f", "-", document=pod("later")
        )
        requests = json.loads(made.stdout)["spec"]["containers"][0]["resources"]["requests"]
        return bool(requests["cpu"] == "2")

    def is_made() -> bool:
        document = pod("early")
        return kubectl("create", "-n", namespace, "-f", "-", document=document, check=False).returncode == 0

    until(is_made, "the namespace takes pods", SECONDS)
    kubectl("create", "-n", namespace, "-f", "-", document=POLICY)
    with at_work(cluster, kubectl, tmp_path) as (manager, log):
        until(notes, "it is told", SECONDS, log.read_text)
        (note,) = notes()
        assert note.startswith("1 pod requests less than the floor: early has cpu 100m, floor 2;")
        manager.kill()
        manager.wait(60)
        # Admission is the API server's own: nobody misses the manager.
        until(is_raised, "a new pod is raised", SECONDS, log.read_text)
        said = log.read_text(errors="replace")
    assert [line for line in said.splitlines() if "forbidden" in line.lower() or " 403 " in line] == []
