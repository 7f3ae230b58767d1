"""The custom resources in a real API server: what it takes, what it refuses and how it says so."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

pytestmark = pytest.mark.cluster

TABLES = Path(__file__).parents[1] / "data" / "policies"
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


def load(name: str) -> Any:
    return YAML(typ="safe", pure=True).load(TABLES / name)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


BASE = load("base.yaml")


@pytest.fixture(scope="module")
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A namespace of this module, with the CRDs in place."""
    kubectl(
        "apply", "--server-side", "--field-manager", "j10ce", "-f", str(resources.files("manifests") / "crds")
    )
    kubectl("wait", "--for", "condition=Established", "--timeout", "60s", "crd", "--all")
    name = f"crds-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


def list_of(table: str) -> list[dict[str, Any]]:
    """The table's objects, each under a name of its own."""
    return [
        merged(merged(BASE, entry["patch"]), {"metadata": {"name": f"{table}-{number}"}})
        for number, entry in enumerate(load(f"{table}.yaml"))
    ]


@pytest.fixture(scope="module")
def refusals(kubectl: Kubectl, namespace: str) -> list[str]:
    """What the API server says to each object of refused.yaml, "" when it takes it."""
    said = []
    for document in list_of("refused"):
        result = kubectl(
            "create", "--dry-run=server", "-n", namespace, "-f", "-", document=document, check=False
        )
        said.append("" if result.returncode == 0 else result.stderr)
    return said


REFUSED = [pytest.param(number, entry, id=entry["name"]) for number, entry in enumerate(load("refused.yaml"))]


@pytest.mark.parametrize(("number", "entry"), REFUSED)
def test_nonsense_is_refused_and_the_field_named(
    number: int, entry: dict[str, Any], refusals: list[str]
) -> None:
    said = re.sub(r"\[([a-z][^\]]*)\]", r".\1", refusals[number].replace('"', ""))
    assert entry["field"] in said, said or "it was taken"
    assert entry["says"] in said


@pytest.mark.parametrize("document", list_of("accepted"), ids=[e["name"] for e in load("accepted.yaml")])
def test_good_policies_are_taken(document: dict[str, Any], kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", document=document)
    stored = json.loads(
        kubectl("get", "mrp", "-n", namespace, document["metadata"]["name"], "-o", "json").stdout
    )
    assert stored["spec"]["floor"] == document["spec"]["floor"]
    assert stored["spec"]["placement"]["mode"] in ("Floating", "Pinned")


def test_the_selector_is_immutable(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", document=merged(BASE, {"metadata": {"name": "fixed"}}))
    change = json.dumps({"spec": {"selector": {"matchLabels": {"app": "other"}}}})
    refused = kubectl("patch", "mrp", "fixed", "-n", namespace, "--type=merge", "-p", change, check=False)
    assert refused.returncode != 0
    assert "spec.selector" in refused.stderr
    assert "immutable" in refused.stderr
    kubectl("patch", "mrp", "fixed", "-n", namespace, "--type=merge", "-p", '{"spec": {"suspend": true}}')


def test_scale_subresource(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", document=merged(BASE, {"metadata": {"name": "scaled"}}))
    kubectl("scale", "mrp", "scaled", "-n", namespace, "--replicas=7")
    status = json.dumps({"status": {"slots": {"filled": 2}, "selector": "app=checkout"}})
    kubectl("patch", "mrp", "scaled", "-n", namespace, "--subresource=status", "--type=merge", "-p", status)
    path = f"/apis/j10ce.io/v1alpha1/namespaces/{namespace}/minimalreservationpolicies/scaled/scale"
    scale = json.loads(kubectl("get", "--raw", path).stdout)
    assert scale["spec"] == {"replicas": 7}
    assert scale["status"] == {"replicas": 2, "selector": "app=checkout"}


def test_status_is_written_by_its_subresource_only(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", document=merged(BASE, {"metadata": {"name": "reported"}}))
    status = {
        "observedGeneration": 1,
        "slots": {"desired": 3, "filled": 1, "held": 1, "unplaced": 1},
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
        ("mrp.spec.slots", "exactly one of count, scaleTargetRef"),
        ("mrp.spec.placement", "whether holds may move"),
        ("mrp.status", "written by the extender"),
        ("qosp.spec.class", "latency sensitive"),
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
    bad = merged(good, {"spec": {"class": "ls"}})
    refused = kubectl("create", "--dry-run=server", "-f", "-", document=bad, check=False)
    assert "spec.class: Unsupported value" in refused.stderr
    kubectl("create", "-f", "-", document=good)
    try:
        assert kubectl("get", "qosp", name).stdout.splitlines()[1].split()[:3] == [name, "LS", "floor-high"]
    finally:
        kubectl("delete", "qosp", name)
