import json
import tracemalloc
from pathlib import Path

import pytest

from adapters.kubernetes import decode
from adapters.kubernetes.decode import DecodeError
from qos.cluster.objects import (
    OwnerReference,
    Taint,
)

GI = 2**30
REQUESTS = json.loads((Path(__file__).parents[1] / "data" / "requests.json").read_text())
CREATED, CREATED_SECONDS = "2026-11-21T14:23:39Z", 1795271019.0


def encode(obj):
    return json.dumps(obj).encode()


def pod_object(spec=None, status=None, **metadata):
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    return {
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u1", "creationTimestamp": CREATED}
        | metadata,
        "spec": {"containers": [{"name": "app", "image": "x", "resources": resources}]} | (spec or {}),
        "status": status or {},
    }


def decoded(spec=None, status=None, **metadata):
    return decode.pod(encode(pod_object(spec, status, **metadata)))


def test_a_pod_with_little_in_it():
    pod = decoded()
    assert (pod.key, pod.uid, pod.phase, pod.scheduler_name) == (
        "shop/web-1",
        "u1",
        "Pending",
        "default-scheduler",
    )
    assert pod.requests == {"cpu": 500, "memory": GI, "pods": 1}
    assert pod.created == CREATED_SECONDS
    assert (pod.node_name, pod.priority, pod.labels, pod.controller) == ("", 0, {}, None)
    assert (pod.deleting, pod.mirror, pod.bound_by, pod.scheduled) == (False, False, "", 0.0)


def test_a_pod_with_everything():
    owners = [
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u8"},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u9", "controller": True},
    ]
    pod = decoded(
        {"nodeName": "n1", "priority": 7, "schedulerName": "other"},
        {
            "phase": "Running",
            "nominatedNodeName": "n2",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": CREATED}],
        },
        labels={"app": "web"},
        annotations={"j10ce.io/bound-by": "extender-1", "noise": "x", "kubernetes.io/config.mirror": ""},
        ownerReferences=owners,
        deletionTimestamp=CREATED,
    )
    assert (pod.node_name, pod.nominated_node_name, pod.priority, pod.scheduler_name) == (
        "n1",
        "n2",
        7,
        "other",
    )
    assert pod.controller == OwnerReference("ReplicaSet", "web", "u9", "apps/v1")
    assert (pod.labels, pod.bound_by, pod.mirror, pod.deleting) == ({"app": "web"}, "extender-1", True, True)
    assert (pod.phase, pod.scheduled, pod.unschedulable_since) == ("Running", CREATED_SECONDS, 0.0)


@pytest.mark.parametrize(("reason", "since"), [("Unschedulable", CREATED_SECONDS), ("SchedulingGated", 0.0)])
def test_unschedulable_since(reason, since):
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "lastTransitionTime": CREATED}
    pod = decoded(status={"conditions": [condition]})
    assert (pod.unschedulable_since, pod.scheduled) == (since, 0.0)


def test_what_go_sends_as_null():
    pod = decoded(
        {"containers": None, "initContainers": None, "overhead": None, "priority": None},
        {"conditions": None, "containerStatuses": None},
        labels=None,
        annotations=None,
        ownerReferences=None,
        creationTimestamp=None,
    )
    assert (pod.requests, pod.created) == ({"pods": 1}, 0.0)


def test_a_resize_in_place_counts():
    statuses = [
        {"name": "app", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "1"}},
    ]
    infeasible = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    assert decoded(status={"containerStatuses": statuses}).requests["cpu"] == 2000
    bigger = {"containers": [{"name": "app", "resources": {"requests": {"cpu": "8"}}}]}
    assert decoded(bigger, {"containerStatuses": statuses}).requests["cpu"] == 8000
    assert decoded(bigger, {"containerStatuses": statuses, "conditions": infeasible}).requests["cpu"] == 2000


@pytest.mark.parametrize("case", REQUESTS, ids=range(len(REQUESTS)))
def test_t16_the_fast_path_agrees_with_upstream_too(case):
    assert decoded(case["spec"], case["status"]).requests == case["requests"]


