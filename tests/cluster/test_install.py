"""preflight, install and uninstall against a real API server: afterwards it is as it was."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import config
from kubernetes.client import ApiClient, ApiException

from cli.kubectl import Kubectl, find
from lab import cluster as lab_cluster
from lab.binaries import Binaries
from lab.cluster import Cluster
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

J10CE = Path(sys.executable).with_name("j10ce")
SCHEDULER_IMAGE = "--scheduler-image=example.com/kube-scheduler:v1.36.3"
# Written by the control plane itself, at any time.
RESTLESS = {
    "events",
    "leases",
    "endpointslices",
    "componentstatuses",
    "ipaddresses",
    "podmetrics",
    "nodemetrics",
}
GIVEN = ("serviceaccounts {}/default", "configmaps {}/kube-root-ca.crt")
"""What controllers make in each namespace, at their own time."""
TTL = "node.alpha.kubernetes.io/ttl"
"""An annotation that they give each node."""


@pytest.fixture(scope="module")
def own(binaries: Binaries) -> Iterator[Cluster]:
    """A cluster of this module's own: installing changes all of it. Every test leaves it as it was."""
    name = f"install-{secrets.token_hex(3)}"
    yield lab_cluster.up(name, binaries=binaries, crds=False)
    lab_cluster.down(name)


@pytest.fixture(autouse=True)
def clean(own: Cluster) -> Iterator[None]:
    """The next test shall not suffer from one that failed."""
    yield
    j10ce(own, "uninstall", "--yes", "--force")


@pytest.fixture(scope="module")
def kubectl(own: Any) -> Kubectl:
    return find(os.environ, own.kubeconfig, "")


