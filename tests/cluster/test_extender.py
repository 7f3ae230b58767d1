"""The extender beside a real kube-scheduler: what unit tests cannot show."""

from __future__ import annotations

import datetime as dt
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from typer.testing import CliRunner

from cli.app import app
from lab import extender_process, nodes, scheduler_config
from lab.cluster import Cluster
from lab.extender_process import ExtenderProcess
from tests.cluster.custom_kinds import scalable

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
GUARD = ROOT / "scheduler-config" / "default-scheduler.yaml"
DEADLINE = 60.0

Object = dict[str, Any]


def pod(name: str, cpu: str, app: str, **spec: Any) -> Object:
    container = {"name": "main", "image": "registry.invalid/none", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "labels": {"app": app}}
    body = {"containers": [container], "terminationGracePeriodSeconds": 0} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def policy(name: str, slots: int, cpu: str, **spec: Any) -> Object:
    body = {
        "selector": {"matchLabels": {"app": name}},
        "floor": {"resources": {"cpu": cpu}},
        "slots": {"count": slots},
    }
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "j10ce.io/v1alpha1",
        "kind": "MinimalReservationPolicy",
        "metadata": metadata,
        "spec": body | spec,
    }


class Rig:
    """A cluster, its extender, and questions to both."""

    def __init__(self, cluster: Cluster, extender: ExtenderProcess) -> None:
        self.cluster, self.extender = cluster, extender

    def create(self, *objects: Object) -> None:
        text = "\n---\n".join(json.dumps(one) for one in objects)
        self.cluster.kubectl("create", "-f", "-", stdin=text)

    def get(self, *what: str) -> Any:
        return json.loads(self.cluster.kubectl("get", *what, "-o", "json"))

    def bound(self, app: str) -> list[str]:
        found = self.get("pods", "-l", f"app={app}")["items"]
        return sorted(one["metadata"]["name"] for one in found if one["spec"].get("nodeName"))

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        status = self.get("mrp", name).get("status", {})
        found = {one["type"]: one for one in status.get("conditions", [])}
        return (found[kind]["status"], found[kind]["reason"]) if kind in found else ("", "")

    def wait(self, ready: Callable[[], Any], seconds: float = DEADLINE) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < deadline, f"not within {seconds} s; {self.extender.last_words()}"
            time.sleep(0.05)

    def attempts(self, name: str) -> int:
        """How often kube-scheduler has reported that it tried a pod."""
        events = self.get("events", "--field-selector", f"involvedObject.name={name}")["items"]
        return sum((one.get("series") or {}).get("count", 1) for one in events)

    def with_nodes(self, count: int, cpu: str) -> None:
        self.create(*nodes.nodes("node", count, {"cpu": cpu}))
        self.cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")


@pytest.fixture
def rig(make_cluster: Callable[..., Cluster]) -> Callable[..., Rig]:
    def make(config: Any = GUARD, *, mode: str = "Guard", scheme: str = "http", extra: Any = ()) -> Rig:
        cluster = make_cluster(config, verbs_scheme=scheme)
        arguments = ["--cap-percent", "100", *extra]
        extender = extender_process.start(cluster, mode=mode, extra=arguments)
        extender.wait_ready()
        return Rig(cluster, extender)

    return make


def test_a_floor_is_held_against_a_flood_and_given_to_its_owners(rig):
    rig = rig()
    rig.with_nodes(3, "4")
    rig.create(policy("checkout", 3, "2"))
    rig.wait(lambda: rig.condition("checkout", "Held")[0] == "True")
    rig.create(*(pod(f"batch-{i}", "1", "batch") for i in range(12)))
    rig.wait(lambda: len(rig.bound("batch")) == 6)
    rig.create(*(pod(f"checkout-{i}", "2", "checkout") for i in range(3)))
    rig.wait(lambda: len(rig.bound("checkout")) == 3)
    assert len(rig.bound("batch")) == 6
    owner = rig.get("pod", "checkout-0")["metadata"]["annotations"]
    assert owner["j10ce.io/policy"] == "default/checkout"
    assert owner["j10ce.io/bound-by"]
    rig.wait(lambda: rig.get("mrp", "checkout")["status"]["slots"]["filled"] == 3)
    assert rig.condition("checkout", "Guarded") == ("True", "Guarded")


def test_t21_waiting_pods_are_woken_when_holds_go(rig):
    """A change of our custom resource wakes nobody by itself; without waking they wait for five minutes."""
    rig = rig()
    rig.with_nodes(1, "4")
    rig.create(policy("checkout", 2, "2"))
    rig.wait(lambda: rig.condition("checkout", "Held")[0] == "True")
    rig.create(pod("batch", "3", "batch"))
    rig.wait(lambda: rig.attempts("batch") >= 1)
    rig.cluster.kubectl("delete", "mrp", "checkout")
    rig.wait(lambda: rig.bound("batch"))
    assert "j10ce.io/wake" in rig.get("pod", "batch")["metadata"]["annotations"]


