"""The custom resources in a real API server: what it takes, what it refuses and how it says so."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import pytest

from adapters.writes import merge_patch
from tests.cluster.narrowed import APPLY
from tests.tables import documents, table

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A namespace of this module, with the CRDs in place."""
    kubectl(*APPLY, "-f", str(resources.files("manifests") / "crds"))
    kubectl("wait", "--for", "condition=Established", "--timeout", "60s", "crd", "--all")
    name = f"crds-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


def base(name: str) -> dict[str, Any]:
    """A good policy of that name."""
    return merge_patch(table("policies/base"), {"metadata": {"name": name}})


@pytest.mark.parametrize(
    ("document", "entry"),
    documents("policies", "refused") + documents("profiles", "refused") + documents("budgets", "refused"),
)
def test_nonsense_is_refused_and_the_field_named(
    document: dict[str, Any], entry: dict[str, Any], kubectl: Kubectl, namespace: str
) -> None:
    result = kubectl("create", "--dry-run=server", "-n", namespace, "-f", "-", document=document, check=False)
    assert result.returncode != 0, "it was taken"
    said = re.sub(r"\[([a-z][^\]]*)\]", r".\1", result.stderr.replace('"', ""))
    assert entry["field"] in said
    assert entry["says"] in said


@pytest.mark.parametrize(
    ("document", "entry"), documents("profiles", "accepted") + documents("budgets", "accepted")
)
def test_good_profiles_and_budgets_are_taken(
    document: dict[str, Any], entry: dict[str, Any], kubectl: Kubectl, namespace: str
) -> None:
    taken = kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", document=document)
    assert json.loads(taken.stdout)["spec"].items() >= document["spec"].items()


@pytest.mark.parametrize(("document", "entry"), documents("policies", "accepted"))
def test_good_policies_are_taken(
    document: dict[str, Any], entry: dict[str, Any], kubectl: Kubectl, namespace: str
) -> None:
    kubectl("create", "-n", namespace, "-f", "-", document=document)
    stored = json.loads(
        kubectl("get", "mrp", "-n", namespace, document["metadata"]["name"], "-o", "json").stdout
    )
    assert stored["spec"]["floor"] == {"requestPolicy": "Raise"} | document["spec"]["floor"]
    assert stored["spec"]["placement"]["mode"] in ("Floating", "Pinned")


