"""Budgets in a real API server: what admission refuses and how it says so, and what tenants may do."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]
SECONDS = 120.0


@pytest.fixture(scope="module")
def shop(kubectl: Kubectl) -> Iterator[str]:
    """A namespace with a label of its own, and one budget for it of which 30 CPUs are used."""
    manifests = resources.files("manifests")
    server_side = ("apply", "--server-side", "--field-manager", "j10ce", "--force-conflicts")
    kubectl(*server_side, "-f", str(manifests / "crds"))
    kubectl("wait", "--for", "condition=Established", "--timeout", "60s", "crd", "--all")
    for name in ("user-rights.yaml", "budgets.yaml"):
        kubectl(*server_side, "-f", str(manifests / "base" / name))
    name = f"shop-{uuid.uuid4().hex[:8]}"
    labels = {"team": name, "tier": "gold"}
    kubectl(
        "create",
        "-f",
        "-",
        document={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
    )
    put(
        kubectl,
        name,
        {"matchLabels": {"team": name}},
        perNamespace={"cpu": 40, "slots": "20"},
        total={"memory": "100Gi"},
    )
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
    report(kubectl, name, status)
    eventually(lambda: "budget" in make(kubectl, name, {"cpu": "2"}, 21), "the rules are in force")
    yield name
    kubectl("delete", "rbudget", "-l", f"test={name}")
    kubectl("delete", "validatingadmissionpolicybinding", "j10ce-budgets")
    kubectl("delete", "validatingadmissionpolicy", "j10ce-budgets")
    kubectl("delete", "namespace", name, "--wait=false")


def put(kubectl: Kubectl, name: str, selector: dict[str, Any], suffix: str = "", **spec: Any) -> None:
    """A budget of the test's namespace."""
    document = {
        "apiVersion": "j10ce.io/v1alpha1",
        "kind": "ReservationBudget",
        "metadata": {"name": f"{name}{suffix}", "labels": {"test": name}},
        "spec": {"namespaceSelector": selector, **spec},
    }
    kubectl("apply", "-f", "-", document=document)


def report(kubectl: Kubectl, name: str, status: dict[str, Any]) -> None:
    """What the extender would have written."""
    patch = json.dumps({"status": status})
    kubectl("patch", "rbudget", name, "--subresource=status", "--type=merge", "-p", patch)


def policy(name: str, resources_: dict[str, Any], count: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "j10ce.io/v1alpha1",
        "kind": "MinimalReservationPolicy",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": "checkout"}},
            "floor": {"resources": resources_},
            "slots": {"count": count},
            **spec,
        },
    }


def make(kubectl: Kubectl, namespace: str, floor: dict[str, Any], count: int, **spec: Any) -> str:
    """Try to create a policy: "" when it would be taken, else why not."""
    done = kubectl(
        "create", "-n", namespace, "--dry-run=server", "-f", "-",
        document=policy("tried", floor, count, **spec), check=False,
    )  # fmt: skip
    return done.stderr if done.returncode else ""


def eventually(check: Callable[[], bool], what: str) -> None:
    """Rules and their parameters are in force moments after they are written."""
    deadline = time.monotonic() + SECONDS
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_what_is_within_the_budget_is_taken(shop: str, kubectl: Kubectl) -> None:
    assert make(kubectl, shop, {"cpu": "2"}, 5) == ""
    assert make(kubectl, shop, {"cpu": "500m"}, 17) == ""
    assert make(kubectl, shop, {"cpu": "2"}, 50, suspend=True) == "", "it asks for nothing"


def test_what_is_above_it_is_refused_and_says_budget_asked_used_and_left(shop: str, kubectl: Kubectl) -> None:
    said = make(kubectl, shop, {"cpu": "2", "memory": "1Mi"}, 6)
    assert f"budget {shop}, namespace {shop}: cpu: 6 slots of 2 asked, 30 of 40 used, 10 left" in said
    said = make(kubectl, shop, {"memory": "1Mi"}, 18)
    assert "slots: 18 slots asked" in said
    assert "3 of 20 used, 17 left" in said
    said = make(kubectl, shop, {"memory": "5Gi"}, 1)
    assert (
        f"budget {shop}, all namespaces: memory: 1 slots of 5Gi asked, 96Gi of 100Gi used, 4Gi left" in said
    )