def test_t05_killed_and_restarted_it_holds_the_same_and_says_who_went_by(rig):
    rig = rig()
    rig.with_nodes(2, "4")
    rig.create(policy("checkout", 2, "2"))
    rig.wait(lambda: rig.condition("checkout", "Held")[0] == "True")
    rig.extender.kill(signal.SIGKILL)
    rig.create(*(pod(f"batch-{i}", "3", "batch") for i in range(2)))
    rig.wait(lambda: len(rig.bound("batch")) == 2), "Guard: pods go on being scheduled"
    rig.extender.restart()
    rig.extender.wait_ready()
    rig.wait(lambda: rig.condition("checkout", "Guarded") == ("False", "ExtenderAway"))
    rig.wait(lambda: rig.condition("checkout", "Held") == ("False", "SlotsUnplaced"))
    assert rig.get("mrp", "checkout")["status"]["slots"]["unplaced"] == 2
    rig.cluster.kubectl("delete", "pod", "batch-0")
    rig.wait(lambda: rig.condition("checkout", "Held")[0] == "True")


def test_t20_in_strict_mode_nothing_is_scheduled_without_it_but_what_is_exempt(rig):
    rig = rig(ROOT / "scheduler-config" / "strict.yaml", mode="Strict")
    rig.with_nodes(1, "4")
    rig.create(policy("checkout", 2, "2"))
    rig.wait(lambda: rig.condition("checkout", "Held")[0] == "True")
    rig.create(
        pod("batch", "2", "batch"), pod("system", "1", "system", priorityClassName="system-node-critical")
    )
    rig.wait(lambda: rig.bound("system"))
    assert not rig.bound("batch")
    rig.extender.kill(signal.SIGKILL)
    rig.create(pod("late", "100m", "late"))
    rig.wait(lambda: rig.attempts("late") >= 1)
    assert not rig.bound("late")
    rig.extender.restart()
    rig.extender.wait_ready()


def test_t23_a_pod_of_higher_priority_evicts_only_where_it_then_runs(rig):
    rig = rig()
    rig.with_nodes(2, "4")
    for name, value in (("mid", 100), ("floor", 1000)):
        metadata = {"name": name}
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        rig.create(kind | {"metadata": metadata, "value": value})
    rig.create(
        policy("checkout", 2, "1", priorityClassName="floor", placement={"maxSlotsPerNode": 1}),
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "batch", "namespace": "default"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "batch"}},
                "template": {
                    "metadata": {"labels": {"app": "batch"}},
                    "spec": pod("x", "2", "batch")["spec"],
                },
            },
        },
    )
    rig.wait(lambda: rig.condition("checkout", "Held")[0] == "True")
    rig.wait(lambda: len(rig.bound("batch")) == 2)

    def evictions() -> int:
        """Of those whom kube-scheduler evicts it tells some moments later."""
        return len(rig.get("events", "--field-selector", "reason=Preempted")["items"])

    # On each node 1 of 4 is held at a higher priority: evicting would make room for 3, not for 4.
    rig.create(pod("whole", "4", "whole", priorityClassName="mid"))
    rig.wait(lambda: rig.attempts("whole") >= 1)
    rig.create(pod("later", "1", "later"))
    rig.wait(lambda: rig.attempts("later") >= 1)
    assert evictions() == 0
    rig.create(pod("most", "3", "most", priorityClassName="mid"))
    rig.wait(lambda: rig.bound("most"))
    rig.wait(evictions)
    assert evictions() == 1
    assert rig.get("mrp", "checkout")["status"]["slots"]["unplaced"] == 0


def test_kube_scheduler_with_full_nodes(rig):
    config = scheduler_config.load(GUARD)
    config["extenders"] = [one | {"nodeCacheCapable": False} for one in config["extenders"]]
    rig = rig(config)
    rig.with_nodes(2, "4")
    rig.create(policy("checkout", 2, "2"))
    rig.wait(lambda: rig.condition("checkout", "Held")[0] == "True")
    rig.create(*(pod(f"batch-{i}", "1", "batch") for i in range(8)))
    rig.wait(lambda: len(rig.bound("batch")) == 4)
    rig.create(*(pod(f"checkout-{i}", "2", "checkout") for i in range(2)))
    rig.wait(lambda: len(rig.bound("checkout")) == 2)


def test_kube_scheduler_by_mutual_tls(rig, tmp_path):
    authority = trustme.CA()
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    files = {}
    for name, identity in (("server", "127.0.0.1"), ("client", "kube-scheduler")):
        issued = authority.issue_cert(identity, not_after=until)
        files[name] = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(files[name][0])
        issued.private_key_pem.write_to_path(files[name][1])
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    tls = {"certFile": str(files["client"][0]), "keyFile": str(files["client"][1]), "caFile": str(ca)}
    config = scheduler_config.load(GUARD)
    config["extenders"] = [
        one | {"enableHTTPS": True, "tlsConfig": tls, "ignorable": False} for one in config["extenders"]
    ]
    extra = ["--tls-cert-file", str(files["server"][0]), "--tls-key-file", str(files["server"][1])]
    rig = rig(config, scheme="https", extra=[*extra, "--client-ca-file", str(ca)])
    rig.with_nodes(1, "4")
    rig.create(pod("web", "1", "web"))
    rig.wait(lambda: rig.bound("web"))
    assert "j10ce.io/bound-by" in rig.get("pod", "web")["metadata"]["annotations"]


