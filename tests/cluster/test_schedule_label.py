"""Pods of labelled namespaces, in a real API server: to the second scheduler, but for those left alone."""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

import manifests
from cli import installation
from lab import minors
from qos import keys
from tests.cluster.narrowed import APPLY, Kubectl
from tests.waiting import until

pytestmark = pytest.mark.cluster

LABEL = f"{keys.SCHEDULE_LABEL}=true"
OFF = f"{keys.SCHEDULE_LABEL}-"
DEFAULT = "default-scheduler"
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "a:1"}]},
}


@pytest.fixture(scope="module")
def policy(kubectl: Kubectl) -> Iterator[dict[str, Any]]:
    """The policy and its binding, applied."""
    with manifests.overlay("second-scheduler") as folder:
        items = list(YAML(typ="safe").load_all(folder / "schedule.yaml"))
    served = json.loads(kubectl("get", "--raw", "/apis/admissionregistration.k8s.io/v1").stdout)
    if items[0]["kind"] not in {one["kind"] for one in served["resources"]}:  # before Kubernetes 1.36
        for item in items:
            item["apiVersion"] = minors.BETA
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    kubectl(*APPLY, "-f", "-", document=document)
    yield document
    kubectl("delete", "--ignore-not-found", "-f", "-", document=document)


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    name = f"schedule-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


def scheduler_of(kubectl: Kubectl, namespace: str, *, metadata: Any = None, **spec: Any) -> str:
    """Where the API server would send a pod; "" while the namespace takes none."""
    pod = copy.deepcopy(POD)
    pod["metadata"] |= metadata or {}
    pod["spec"] |= spec
    argv = ("create", "--dry-run=server", "-o", "json", "-n", namespace, "-f", "-")
    made = kubectl(*argv, document=pod, check=False)
    return str(json.loads(made.stdout)["spec"]["schedulerName"]) if made.stdout else ""


def label(kubectl: Kubectl, namespace: str, what: str, then: str) -> None:
    """Label a namespace, and wait until its pods go to that scheduler."""
    kubectl("label", "namespace", namespace, what)
    until(lambda: scheduler_of(kubectl, namespace) == then, f"{namespace}'s pods go to {then}", 120)


def test_its_label_sends_new_pods_and_taken_off_does_not(
    kubectl: Kubectl, policy: dict[str, Any], namespace: str
) -> None:
    until(lambda: scheduler_of(kubectl, namespace) == DEFAULT, "the namespace takes pods", 120)
    label(kubectl, namespace, LABEL, installation.SCHEDULER)
    label(kubectl, namespace, OFF, DEFAULT)


def test_who_is_left_alone(kubectl: Kubectl, policy: dict[str, Any], namespace: str) -> None:
    label(kubectl, namespace, LABEL, installation.SCHEDULER)
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    replicas = daemon | {"kind": "ReplicaSet"}
    assert scheduler_of(kubectl, namespace, schedulerName="volcano") == "volcano"
    assert scheduler_of(kubectl, namespace, nodeName="n1") == DEFAULT
    assert scheduler_of(kubectl, namespace, metadata={"ownerReferences": [daemon]}) == DEFAULT
    assert (
        scheduler_of(kubectl, namespace, metadata={"ownerReferences": [replicas]}) == installation.SCHEDULER
    )
    assert scheduler_of(kubectl, namespace, metadata={"labels": {keys.SCHEDULE_LABEL: "false"}}) == DEFAULT
    kubectl("label", "namespace", "kube-system", LABEL)
    try:
        # The other namespace's label was seen, so is this one's once an object that came later is.
        marker = f"schedule-{secrets.token_hex(3)}"
        kubectl("create", "namespace", marker)
        label(kubectl, marker, LABEL, installation.SCHEDULER)
        assert scheduler_of(kubectl, "kube-system") == DEFAULT
        kubectl("delete", "namespace", marker, "--wait=false")
    finally:
        kubectl("label", "namespace", "kube-system", OFF)


def test_removed_it_sends_nobody(kubectl: Kubectl, policy: dict[str, Any], namespace: str) -> None:
    label(kubectl, namespace, LABEL, installation.SCHEDULER)
    kubectl("delete", "-f", "-", document=policy)
    until(lambda: scheduler_of(kubectl, namespace) == DEFAULT, "the policy is forgotten", 120)
