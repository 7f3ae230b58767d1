"""Workloads and DaemonSets, read from their templates."""

import json

import pytest

from adapters.api import DEPLOYMENTS, STATEFUL_SETS
from adapters.kubernetes import decode
from qos.cluster.objects import (
    NodePredicate,
    NodeSelectorTerm,
    Requirement,
    Selector,
    Spread,
    Toleration,
)

HOSTNAME = "kubernetes.io/hostname"


def encode(obj):
    return json.dumps(obj).encode()


def workload_object(replicas=3, labels=None, **spec):
    template = {
        "metadata": {"labels": labels or {"app": "web"}, "creationTimestamp": None},
        "spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "2"}}}]} | spec,
    }
    return {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": replicas, "template": template},
    }


def test_a_workload():
    workload = decode.workload(DEPLOYMENTS, encode(workload_object(nodeSelector={"disk": "ssd"})))
    assert (workload.namespace, workload.kind, workload.name, workload.replicas) == (
        "shop",
        "Deployment",
        "web",
        3,
    )
    assert workload.requests == {"cpu": 2000, "pods": 1}
    assert workload.where == NodePredicate(node_selector=(("disk", "ssd"),))
    assert (workload.one_per_node, workload.selected) == (False, {"app": "web"})


def test_replicas_that_are_not_stated_are_one():
    assert decode.workload(STATEFUL_SETS, encode(workload_object(replicas=None))).replicas == 1


def test_required_node_affinity_and_tolerations():
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    tolerations = [{"key": "a"}, {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]
    raw = encode(workload_object(affinity={"nodeAffinity": required}, tolerations=tolerations))
    assert decode.workload(DEPLOYMENTS, raw).where == NodePredicate(
        affinity=(
            NodeSelectorTerm(labels=(Requirement("zone", "In", ("a", "b")),)),
            NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)),
        ),
        tolerations=(Toleration("a", "Equal"), Toleration("", "Exists", "", "NoExecute")),
    )


def test_an_affinity_of_empty_terms_matches_no_node():
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    raw = encode(workload_object(affinity={"nodeAffinity": required}))
    assert decode.workload(DEPLOYMENTS, raw).where.affinity == ()


SELF = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (SELF, True),
        (SELF | {"matchLabelKeys": ["pod-template-hash"]}, True),
        (SELF | {"namespaceSelector": {}}, True),
        (SELF | {"namespaces": ["shop"]}, True),
        (SELF | {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, True),
        (SELF | {"labelSelector": {}}, True),
        (SELF | {"labelSelector": {"matchLabels": {"app": "db"}}}, False),
        (SELF | {"labelSelector": None}, False),
        (SELF | {"topologyKey": "zone"}, False),
        (SELF | {"namespaces": ["other"]}, False),
        (SELF | {"mismatchLabelKeys": ["app"]}, False),
    ],
)
def test_one_per_node_by_anti_affinity(term, expected):
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert decode.workload(DEPLOYMENTS, encode(workload_object(affinity=affinity))).one_per_node is expected


def test_preferred_anti_affinity_is_no_matter():
    preferred = [{"weight": 1, "podAffinityTerm": SELF}]
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert not decode.workload(DEPLOYMENTS, encode(workload_object(affinity=affinity))).one_per_node


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{"name": "a", "ports": [{"containerPort": 80, "hostPort": 8080}]}]}, True),
        ({"containers": [{"name": "a", "ports": [{"containerPort": 80}]}]}, False),
        ({"containers": [{"name": "a", "ports": [{"containerPort": 80}]}], "hostNetwork": True}, True),
        ({"containers": [{"name": "a"}], "hostNetwork": True}, False),
    ],
)
def test_one_per_node_by_a_port_of_the_host(spec, expected):
    assert decode.workload(DEPLOYMENTS, encode(workload_object(**spec))).one_per_node is expected


def test_a_daemon_set_tolerates_what_its_controller_adds():
    obj = workload_object(nodeSelector={"os": "linux"}, tolerations=[{"key": "gpu", "operator": "Exists"}])
    obj["metadata"]["uid"] = "u7"
    daemon_set = decode.daemon_set(encode(obj))
    assert (daemon_set.uid, daemon_set.key) == ("u7", "shop/web")
    assert daemon_set.requests == {"cpu": 2000, "pods": 1}
    tolerated = {(t.key, t.operator, t.effect) for t in daemon_set.where.tolerations}
    assert ("gpu", "Exists", "") in tolerated
    assert ("node.kubernetes.io/unschedulable", "Exists", "NoSchedule") in tolerated
    assert ("node.kubernetes.io/not-ready", "Exists", "NoExecute") in tolerated
    assert not any(key.endswith("network-unavailable") for key, _, _ in tolerated)
    on_host = decode.daemon_set(encode(workload_object(hostNetwork=True)))
    assert "node.kubernetes.io/network-unavailable" in {t.key for t in on_host.where.tolerations}


def test_spread_constraints_of_a_template():
    hard = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["release", "pod-template-hash"],
        "nodeAffinityPolicy": None,
    }
    soft = {"maxSkew": 3, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"}
    labels = {"app": "web", "release": "r1"}
    given = workload_object(labels=labels, topologySpreadConstraints=[hard, soft])
    one, other = decode.workload(DEPLOYMENTS, encode(given)).spread
    # What controllers add to each revision's pods is not in the template: those of all revisions count.
    counted = Selector((Requirement("app", "In", ("web",)), Requirement("release", "In", ("r1",))))
    assert one == Spread("zone", 1, counted)
    assert (other.key, other.max_skew, other.required, other.itself) == (HOSTNAME, 3, False, False)
    given = workload_object(labels={"app": "other"}, topologySpreadConstraints=[hard])
    assert not decode.workload(DEPLOYMENTS, encode(given)).spread[0].itself


def test_required_anti_affinity_of_a_template():
    def term(key, app, **more):
        return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}} | more

    terms = [
        term("zone", "web"),
        term("zone", "batch"),
        term(HOSTNAME, "batch"),
        term(HOSTNAME, "web"),  # one a node
        term("rack", "web", namespaces=["other"]),
        term("rack", "web", mismatchLabelKeys=["tenant"]),
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    raw = encode(workload_object(affinity={"podAntiAffinity": required}))
    workload = decode.workload(DEPLOYMENTS, raw)
    found = [(one.key, one.apart, one.itself, one.max_skew) for one in workload.spread]
    assert found == [("zone", True, True, 1), ("zone", True, False, 0), (HOSTNAME, True, False, 0)]
    assert workload.one_per_node


def test_required_affinity_of_a_template():
    terms = [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}},
        {"topologyKey": "rack", "labelSelector": {"matchLabels": {"tier": "front"}}},
        {"topologyKey": "rack", "labelSelector": {}, "namespaces": ["other"]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    raw = encode(workload_object(affinity={"podAffinity": required}))
    found = decode.workload(DEPLOYMENTS, raw).spread
    both = Selector((Requirement("app", "In", ("web",)), Requirement("tier", "In", ("front",))))
    assert [(one.key, one.together, one.selector, one.itself) for one in found] == [
        ("zone", True, both, False),
        ("rack", True, both, False),
    ]
