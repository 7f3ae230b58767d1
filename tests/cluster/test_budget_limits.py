"""Policies compared with ReservationBudgets by a real API server: refused, warned of, or neither."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from qos import keys
from tests.cluster.narrowed import Kubectl, narrowed
from tests.waiting import until

pytestmark = pytest.mark.cluster

TIER = "budget-tier"
SECONDS = 240.0


@pytest.fixture(scope="module")
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A namespace that the budgets of this module select, and alone is judged."""
    with narrowed(kubectl, "budget-limits.yaml", "budget") as name:
        kubectl("label", "namespace", name, f"{TIER}={name}")
        yield name


@pytest.fixture
def budget(kubectl: Kubectl, namespace: str) -> Iterator[Callable[..., str]]:
    """budget(**spec): makes one for the namespace; it is known to the admission when this returns."""
    names: list[str] = []

    def make(status: dict[str, Any] | None = None, **spec: Any) -> str:
        names.append(f"b-{secrets.token_hex(3)}")
        selector = {"matchLabels": {TIER: namespace}}
        # Until the budget is known, this policy is not refused.
        seen = {"profileNames": ["seen"]}
        document = {
            "apiVersion": keys.API_VERSION,
            "kind": "ReservationBudget",
            "metadata": {"name": names[-1]},
            "spec": {"namespaceSelector": selector} | seen | spec,
        }
        kubectl("create", "-f", "-", document=document)
        if status:
            change = json.dumps({"status": status})
            kubectl("patch", "rbudget", names[-1], "--subresource=status", "--type=merge", "-p", change)
        probe = policy(1, profileName="never")
        until(lambda: names[-1] in tried(kubectl, namespace, probe).stderr, "the budget is known", SECONDS)
        if status:
            many = policy(10, profileName="seen")
            until(lambda: " used, " in tried(kubectl, namespace, many).stderr, "so is its status", SECONDS)
        return names[-1]

    yield make
    for name in names:
        kubectl("delete", "rbudget", name)
        gone = policy(1, profileName="never")
        until(
            lambda name=name, gone=gone: name not in tried(kubectl, namespace, gone).stderr,
            "it is forgotten",
            SECONDS,
        )


def policy(count: int | None, **spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"}
    body = {
        "selector": {"matchLabels": {"app": "checkout"}},
        "floor": {"resources": {"cpu": "1500m", "memory": "4Gi"}},
        "slots": {"scaleTargetRef": target} if count is None else {"count": count},
        "profileName": "seen",
    }
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "MinimalReservationPolicy",
        "metadata": {"name": "checkout"},
        "spec": body | spec,
    }


def tried(kubectl: Kubectl, namespace: str, document: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "-n",
        namespace,
        "-f",
        "-",
        document=document,
        check=False,
    )


def test_more_than_all_of_a_budget_is_refused(kubectl: Kubectl, namespace: str, budget: Any) -> None:
    name = budget(perNamespace={"cpu": "30", "slots": "50"}, total={"memory": "100Gi"})

    def judged(document: dict[str, Any]) -> str:
        return tried(kubectl, namespace, document).stderr

    assert judged(policy(20)) == ""
    said = judged(policy(21))
    assert (
        f"21 slots: budget {name} gives namespace {namespace} no more than cpu 30, a slot has 1500m" in said
    )
    said = judged(policy(26, floor={"resources": {"memory": "4Gi"}}))
    assert f"budget {name} gives all its namespaces no more than memory 100Gi, a slot has 4Gi" in said
    assert "no more than slots 50" in judged(policy(51, floor={"network": {"egress": "1M"}}))
    assert judged(policy(1000, suspend=True)) == ""
    assert judged(policy(None)) == ""


def test_bandwidth_counts(kubectl: Kubectl, namespace: str, budget: Any) -> None:
    budget(perNamespace={"j10ce.io/egress-bandwidth": "1G"})
    assert tried(kubectl, namespace, policy(10, floor={"network": {"egress": "100M"}})).stderr == ""
    said = tried(kubectl, namespace, policy(11, floor={"network": {"egress": "100M"}})).stderr
    assert "no more than j10ce.io/egress-bandwidth 1G" in said


def test_classes_and_profiles_that_are_not_permitted_are_refused(
    kubectl: Kubectl, namespace: str, budget: Any
) -> None:
    name = budget(priorityClassNames=["low", "high"])

    def judged(**spec: Any) -> str:
        return tried(kubectl, namespace, policy(1, **spec)).stderr

    assert judged(priorityClassName="high") == ""
    assert judged() == "", "the profile's class is for the ledger to know"
    said = judged(priorityClassName="top")
    assert f"spec.priorityClassName: top: budget {name} permits low, high" in said
    assert f"spec.profileName: other: budget {name} permits seen" in judged(
        priorityClassName="low", profileName="other"
    )


def test_more_than_is_left_is_warned_of(kubectl: Kubectl, namespace: str, budget: Any) -> None:
    amount = {"resource": "cpu", "used": "24", "hard": "30", "left": "6"}
    own = {"name": namespace, "policies": 1, "exceeding": 0, "amounts": [amount]}
    name = budget(perNamespace={"cpu": "30"}, status={"perNamespace": [own]})
    assert tried(kubectl, namespace, policy(4)).stderr == ""
    done = tried(kubectl, namespace, policy(5))
    assert done.returncode == 0
    assert (
        f"budget {name}, namespace {namespace}: 5 slots asked: cpu 1500m each, 24 of 30 used, 6 left"
        in done.stderr
    )


def test_a_policy_that_asks_for_no_more_than_before_is_let_through(
    kubectl: Kubectl, namespace: str, budget: Any
) -> None:
    kubectl("apply", "--server-side", "-n", namespace, "-f", "-", document=policy(40))
    budget(perNamespace={"cpu": "30"})
    assert tried(kubectl, namespace, policy(39)).returncode == 0
    assert tried(kubectl, namespace, policy(40, suspend=True)).returncode == 0
    assert "no more than cpu 30" in tried(kubectl, namespace, policy(41)).stderr
    kubectl("delete", "mrp", "checkout", "-n", namespace)


def test_budgets_of_others_and_default_ones_are_left_to_the_ledger(
    kubectl: Kubectl, namespace: str, budget: Any
) -> None:
    other = {"matchLabels": {TIER: "another"}}
    for name, spec in (
        ("other", {"namespaceSelector": other}),
        ("default", {"default": True, "namespaceSelector": {}}),
    ):
        document = {
            "apiVersion": keys.API_VERSION,
            "kind": "ReservationBudget",
            "metadata": {"name": f"{name}-{namespace}"},
            "spec": spec | {"perNamespace": {"cpu": "1"}},
        }
        kubectl("create", "-f", "-", document=document)
    budget(perNamespace={"cpu": "30"})  # known after those two
    assert tried(kubectl, namespace, policy(20)).stderr == ""
    kubectl("delete", "rbudget", f"other-{namespace}", f"default-{namespace}")
