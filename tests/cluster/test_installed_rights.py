"""Extender and second kube-scheduler at work with the installed account's rights: nothing is refused."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import manifests
from cli import plan
from cli.install import apply
from cli.kubectl import Kubectl, find
from lab import cluster as lab_cluster
from lab import components, extender_process
from lab.cluster import Cluster

pytestmark = pytest.mark.cluster

SCHEDULER = Path(__file__).parents[2] / "scheduler-config" / "second-scheduler.yaml"


class AsAccount(Cluster):
    """The same cluster, seen as the extender's account."""

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "account.kubeconfig"


def as_account(cluster: Cluster, kubectl: Kubectl) -> AsAccount:
    """With a token of the account in place of the administrator's certificate."""
    token = kubectl.run("create", "token", "j10ce-extender", "--namespace", "j10ce-system").strip()
    document = json.loads(kubectl.run("config", "view", "--raw", "--minify", "-o", "json"))
    for user in document["users"]:
        user["user"] = {"token": token}
    own = AsAccount(**{field.name: getattr(cluster, field.name) for field in fields(cluster)})
    own.kubeconfig.write_text(json.dumps(document))
    return own


@contextmanager
def at_work(own: AsAccount) -> Iterator[Callable[[], str]]:
    """Both programs running as in the Deployment; gives what they have logged so far."""
    with manifests.overlay("second-scheduler") as folder:
        extra = ["--config", str(folder / "extender.yaml"), "--identity", "e1"]
        extender = extender_process.start(own, extra=extra)
        extender.wait_ready(120)
        lab_cluster.add_scheduler(own, "j10ce-scheduler", SCHEDULER, verbs_url=extender.verbs_url)
        logs = [extender.log, components.find(own.folder, "j10ce-scheduler").log]
        yield lambda: "".join(log.read_text(errors="replace") for log in logs)


def node(name: str) -> dict[str, Any]:
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": capacity, "capacity": capacity},
    }


def pod(name: str, app: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {
            "schedulerName": "j10ce-scheduler",
            "containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "2"}}}],
        },
    }


POLICY = {
    "apiVersion": "j10ce.io/v1alpha1",
    "kind": "MinimalReservationPolicy",
    "metadata": {"name": "checkout", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"app": "checkout"}},
        "floor": {"resources": {"cpu": "2"}},
        "slots": {"count": 3},
    },
}


def wait_for(what: str, check: Callable[[], bool], logs: Callable[[], str]) -> None:
    deadline = time.monotonic() + 90
    while not check():
        assert time.monotonic() < deadline, f"{what}: {logs()[-3000:]}"
        time.sleep(0.1)


def test_they_do_their_work_with_these_rights(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(crds=False)
    kubectl = find(os.environ, cluster.kubeconfig, "")
    wanted = plan.objects(kubectl, "second-scheduler", plan.Choices())
    apply(kubectl, [item for item in wanted if item["kind"] != "Deployment"], force_conflicts=False)

    def create(*objects: dict[str, Any]) -> None:
        kubectl.run(
            "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )

    def read(*arguments: str) -> Any:
        return kubectl.objects("get", *arguments)

    create(node("n1"), node("n2"))
    with at_work(as_account(cluster, kubectl)) as logs:
        create(POLICY, pod("checkout-1", "checkout"), pod("other", "other"))

        def bound() -> bool:
            pods = read("pods", "--namespace", "default")
            return all(item["spec"].get("nodeName") for item in pods)

        def reported() -> bool:
            status = read("mrp", "checkout", "--namespace", "default")[0].get("status", {})
            return bool(status.get("slots", {}).get("filled") == 1 and status["slots"]["held"] == 2)

        def annotated() -> bool:
            return any("j10ce.io/held" in item["metadata"].get("annotations", {}) for item in read("nodes"))

        wait_for("both pods are bound", bound, logs)
        wait_for("the status says so", reported, logs)
        wait_for("nodes with holds are annotated", annotated, logs)
        owner = read("pod", "checkout-1", "--namespace", "default")[0]
        assert owner["metadata"]["annotations"]["j10ce.io/policy"] == "default/checkout"
        assert owner["metadata"]["annotations"]["j10ce.io/bound-by"] == "e1"
        assert read("lease", "j10ce-extender", "--namespace", "j10ce-system")

        # Three more of 6 CPU: two refused for the holds, and woken when the policy lets go.
        big = [pod(f"big-{n}", "big") for n in range(2)]
        for item in big:
            item["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "5"
        create(*big)

        def refused() -> bool:
            pods = read("pods", "--namespace", "default", "--selector", "app=big")
            text = json.dumps([item["status"] for item in pods])
            return "holds of default/checkout" in text

        wait_for("a pod is refused for the holds", refused, logs)
        kubectl.run(
            *(
                "patch",
                "mrp",
                "checkout",
                "-n",
                "default",
                "--type=merge",
                "-p",
                '{"spec": {"suspend": true}}',
            )
        )
        wait_for("it is woken and bound", bound, logs)
        said = [line for line in logs().splitlines() if "forbidden" in line.lower() or " 403 " in line]
        assert said == []
