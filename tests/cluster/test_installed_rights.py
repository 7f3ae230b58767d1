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
from ruamel.yaml import YAML

import manifests
from cli import installation
from cli.install import apply
from cli.kubectl import Kubectl, KubectlError, as_list, find
from lab import cluster as lab_cluster
from lab import components, extender_process
from lab.cluster import Cluster
from tests.cluster.custom_kinds import scalable

pytestmark = pytest.mark.cluster

CHOICES = installation.Choices(autoscaling=True, quotas=True)
QUOTAS = Path(__file__).parents[2] / "lab" / "elasticquotas.yaml"
POD_GROUPS = QUOTAS.with_name("podgroups.yaml")
BUFFERS = Path(__file__).parent / "capacity_buffers.yaml"
DEFINITION = "capacitybuffers.autoscaling.x-k8s.io"
ACCOUNT = "system:serviceaccount:j10ce-system:j10ce-extender"
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
        shipped = installation.chosen((folder / "extender.yaml").read_text(), CHOICES)
        config = YAML(typ="safe").load(shipped) | extender_process.PATIENT
        config["quotas"] |= {"giveBack": {"graceSeconds": 0}}
        extender = extender_process.start(own, config=config, extra=["--identity", "e1"])
        extender.wait_ready(120)
        lab_cluster.add_scheduler(own, "j10ce-scheduler", SCHEDULER, verbs_url=extender.verbs_url)
        logs = [extender.log, components.find(own.folder, "j10ce-scheduler").log]
        yield lambda: "".join(log.read_text(errors="replace") for log in logs)


def node(name: str) -> dict[str, Any]:
    capacity = {"cpu": "16", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": capacity, "capacity": capacity},
    }


def pod(name: str, app: str, cpu: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {
            "schedulerName": "j10ce-scheduler",
            "containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": cpu}}}],
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


