"""Budgets in a real API server: what kubectl shows of them, and what tenants may do."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.app import app
from tests.cluster.narrowed import APPLY
from tests.waiting import until

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]
SECONDS = 120.0


@pytest.fixture(scope="module")
def shop(kubectl: Kubectl) -> Iterator[str]:
    """A namespace with a label of its own, and one budget for it of which 30 CPUs are used."""
    manifests = resources.files("manifests")
    kubectl(*APPLY, "-f", str(manifests / "crds"))
    kubectl("wait", "--for", "condition=Established", "--timeout", "60s", "crd", "--all")
    kubectl(*APPLY, "-f", str(manifests / "base" / "user-rights.yaml"))
    name = f"shop-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    document = {
        "apiVersion": "j10ce.io/v1alpha1",
        "kind": "ReservationBudget",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {"matchLabels": {"team": name}},
            "perNamespace": {"cpu": 40, "slots": "20"},
            "total": {"memory": "100Gi"},
        },
    }
    kubectl("create", "-f", "-", document=document)
    amounts = [
        {"resource": "cpu", "used": "30", "hard": "40", "left": "10"},
        {"resource": "slots", "used": "3", "hard": "20", "left": "17"},
    ]
    status = {
        "perNamespace": [{"name": name, "policies": 1, "exceeding": 0, "amounts": amounts}],
        "total": [{"resource": "memory", "used": "96Gi", "hard": "100Gi", "left": "4Gi"}],
        "usedOfTotal": "memory: 96Gi/100Gi",
        "fullest": f"{name}: cpu: 30/40, slots: 3/20",
        "namespaces": 1,
        "policies": 1,
        "exceeding": 0,
    }
    patch = json.dumps({"status": status})
    kubectl("patch", "rbudget", name, "--subresource=status", "--type=merge", "-p", patch)
    yield name
    kubectl("delete", "rbudget", name)
    kubectl("delete", "namespace", name, "--wait=false")


def test_used_and_hard_are_what_kubectl_get_shows(shop: str, kubectl: Kubectl) -> None:
    header, row = kubectl("get", "reservationbudgets", shop).stdout.splitlines()
    assert header.split() == ["NAME", "USED/TOTAL", "FULLEST", "NAMESPACES", "EXCEEDING", "AGE"]
    assert f"memory: 96Gi/100Gi   {shop}: cpu: 30/40, slots: 3/20" in row


def test_kubectl_j10ce_budgets(
    shop: str, cluster: Any, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("J10CE_BIN", str(Path(cluster.kubectl_argv[0]).parent))
    arguments = ["budgets", "-n", shop, "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    shown = [(one["resource"], one["used"], one["left"]) for one in json.loads(done.output)["budgets"]]
    assert shown == [("cpu", "30", "10"), ("slots", "3", "17")]


def test_a_tenant_may_edit_policies_of_its_namespace_and_no_budget(shop: str, kubectl: Kubectl) -> None:
    user = f"tenant-{shop}"
    role = ("create", "rolebinding", user, "--clusterrole=j10ce-policy-editor", f"--user={user}")
    kubectl(*role, "-n", shop)

    def may(verb: str, resource: str, *scope: str) -> bool:
        done = kubectl("auth", "can-i", verb, resource, f"--as={user}", *scope, check=False)
        return done.stdout.strip() == "yes"

    until(lambda: may("create", "minimalreservationpolicies", "-n", shop), "the role is in force", SECONDS)
    for verb in ("update", "patch", "delete", "get", "list", "watch"):
        assert may(verb, "minimalreservationpolicies", "-n", shop), verb
    assert not may("create", "minimalreservationpolicies", "-n", "default")
    assert not may("patch", "minimalreservationpolicies", "-n", shop, "--subresource=status")
    assert not may("patch", f"namespaces/{shop}", "-n", shop), "its labels choose its budget"
    for verb in ("create", "update", "patch", "delete"):
        assert not may(verb, "reservationbudgets"), verb
        assert not may(verb, "reservationbudgets", "--subresource=status"), verb


def test_the_editor_is_part_of_edit_once_an_administrator_says_so(shop: str, kubectl: Kubectl) -> None:
    user, role = f"developer-{shop}", "clusterrole/j10ce-policy-editor"
    kubectl("create", "rolebinding", user, "--clusterrole=edit", f"--user={user}", "-n", shop)

    def may(resource: str) -> bool:
        done = kubectl("auth", "can-i", "create", resource, f"--as={user}", "-n", shop, check=False)
        return done.stdout.strip() == "yes"

    until(lambda: may("pods"), "the role is in force", SECONDS)
    assert not may("minimalreservationpolicies"), "by default nobody but administrators"
    label = "rbac.authorization.k8s.io/aggregate-to-edit"
    kubectl("label", role, f"{label}=true")
    try:
        until(lambda: may("minimalreservationpolicies"), "edit has gathered it", SECONDS)
        rights = str(resources.files("manifests") / "base" / "user-rights.yaml")
        kubectl(*APPLY, "-f", rights)
        assert may("minimalreservationpolicies"), "an upgrade leaves it"
        assert not may("reservationbudgets")
    finally:
        kubectl("label", role, f"{label}-")
    until(lambda: not may("minimalreservationpolicies"), "edit has let it go", SECONDS)