def test_the_selector_is_immutable(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", document=base("fixed"))
    change = json.dumps({"spec": {"selector": {"matchLabels": {"app": "other"}}}})
    refused = kubectl("patch", "mrp", "fixed", "-n", namespace, "--type=merge", "-p", change, check=False)
    assert refused.returncode != 0
    assert "spec.selector" in refused.stderr
    assert "immutable" in refused.stderr
    kubectl("patch", "mrp", "fixed", "-n", namespace, "--type=merge", "-p", '{"spec": {"suspend": true}}')


def test_scale_subresource(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", document=base("scaled"))
    kubectl("scale", "mrp", "scaled", "-n", namespace, "--replicas=7")
    status = json.dumps({"status": {"slots": {"filled": 2}, "selector": "app=checkout"}})
    kubectl("patch", "mrp", "scaled", "-n", namespace, "--subresource=status", "--type=merge", "-p", status)
    path = f"/apis/j10ce.io/v1alpha1/namespaces/{namespace}/minimalreservationpolicies/scaled/scale"
    scale = json.loads(kubectl("get", "--raw", path).stdout)
    assert scale["spec"] == {"replicas": 7}
    assert scale["status"] == {"replicas": 2, "selector": "app=checkout"}


def test_status_is_written_by_its_subresource_only(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", document=base("reported"))
    status = {
        "observedGeneration": 1,
        "slots": {"desired": 3, "filled": 1, "held": 1, "unplaced": 1, "consumed": 0, "spare": 0},
        "unplaced": [{"count": 1, "reason": "Insufficient", "resource": "memory", "missing": "1Gi"}],
        "holds": [{"nodeName": "n1", "slots": 1}],
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "Unplaced",
                "message": "1 slot lacks 1Gi of memory",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    patch = json.dumps({"status": status})
    kubectl("patch", "mrp", "reported", "-n", namespace, "--type=merge", "-p", patch)
    assert not kubectl("get", "mrp", "reported", "-n", namespace, "-o", "jsonpath={.status}").stdout
    kubectl("patch", "mrp", "reported", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    stored = kubectl("get", "mrp", "reported", "-n", namespace, "-o", "jsonpath={.status}").stdout
    assert json.loads(stored) == status
    header, row = kubectl("get", "mrp", "reported", "-n", namespace).stdout.splitlines()
    assert header.split() == ["NAME", "DESIRED", "FILLED", "HELD", "UNPLACED", "READY", "GUARDED", "AGE"]
    assert row.split()[:6] == ["reported", "3", "1", "1", "1", "False"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("mrp", "capacity held for those that do not exist yet"),
        ("mrp.spec", "whatever else runs"),
        ("mrp.spec.floor.resources", "extended resources such as example.com/gpu"),
        ("mrp.spec.floor.network.egress", "in bits a second, such as 100M"),
        ("mrp.spec.floor.network", "The least bandwidth of one pod, in bits a second"),
        ("mrp.spec.limit.network", "Bandwidth of each pod at most, in bits a second"),
        ("qosp.spec.network.limit.egress", "in bits a second, such as 100M"),
        ("mrp.spec.limit.network.ingress", "in bits a second, such as 100M"),
        ("mrp.spec.slots", "exactly one of count, scaleTargetRef"),
        ("mrp.spec.placement", "whether holds may move"),
        ("mrp.status", "the extender writes it"),
        ("mrp.spec.nodeEnforcement", "only nodes whose NodeQoS is fresh"),
        ("qosp.spec.class", "latency sensitive"),
        ("qosp.spec.promises", "otherwise than the class has it"),
        ("qosp.spec.promises.memoryMinPercent", "is never reclaimed (memory.min"),
        ("qosp.spec.promises.ioLimit", "Bytes read per second and disk"),
        ("rbudget", "The most that the policies of each selected namespace may have"),
        ("rbudget.spec.namespaceSelector", "{} selects all of them"),
        ("rbudget.spec.perNamespace", "what a slot holds times the number of slots"),
        ("rbudget.spec.default", "Only for namespaces that no other budget selects"),
        ("rbudget.status.perNamespace", "fullest first"),
        ("nodeqos", "what its pods really have"),
        ("nodeqos.status", "written by its agent"),
        ("nodeqos.status.promises", "read back its file in a cgroup made for the trial"),
        ("nodeqos.status.policies", "a pod wanted a resource and received less than its floor"),
    ],
)
def test_explain_reads_well(path: str, words: str, kubectl: Kubectl, namespace: str) -> None:
    text = " ".join(kubectl("explain", path).stdout.split())
    assert words in text
    assert "<no description>" not in text


def test_profiles(kubectl: Kubectl, namespace: str) -> None:
    name = f"profile-{namespace}"
    good = {
        "apiVersion": "j10ce.io/v1alpha1",
        "kind": "QoSProfile",
        "metadata": {"name": name},
        "spec": {"class": "LS", "priorityClassName": "floor-high"},
    }
    bad = merge_patch(good, {"spec": {"class": "ls"}})
    refused = kubectl("create", "--dry-run=server", "-f", "-", document=bad, check=False)
    assert "spec.class: Unsupported value" in refused.stderr
    kubectl("create", "-f", "-", document=good)
    try:
        assert kubectl("get", "qosp", name).stdout.splitlines()[1].split()[:3] == [name, "LS", "floor-high"]
    finally:
        kubectl("delete", "qosp", name)