@pytest.fixture
def own(make_cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster with all that is installed but the Deployment (its images are nowhere); a node of 16 CPU."""
    cluster = make_cluster(crds=False)
    kubectl = find(os.environ, cluster.kubeconfig, "")
    wanted = installation.objects(kubectl, "second-scheduler", CHOICES)
    apply(kubectl, [item for item in wanted if item["kind"] != "Deployment"], force_conflicts=False)
    create(kubectl, node("n1"))
    return cluster


def create(kubectl: Kubectl, *objects: dict[str, Any]) -> None:
    kubectl.run("create", "-f", "-", stdin=as_list(objects))


def all_bound(kubectl: Kubectl) -> bool:
    return all(item["spec"].get("nodeName") for item in kubectl.objects("get", "pods", "-n", "default"))


def reported(kubectl: Kubectl) -> bool:
    status = kubectl.objects("get", "mrp", "checkout", "-n", "default")[0].get("status", {})
    return bool(status.get("slots", {}).get("filled") == 1 and status["slots"]["held"] == 2)


def held_nodes_annotated(kubectl: Kubectl) -> bool:
    nodes = kubectl.objects("get", "nodes")
    return any("j10ce.io/held" in item["metadata"].get("annotations", {}) for item in nodes)


def refused_for_holds(kubectl: Kubectl) -> bool:
    pods = kubectl.objects("get", "pods", "-n", "default", "--selector", "app=big")
    return "holds of default/checkout" in json.dumps([item["status"] for item in pods])


def scale_target_by_a_right_given_later(kubectl: Kubectl, logs: Callable[[], str]) -> None:
    """The account may read a kind once a ClusterRole with the label says so; before, its policy says it."""
    for one in scalable("farms", "Farm"):
        create(kubectl, one)
    kubectl.run("wait", "--for=condition=Established", "crd/farms.example.com", "--timeout=60s")
    metadata = {"name": "farm", "namespace": "default"}
    create(
        kubectl, {"apiVersion": "example.com/v1", "kind": "Farm", "metadata": metadata, "spec": {"size": 2}}
    )
    target = {"apiVersion": "example.com/v1", "kind": "Farm", "name": "farm"}
    placement = {"inheritFromWorkload": False}
    spec = POLICY["spec"] | {"slots": {"scaleTargetRef": target}, "placement": placement}
    selector = {"selector": {"matchLabels": {"app": "farm"}}}
    create(kubectl, POLICY | {"metadata": metadata, "spec": spec | selector})

    def ready() -> tuple[str, str, int]:
        status = kubectl.objects("get", "mrp", "farm", "-n", "default")[0].get("status", {})
        found = next((one for one in status.get("conditions", []) if one["type"] == "Ready"), {})
        return found.get("reason", ""), found.get("message", ""), status.get("slots", {}).get("desired", 0)

    wait_for("the right that is missing is named", lambda: ready()[0] == "ScaleTargetForbidden", logs)
    assert "may not list and watch farms.example.com" in ready()[1]
    rules = [
        {"apiGroups": ["example.com"], "resources": ["farms"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["example.com"], "resources": ["farms/scale"], "verbs": ["get"]},
    ]
    labels = {"j10ce.io/aggregate-to-scale-targets": "true"}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules}
    create(kubectl, role | {"metadata": {"name": "farm-reader", "labels": labels}})
    wait_for("its slots are held", lambda: ready()[2] == 2, logs)


def condition(kubectl: Kubectl, name: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition of the policy."""
    status = kubectl.objects("get", "mrp", "checkout", "-n", "default")[0].get("status", {})
    found = next((one for one in status.get("conditions", []) if one["type"] == name), {})
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def buffers(kubectl: Kubectl) -> list[dict[str, Any]]:
    return kubectl.objects("get", "capacitybuffers", "-n", "default")


def autoscalers_are_asked_once_they_serve_the_kind(kubectl: Kubectl, logs: Callable[[], str]) -> None:
    """What an autoscaler would answer is written by hand (test_autoscaler.py has a real one)."""
    assert condition(kubectl, "Provisioned")[1] == "NotServed"
    kubectl.run("create", "-f", str(BUFFERS))
    kubectl.run("wait", "--for=condition=Established", f"crd/{DEFINITION}", "--timeout=60s")
    wait_for("a buffer is made", lambda: bool(buffers(kubectl)), logs)
    (buffer,) = buffers(kubectl)
    assert buffer["spec"]["replicas"] == 2, "of 3 slots one is filled"
    (template,) = kubectl.objects("get", "podtemplates", "-n", "default")
    assert buffer["spec"]["podTemplateRef"]["name"] == template["metadata"]["name"] == "j10ce-checkout"
    (owner,) = buffer["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("MinimalReservationPolicy", "checkout")
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "2"
    told = {
        "type": "Provisioning",
        "status": "True",
        "reason": "FitsExistingCapacity",
        "message": "All 2 virtual pods fit on existing capacity",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    answer = json.dumps({"status": {"conditions": [told]}})
    how = ("--subresource=status", "--type=merge", "-p", answer)
    kubectl.run("patch", "capacitybuffer", "j10ce-checkout", "-n", "default", *how)
    wait_for(
        "its answer is told", lambda: condition(kubectl, "Provisioned")[1] == "FitsExistingCapacity", logs
    )
    written = {one["metadata"]["name"]: one["metadata"]["generation"] for one in buffers(kubectl)}
    assert written == {"j10ce-checkout": 1}, "once"
    assert template["metadata"]["generation"] == 1
    metadata = {"name": "theirs", "namespace": "default"}
    theirs = {key: template[key] for key in ("apiVersion", "kind", "template")} | {"metadata": metadata}
    with pytest.raises(KubectlError, match=r"only objects that carry j10ce\.io/capacity-buffer"):
        kubectl.run("create", "--as", ACCOUNT, "-f", "-", stdin=as_list([theirs]))


def quotas_give_back_once_they_are_served(kubectl: Kubectl, logs: Callable[[], str]) -> None:
    """Pods of one that has borrowed all are evicted for one that is owed; the status says how they stand."""
    assert "elasticquotas.scheduling.sigs.k8s.io not listed" in logs()
    kubectl.run("delete", "pod", "big", "other", "checkout-1", "-n", "default", "--force")
    kubectl.run("create", "-f", str(QUOTAS))
    kubectl.run(
        "wait", "--for=condition=Established", "crd/elasticquotas.scheduling.sigs.k8s.io", "--timeout=60s"
    )
    for name, least in (("lender", "2"), ("borrower", "0")):
        spec = {"min": {"cpu": least}, "max": {"cpu": "16"}}
        meta = {"name": name, "namespace": "default"}
        version = "scheduling.sigs.k8s.io/v1alpha1"
        create(kubectl, {"apiVersion": version, "kind": "ElasticQuota", "metadata": meta, "spec": spec})

    def of(name: str, made: dict[str, Any]) -> dict[str, Any]:
        made["metadata"]["labels"]["quota.scheduling.koordinator.sh/name"] = name
        made["spec"]["terminationGracePeriodSeconds"] = 0  # nobody runs them
        return made

    def used(name: str) -> str:
        (found,) = kubectl.objects("get", "elasticquotas", name, "-n", "default")
        return str(found.get("status", {}).get("used", {}).get("cpu", ""))

    mine = ("patch", "elasticquota", "lender", "-n", "default", "--as", ACCOUNT, "--type=merge", "-p")
    with pytest.raises(KubectlError, match="the extender may change only the status of elasticquotas"):
        kubectl.run(*mine, '{"spec": {"max": {"cpu": "17"}}}')
    create(kubectl, *(of("borrower", pod(f"b{number}", "b", "4")) for number in range(4)))
    wait_for("one has borrowed all", lambda: used("borrower") == "16", logs)
    create(kubectl, of("lender", pod("owed", "a", "2")))
    wait_for("one of them gives it back", lambda: (used("borrower"), used("lender")) == ("12", "2"), logs)
    assert len(kubectl.objects("get", "pods", "-n", "default", "--selector", "app=b")) == 3


def gangs_start_together(kubectl: Kubectl, logs: Callable[[], str]) -> None:
    """The API server gates their pods; with the last one both are let go; the PodGroup's status says so."""
    kubectl.run("create", "-f", str(POD_GROUPS))
    kubectl.run(
        "wait", "--for=condition=Established", "crd/podgroups.scheduling.sigs.k8s.io", "--timeout=60s"
    )
    meta = {"name": "train", "namespace": "default"}
    version, spec = "scheduling.sigs.k8s.io/v1alpha1", {"minMember": 2}
    create(kubectl, {"apiVersion": version, "kind": "PodGroup", "metadata": meta, "spec": spec})

    def of_gang(name: str) -> dict[str, Any]:
        made = pod(name, "train", "1")
        made["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io"] = "train"
        return made

    def phase() -> str:
        (found,) = kubectl.objects("get", "podgroups.scheduling.sigs.k8s.io", "-n", "default")
        return str(found.get("status", {}).get("phase", ""))

    create(kubectl, of_gang("train-0"))
    wait_for("one waits for the other", lambda: phase() == "Pending", logs)
    (first,) = kubectl.objects("get", "pods", "-n", "default", "--selector", "app=train")
    assert first["spec"]["schedulingGates"] == [{"name": "j10ce.io/gang"}]
    create(kubectl, of_gang("train-1"))
    wait_for("both have a node", lambda: phase() in ("Scheduled", "Running"), logs)


def test_they_do_their_work_with_these_rights(own: Cluster) -> None:
    kubectl = find(os.environ, own.kubeconfig, "")
    with at_work(as_account(own, kubectl)) as logs:
        create(kubectl, POLICY, pod("checkout-1", "checkout", "2"), pod("other", "other", "2"))
        wait_for("both pods are bound", lambda: all_bound(kubectl), logs)
        wait_for("the status says so", lambda: reported(kubectl), logs)
        wait_for("nodes with holds are annotated", lambda: held_nodes_annotated(kubectl), logs)
        (owner,) = kubectl.objects("get", "pods", "-n", "default", "--selector", "app=checkout")
        assert owner["metadata"]["annotations"]["j10ce.io/policy"] == "default/checkout"
        assert owner["metadata"]["annotations"]["j10ce.io/bound-by"] == "e1"
        assert kubectl.objects("get", "lease", "j10ce-extender", "-n", "j10ce-system")

        # 12 CPU are free and 4 of them held: kube-scheduler itself would let it in.
        create(kubectl, pod("big", "big", "9"))
        wait_for("a pod is refused for the holds", lambda: refused_for_holds(kubectl), logs)
        autoscalers_are_asked_once_they_serve_the_kind(kubectl, logs)
        let_go = ("--type=merge", "-p", '{"spec": {"suspend": true}}')
        kubectl.run("patch", "mrp", "checkout", "-n", "default", *let_go)
        wait_for("it is woken and bound", lambda: all_bound(kubectl), logs)
        wait_for("who asks for nothing has no buffer", lambda: not buffers(kubectl), logs)
        quotas_give_back_once_they_are_served(kubectl, logs)
        gangs_start_together(kubectl, logs)
        wait_for("nor a template", lambda: not kubectl.objects("get", "podtemplates", "-n", "default"), logs)
        said = logs()
        scale_target_by_a_right_given_later(kubectl, logs)
    assert [line for line in said.splitlines() if "forbidden" in line.lower() or " 403 " in line] == []