def j10ce(cluster: Any, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [str(J10CE), *arguments, "--kubeconfig", str(cluster.kubeconfig)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def listing(cluster: Any) -> dict[str, dict[str, Any]]:
    """Every object of every API, without the server's bookkeeping."""
    found: dict[str, dict[str, Any]] = {}
    with config.new_client_from_config(str(cluster.kubeconfig)) as client:
        for path in api_paths(client):
            for resource in found_at(client, path, "resources"):
                if "/" in resource["name"] or "list" not in resource["verbs"] or resource["name"] in RESTLESS:
                    continue
                for item in found_at(client, f"{path}/{resource['name']}", "items"):
                    metadata = item["metadata"]
                    key = f"{path}/{resource['name']} {metadata.get('namespace', '')}/{metadata['name']}"
                    found[key] = essence(item)
    return found


def api_paths(client: ApiClient) -> list[str]:
    groups = get(client, "/apis")["groups"]
    return ["/api/v1", *(f"/apis/{g['preferredVersion']['groupVersion']}" for g in groups)]


def found_at(client: ApiClient, path: str, what: str) -> list[dict[str, Any]]:
    """What a path lists; nothing where an API that was there a moment ago is not served any more."""
    try:
        found: list[dict[str, Any]] = get(client, path).get(what, [])
    except ApiException as error:
        if error.status not in (404, 405, 503):
            raise
        return []
    return found


def get(client: ApiClient, path: str) -> Any:
    answer = client.rest_client.request("GET", client.configuration.host + path)
    return json.loads(answer.read() if answer.data is None else answer.data)


def essence(item: dict[str, Any]) -> dict[str, Any]:
    unstable = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid")
    metadata = {key: value for key, value in item["metadata"].items() if key not in unstable and value != {}}
    rest = {key: value for key, value in item.items() if key not in ("metadata", "status")}
    if "taints" in rest.get("spec", {}):  # a node's: nobody reports for it, which is noted after a while
        rest["spec"] = {key: value for key, value in rest["spec"].items() if key != "taints"}
    # Tokens of service accounts and the like carry nothing that is ours.
    return rest | {"metadata": metadata}


def steady(cluster: Any) -> dict[str, dict[str, Any]]:
    """The listing once two in a row are the same: KWOK and the reconcilers are done with what was made."""
    seen: list[dict[str, dict[str, Any]]] = [{}]

    def done() -> bool:
        seen.append(listing(cluster))
        return seen[-1] == seen[-2] and is_complete(seen[-1])

    until(done, "the cluster to come to rest", 120)
    return seen[-1]


def is_complete(found: dict[str, dict[str, Any]]) -> bool:
    """Whether controllers have added what is theirs: they may be so late that nothing changes for a while."""
    names = [key.partition(" /")[2] for key in found if key.startswith("/api/v1/namespaces ")]
    given = {f"/api/v1/{one.format(name)}" for name in names for one in GIVEN}
    nodes = [item["metadata"] for key, item in found.items() if key.startswith("/api/v1/nodes ")]
    return given <= found.keys() and all(TTL in node.get("annotations", {}) for node in nodes)


def settled(cluster: Any, before: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The listing once it is as before, or after two minutes: reconcilers take a moment to clean up."""
    deadline = time.monotonic() + 120
    while (now := listing(cluster)) != before and time.monotonic() < deadline:
        time.sleep(0.5)
    return now


def make_users_things(kubectl: Kubectl) -> None:
    """A node that only its owner keeps from being removed, one with holds, and a pod that we bound."""
    keep = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "theirs", "labels": {"type": "kwok"}, "annotations": {keep: "true"}},
        },
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "held", "labels": {"type": "kwok"}}},
    ]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "checkout", "namespace": "default", "annotations": {"example.com/theirs": "1"}},
        "spec": {
            "schedulerName": "nobody",
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "250m"}}}],
        },
    }
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, pod]})
    kubectl.run("create", "-f", "-", stdin=document)


def leave_traces(kubectl: Kubectl) -> None:
    """What the extender writes, and a policy."""
    kubectl.run("annotate", "node", "held", "j10ce.io/held=true")
    kubectl.run("annotate", "node", "held", "cluster-autoscaler.kubernetes.io/scale-down-disabled=true")
    marks = ["j10ce.io/policy=default/checkout", "j10ce.io/bound-by=e1", "j10ce.io/wake=12.5"]
    kubectl.run("annotate", "pod", "checkout", "-n", "default", *marks)
    policy = {
        "apiVersion": "j10ce.io/v1alpha1",
        "kind": "MinimalReservationPolicy",
        "metadata": {"name": "checkout", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "checkout"}},
            "floor": {"resources": {"cpu": "1"}},
            "slots": {"count": 1},
        },
    }
    kubectl.run("create", "-f", "-", stdin=json.dumps(policy))


@pytest.mark.parametrize(
    "overlay", ["second-scheduler", pytest.param("default-scheduler", marks=pytest.mark.full)]
)
def test_a_cluster_is_as_it_was(own: Any, kubectl: Kubectl, overlay: str, tmp_path: Path) -> None:
    make_users_things(kubectl)
    before = steady(own)
    percentage = "--percentage-of-nodes-to-score=5"
    second = [SCHEDULER_IMAGE, percentage] if overlay == "second-scheduler" else []
    where = ["--overlay", overlay, "--agent", "--quotas", *second]

    said = json.loads(j10ce(own, "preflight", *where, "-o", "json"))
    assert {change["action"] for change in said["changes"]} == {"create"}
    assert "failed" not in {check["level"] for check in said["checks"]}
    (pods,) = [check["message"] for check in said["checks"] if check["name"] == "pods"]
    assert "100 % of the CPU that pods request (0.25 of 0.25) bypasses" in pods
    assert "0.25 by nobody" in pods
    assert "Nothing was changed" in j10ce(own, "install", *where, "--dry-run")
    assert settled(own, before) == before, "a dry run leaves no trace"

    said = json.loads(j10ce(own, "install", *where, "-o", "json"))
    assert "MinimalReservationPolicy" in kubectl.run("api-resources", "--api-group=j10ce.io")
    created = {(change["kind"], change["namespace"], change["name"]) for change in said["changes"]}
    assert ("Deployment", "j10ce-system", "j10ce-scheduler") in created or overlay == "default-scheduler"
    assert ("DaemonSet", "j10ce-system", "j10ce-agent") in created
    kubectl.run("get", "daemonset/j10ce-agent", "--namespace", "j10ce-system")
    where = [word for word in where if word not in ("--agent", percentage)]
    again = json.loads(j10ce(own, "install", *where, "-o", "json"))
    assert {change["action"] for change in again["changes"]} == {"keep"}, "again changes nothing"
    assert "DaemonSet" in {change["kind"] for change in again["changes"]}, "the agent is kept"

    leave_traces(kubectl)
    assert "1 policies" in j10ce(own, "uninstall", "--dry-run")
    assert listing(own) != before
    said_at_the_end = j10ce(own, "uninstall", "--yes")
    assert "Removed." in said_at_the_end
    after = settled(own, before)
    assert after.keys() == before.keys()
    assert after == before
    assert "Nothing of j10ce-qos" in j10ce(own, "uninstall", "--yes")
    kubectl.run("delete", "node/theirs", "node/held")
    kubectl.run("delete", "pod", "checkout", "-n", "default", "--grace-period=0", "--force")


@pytest.mark.full  # half a minute
def test_a_namespace_that_was_there_is_as_it_was(own: Any, kubectl: Kubectl) -> None:
    kubectl.run("create", "namespace", "j10ce-system")
    kubectl.run("create", "configmap", "theirs", "-n", "j10ce-system")
    refusing = "pod-security.kubernetes.io/enforce=baseline"
    kubectl.run("label", "namespace", "j10ce-system", refusing)
    before = steady(own)
    said = j10ce(own, "install", SCHEDULER_IMAGE, "--agent", code=1)
    assert "enforce: baseline, which refuses host paths" in said
    said = json.loads(j10ce(own, "install", SCHEDULER_IMAGE, "--mode", "observe", "-o", "json"))
    assert "Namespace" not in {change["kind"] for change in said["changes"]}
    assert "was there before" in j10ce(own, "uninstall", "--yes")
    after = settled(own, before)
    assert after.keys() == before.keys()
    assert after == before
    kubectl.run("delete", "namespace", "j10ce-system")


def test_upgrade_shows_what_changes(own: Any, kubectl: Kubectl) -> None:
    j10ce(own, "install", SCHEDULER_IMAGE)
    kubectl.run("patch", "crd", "qosprofiles.j10ce.io", "--type=json", "-p", PATCH_OF_AN_OLDER_VERSION)
    said = j10ce(own, "preflight", SCHEDULER_IMAGE, "--image=example.com/j10ce-qos:0.2.0", code=1)
    assert "--force-conflicts" in said or "conflict" in said, (
        "someone else's change is not overwritten unasked"
    )
    said = j10ce(
        own,
        "install",
        SCHEDULER_IMAGE,
        "--image=example.com/j10ce-qos:0.2.0",
        "--force-conflicts",
        "--dry-run",
    )
    assert "+        image: example.com/j10ce-qos:0.2.0" in said
    assert "an older version" in said
    j10ce(own, "install", SCHEDULER_IMAGE, "--force-conflicts")
    assert "keep" in j10ce(own, "preflight", SCHEDULER_IMAGE)


PATCH_OF_AN_OLDER_VERSION = json.dumps(
    [
        {
            "op": "replace",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/description",
            "value": "an older version",
        }
    ]
)


@pytest.mark.full  # 20 s
def test_uninstall_refuses_while_an_extender_runs_elsewhere(own: Any, kubectl: Kubectl) -> None:
    j10ce(own, "install", "--overlay", "default-scheduler")
    # Later than now: renewed for as long as this test may take.
    renewed = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() + 600))
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "j10ce-extender", "namespace": "j10ce-system"},
        "spec": {"holderIdentity": "host-a", "renewTime": renewed, "leaseDurationSeconds": 15},
    }
    kubectl.run("create", "-f", "-", stdin=json.dumps(lease))
    assert "already running: host-a" in j10ce(own, "preflight", "--overlay", "default-scheduler")
    said = j10ce(own, "uninstall", "--yes", code=1)
    assert "an extender is still running: host-a" in said
    kubectl.run("get", "crd", "qosprofiles.j10ce.io")
    j10ce(own, "uninstall", "--yes", "--force")
    assert "qosprofiles" not in kubectl.run("get", "crd")


def test_without_rights_it_says_which(own: Any, kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl.run("create", "clusterrolebinding", "reader", "--clusterrole=view", "--user=reader")
    document = json.loads(kubectl.run("config", "view", "--raw", "-o", "json"))
    for user in document["users"]:
        user["user"]["as"] = "reader"
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    done = subprocess.run(
        [str(J10CE), "install", SCHEDULER_IMAGE, "--kubeconfig", str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "create customresourcedefinitions.apiextensions.k8s.io" in done.stderr
    assert "Traceback" not in done.stderr