def test_what_a_policy_has_counts_for_it_and_less_is_always_taken(shop: str, kubectl: Kubectl) -> None:
    kubectl("create", "-n", shop, "-f", "-", document=policy("there", {"cpu": "2"}, 5))
    try:

        def scale(count: int) -> str:
            change = json.dumps({"spec": {"slots": {"count": count}}})
            done = kubectl(
                "patch",
                "mrp",
                "there",
                "-n",
                shop,
                "--type=merge",
                "--dry-run=server",
                "-p",
                change,
                check=False,
            )
            return done.stderr if done.returncode else ""

        assert scale(10) == "", "its own 10 CPUs are among the 30 that are used"
        assert "10 left" in scale(11)
        assert scale(4) == ""
        relabel = ("label", "mrp", "there", "-n", shop, "a=b", "--dry-run=server")
        assert kubectl(*relabel, check=False).returncode == 0
    finally:
        kubectl("delete", "mrp", "there", "-n", shop)


def test_classes_and_profiles_that_are_not_permitted(shop: str, kubectl: Kubectl) -> None:
    here = {
        "matchExpressions": [
            {"key": "team", "operator": "In", "values": [shop]},
            {"key": "tin", "operator": "DoesNotExist"},
        ]
    }
    put(kubectl, shop, here, "-kinds", priorityClassNames=["low", "mid"], profileNames=["fast"])
    try:
        eventually(lambda: make(kubectl, shop, {"cpu": "1"}, 1) != "", "the second budget is in force")
        said = make(kubectl, shop, {"cpu": "1"}, 1, priorityClassName="high", profileName="fast")
        assert f"spec.priorityClassName: budget {shop}-kinds permits only low, mid" in said
        said = make(kubectl, shop, {"cpu": "1"}, 1, priorityClassName="low", profileName="slow")
        assert f"spec.profileName: budget {shop}-kinds permits only fast" in said
        assert "permits only low, mid" in make(kubectl, shop, {"cpu": "1"}, 1)
        assert make(kubectl, shop, {"cpu": "1"}, 1, priorityClassName="low", profileName="fast") == ""
        assert make(kubectl, shop, {"cpu": "1"}, 1, profileName="fast") == "", "the profile may name a class"
    finally:
        kubectl("delete", "rbudget", f"{shop}-kinds")


def test_other_namespaces_and_default_budgets_are_not_asked(shop: str, kubectl: Kubectl) -> None:
    assert make(kubectl, "default", {"cpu": "2"}, 50) == ""
    put(kubectl, shop, {}, "-rest", default=True, perNamespace={"cpu": 0})
    try:
        assert make(kubectl, "default", {"cpu": "2"}, 50) == ""
    finally:
        kubectl("delete", "rbudget", f"{shop}-rest")


def test_used_and_hard_are_what_kubectl_get_shows(shop: str, kubectl: Kubectl) -> None:
    header, row = kubectl("get", "reservationbudgets", shop).stdout.splitlines()
    assert header.split() == ["NAME", "USED/TOTAL", "FULLEST", "NAMESPACES", "EXCEEDING", "AGE"]
    assert f"memory: 96Gi/100Gi   {shop}: cpu: 30/40, slots: 3/20" in row


def test_a_tenant_may_edit_policies_of_its_namespace_and_no_budget(shop: str, kubectl: Kubectl) -> None:
    user = f"tenant-{shop}"
    role = ("create", "rolebinding", user, "--clusterrole=j10ce-policy-editor", f"--user={user}")
    kubectl(*role, "-n", shop)

    def may(verb: str, resource: str, *scope: str) -> bool:
        done = kubectl("auth", "can-i", verb, resource, f"--as={user}", *scope, check=False)
        return done.stdout.strip() == "yes"

    eventually(lambda: may("create", "minimalreservationpolicies", "-n", shop), "the role is in force")
    for verb in ("update", "patch", "delete", "get", "list", "watch"):
        assert may(verb, "minimalreservationpolicies", "-n", shop), verb
    assert not may("create", "minimalreservationpolicies", "-n", "default")
    assert not may("patch", "minimalreservationpolicies", "-n", shop, "--subresource=status")
    assert not may("patch", f"namespaces/{shop}", "-n", shop), "its labels choose its budget"
    for verb in ("create", "update", "patch", "delete"):
        assert not may(verb, "reservationbudgets"), verb
        assert not may(verb, "reservationbudgets", "--subresource=status"), verb