def test_pods_that_are_alike_share_their_mappings():
    one = decoded(labels={"app": "web"})
    two = decoded(labels={"app": "web"}, name="web-2", uid="u2")
    assert one.requests is two.requests
    assert one.labels is two.labels
    assert one.namespace is two.namespace


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "Pod (unreadable): JSON"),
        (b'{"metadata": {"x":' + b"[" * 100_000, "Pod (unreadable): JSON"),
        (encode([]), "Pod (unnamed): object"),
        (encode(pod_object(priority=1, name=5)), "Pod shop/5: metadata.name: 5"),
        (encode(pod_object({"priority": "high"})), "Pod shop/web-1: spec.priority: 'high'"),
        (encode(pod_object(creationTimestamp="noon")), "Pod shop/web-1: metadata.creationTimestamp: 'noon'"),
        (
            encode(pod_object({"containers": [{"name": "a", "resources": {"requests": {"cpu": "fast"}}}]})),
            "Pod shop/web-1: resources of cpu: 'fast'",
        ),
        (encode(pod_object({"containers": [{"name": 7}]})), "Pod shop/web-1: spec.containers[0].name: 7"),
        (encode(pod_object(labels={"app": 1})), """Pod shop/web-1: metadata.labels: '{"app": 1}'"""),
        (encode(pod_object(ownerReferences=[{}])), "Pod shop/web-1: metadata.ownerReferences: '[{}]'"),
        (encode(pod_object({"overhead": {"cpu": []}})), "Pod shop/web-1: resources"),
    ],
)
def test_a_bad_pod_is_named_with_field_and_value(raw, message):
    with pytest.raises(DecodeError) as caught:
        decode.pod(raw)
    assert str(caught.value).startswith(message)


def node_object(**status):
    return {
        "metadata": {"name": "n1", "uid": "u1", "labels": {"zone": "a"}},
        "spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "3920m", "memory": "64Gi", "pods": "110", "hugepages-2Mi": "0"}}
        | status,
    }


def test_a_node():
    ready = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}]
    node = decode.node(encode(node_object(conditions=ready)))
    assert node.allocatable == {"cpu": 3920, "memory": 64 * GI, "pods": 110, "hugepages-2Mi": 0}
    assert (node.name, node.labels, node.ready, node.unschedulable) == ("n1", {"zone": "a"}, True, False)
    assert node.taints == (Taint("dedicated", "db", "NoSchedule"),)


@pytest.mark.parametrize("conditions", [None, [], [{"type": "Ready", "status": "Unknown"}]])
def test_a_node_is_not_ready_until_it_says_so(conditions):
    assert not decode.node(encode(node_object(conditions=conditions))).ready


def test_an_empty_node():
    node = decode.node(encode({"metadata": {"name": "n1"}}))
    assert (node.allocatable, node.ready) == ({}, False)


def test_a_bad_amount_of_a_node_is_named():
    with pytest.raises(DecodeError, match=r"Node n1: status\.allocatable\.cpu: 'many'"):
        decode.node(encode(node_object(allocatable={"cpu": "many"})))


def test_a_priority_class():
    raw = encode({"metadata": {"name": "high"}, "value": 1000, "globalDefault": True})
    assert decode.priority_class(raw) == ("high", 1000, True)
    assert decode.priority_class(encode({"metadata": {"name": "low"}, "value": -5})) == ("low", -5, False)


def test_metadata_of_anything():
    meta = decode.metadata(
        encode({"kind": "X", "metadata": {"name": "a", "uid": "u", "resourceVersion": "9"}})
    )
    assert (meta.name, meta.namespace, meta.uid, meta.resource_version) == ("a", "", "u", "9")


def _labelled(number):
    labels = {f"k{i}": f"{number}-{'x' * 50}" for i in range(1_000)}
    return {"metadata": {"name": "p", "uid": "u", "labels": labels}, "spec": {"containers": []}}


def _owned(number):
    owners = [{"kind": "Job", "name": f"{number}-{i}", "uid": "x" * 36} for i in range(1_000)]
    return {"metadata": {"name": "p", "uid": "u", "ownerReferences": owners}, "spec": {"containers": []}}


def _populous(number):
    containers = [{"name": f"c{i}", "resources": {"requests": {"cpu": f"{number}m"}}} for i in range(1_000)]
    return {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": containers}}


@pytest.mark.parametrize("make", [_labelled, _owned, _populous])
def test_what_large_pods_say_is_not_kept_when_they_are_gone(make):
    raws = [encode(make(number)) for number in range(50)]
    alive = decode.pod(raws[0])  # keeps its keys interned: the interpreter's table of them must not grow
    tracemalloc.start()
    for raw in raws:
        decode.pod(raw)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < sum(map(len, raws)) / 5
    assert alive.uid == "u"