def test_observe_refuses_nothing_and_counts(rig):
    rig = rig(ROOT / "scheduler-config" / "observe.yaml", mode="Observe")
    rig.with_nodes(1, "4")
    rig.create(policy("checkout", 2, "2"))
    rig.wait(lambda: rig.condition("checkout", "Held")[0] == "True")
    rig.create(*(pod(f"batch-{i}", "1", "batch") for i in range(4)))
    rig.wait(lambda: len(rig.bound("batch")) == 4)
    rig.wait(lambda: rig.condition("checkout", "Held") == ("False", "SlotsUnplaced"))
    assert rig.condition("checkout", "Guarded") == ("False", "ObserveMode")


def test_headroom_follows_what_an_autoscaler_may_scale_to(rig):
    rig = rig()
    rig.with_nodes(2, "4")
    metadata = {"name": "shop", "namespace": "default"}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}
    template = {key: pod("", "1", "shop")[key] for key in ("metadata", "spec")}
    template["metadata"] = {"labels": {"app": "shop"}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "shop"}}, "template": template}
    spec["template"]["spec"].pop("terminationGracePeriodSeconds")
    rig.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    asked = policy("shop", 0, "1")
    asked["spec"]["slots"] = {"scaleTargetRef": target, "headroomTo": "HPAMaximum"}
    rig.create(asked)
    rig.wait(lambda: rig.condition("shop", "Ready") == ("False", "AutoscalerNotFound"))
    scaling = {"scaleTargetRef": target, "maxReplicas": 6}
    kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    rig.create({**kind, "metadata": metadata, "spec": scaling})
    rig.wait(lambda: rig.condition("shop", "Ready") == ("True", "AsAsked"))
    slots = rig.get("mrp", "shop")["status"]["slots"]
    assert (slots["desired"], slots["filled"] + slots["held"]) == (6, 6)
    rig.cluster.kubectl("delete", "hpa", "shop")
    rig.wait(lambda: rig.get("mrp", "shop")["status"]["slots"]["desired"] == 2)


def test_slots_follow_a_job_and_any_kind_that_scales(rig):
    rig = rig()
    rig.with_nodes(2, "8")
    rig.create(*scalable("farms", "Farm"), *scalable("barns", "Barn", scales=False))
    rig.cluster.kubectl(
        "wait", "--for=condition=Established", "crd/farms.example.com", "crd/barns.example.com"
    )
    template = {key: pod("", "1", "farm")[key] for key in ("metadata", "spec")}
    template["metadata"] = {"labels": {"app": "farm"}}
    made = [
        ("farm", "example.com/v1", "Farm", {"size": 3, "template": template}),
        ("bare", "example.com/v1", "Farm", {"size": 2}),
        ("barn", "example.com/v1", "Barn", {"size": 2}),
    ]
    for name, version, kind, spec in made:
        metadata = {"name": name, "namespace": "default"}
        rig.create({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
        asked = policy(name, 0, "1")
        asked["spec"]["slots"] = {"scaleTargetRef": {"apiVersion": version, "kind": kind, "name": name}}
        rig.create(asked)

    def desired(name: str) -> int:
        return int(rig.get("mrp", name).get("status", {}).get("slots", {}).get("desired", -1))

    rig.wait(lambda: desired("farm") == 3)
    rig.cluster.kubectl("scale", "farms.example.com/farm", "--replicas=5")
    rig.wait(lambda: desired("farm") == 5)
    assert rig.condition("farm", "Ready") == ("True", "AsAsked")
    said = CliRunner().invoke(app, ["losses", "--kubeconfig", str(rig.cluster.kubeconfig), "-o", "json"])
    (lost,) = (one for one in json.loads(said.output)["policies"] if one["policy"] == "default/farm")
    assert (lost["desired"], lost["held"], lost["survives"], lost["elsewhere"]) == (5, 5, 0, 0)
    assert sum(one["slots"] for one in lost["losses"]) == 5
    assert rig.condition("bare", "Ready") == ("False", "TemplateNotFound")
    rig.wait(lambda: rig.condition("barn", "Ready") == ("False", "ScaleTargetCannotScale"))

    spec = {"parallelism": 2, "completions": 4, "template": {"spec": dict(template["spec"])}}
    # Its pods would be over at once, as kwok has it: they go nowhere.
    spec["template"]["spec"] |= {"restartPolicy": "Never", "nodeSelector": {"there": "is-none"}}
    metadata = {"name": "nightly", "namespace": "default"}
    rig.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    asked = policy("nightly", 0, "1")
    asked["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/job-name": "nightly"}}
    asked["spec"]["slots"] = {"scaleTargetRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly"}}
    rig.create(asked)
    rig.wait(lambda: desired("nightly") == 2)
    rig.cluster.kubectl("patch", "job", "nightly", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    rig.wait(lambda: desired("nightly") == 0)
