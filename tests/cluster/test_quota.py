"""`kubectl j10ce quota tree` on a real API server that has Koordinator's definition of ElasticQuota."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.app import app
from lab import nodes
from qos import keys

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]
DEFINITION = Path(__file__).parents[2] / "lab" / "elasticquotas.yaml"


@pytest.fixture(scope="module")
def teams(kubectl: Kubectl) -> Iterator[str]:
    """A tree of its own: 10 CPUs for two teams, of which one has more than its min, and the other waits."""
    kubectl("apply", "-f", str(DEFINITION))
    kubectl("wait", "--for", "condition=Established", "--timeout", "60s", "crd", "--all")
    name = f"teams-{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    root = {keys.QUOTA_IS_PARENT_LABEL: "true", keys.QUOTA_IS_ROOT_LABEL: "true", keys.QUOTA_TREE_LABEL: name}
    total = {keys.QUOTA_TOTAL_ANNOTATION: json.dumps({"cpu": "10"})}
    child = {keys.QUOTA_PARENT_LABEL: name}
    ours = [
        quota(name, name, {"min": {"cpu": 10}, "max": {"cpu": "10"}}, root, total),
        quota(name, f"{name}-a", {"min": {"cpu": "6"}, "max": {"cpu": "10"}}, child),
        quota(name, f"{name}-b", {"min": {"cpu": "4"}, "max": {"cpu": "10"}}, child),
        nodes.node(name, taints=[{"key": "only", "value": name, "effect": "NoSchedule"}]),
        *(pod(name, f"a{number}", f"{name}-a", "", "2") for number in range(4)),
        *(pod(name, f"b{number}", f"{name}-b", name, "2") for number in range(4)),
    ]
    for one in ours:
        kubectl("create", "-f", "-", document=one)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")
    kubectl("delete", "node", name)
    kubectl("delete", "-f", str(DEFINITION), "--wait=false")


def quota(
    namespace: str, name: str, spec: Any, labels: dict[str, str], annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    meta = {"namespace": namespace, "name": name, "labels": labels, "annotations": annotations or {}}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": meta,
        "spec": spec,
    }


def pod(namespace: str, name: str, of: str, node: str, cpu: str) -> dict[str, Any]:
    """One that has a node, or that no scheduler looks at."""
    container = {"name": "main", "image": "registry.invalid/none", "resources": {"requests": {"cpu": cpu}}}
    where = {"nodeName": node} if node else {"schedulerName": "nobody"}
    labels = {keys.QUOTA_NAME_LABEL: of}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0} | where,
    }


def test_kubectl_j10ce_quota_tree(teams: str, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J10CE_BIN", str(Path(cluster.kubectl_argv[0]).parent))
    arguments = ["quota", "tree", "--kubeconfig", str(cluster.kubeconfig)]
    done = CliRunner().invoke(app, [*arguments, "-o", "json"])
    assert done.exit_code == 0, done.output
    said = {one["quota"]: one for one in json.loads(done.output)["quotas"]}
    stands = {
        name.removeprefix(f"{teams}/{teams}"): {
            field: one["resources"][0][field] for field in ("used", "runtime", "borrowed", "owed", "due")
        }
        for name, one in said.items()
        if name.startswith(f"{teams}/")
    }
    assert stands == {
        "": {"used": "8", "runtime": "10", "borrowed": "0", "owed": "2", "due": "0"},
        "-a": {"used": "0", "runtime": "6", "borrowed": "0", "owed": "6", "due": "0"},
        "-b": {"used": "8", "runtime": "4", "borrowed": "4", "owed": "0", "due": "4"},
    }
    (debt,) = [each for each in json.loads(done.output)["debts"] if each["debtor"].startswith(teams)]
    assert debt == {
        "resource": "cpu",
        "creditor": f"{teams}/{teams}-a",
        "debtor": f"{teams}/{teams}-b",
        "amount": "4",
    }
    assert not any(one["problems"] for name, one in said.items() if name.startswith(f"{teams}/"))
    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert f"tree {teams}" in done.output
