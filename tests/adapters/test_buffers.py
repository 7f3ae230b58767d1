"""CapacityBuffers and PodTemplates: what is written of a slot, and what is read of what is there."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest

from adapters.api import CAPACITY_BUFFERS
from adapters.kubernetes import buffers
from adapters.kubernetes.buffers import Owner, Told
from adapters.kubernetes.wire import DecodeError
from qos import keys
from qos.cluster.objects import (
    Demand,
    NodePredicate,
    NodeSelectorTerm,
    Requirement,
    Selector,
    Spread,
    Toleration,
)

APP = Selector((Requirement("app", "In", ("web",)),))
OWNER = Owner("shop", "checkout", "u-1")
DEMAND = Demand("shop/checkout", "shop", APP, {"cpu": 1500, "memory": 2**30, "pods": 1}, 3)


def zone(*values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm((Requirement(keys.ZONE_LABEL, "In", values),))


def content(**changes):
    found = buffers.slot_content(replace(DEMAND, **changes))
    assert found is not None
    return found


def required(affinity):
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]


def test_a_slot_is_a_pod_of_its_requests():
    assert content() == {
        "labels": {"app": "web"},
        "spec": {
            "containers": [
                {
                    "name": "slot",
                    "image": "slot",
                    "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}},
                }
            ]
        },
    }


def test_what_cannot_be_overcommitted_is_a_limit_too_and_bandwidth_is_left_to_agents():
    vector = {"nvidia.com/gpu": 2, "hugepages-2Mi": 2**21, keys.EGRESS_BANDWIDTH: 10**8, "cpu": 1000}
    resources = content(vector=vector)["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"nvidia.com/gpu": "2", "hugepages-2Mi": "2Mi"}
    assert resources["requests"] == resources["limits"] | {"cpu": "1"}


def test_where_a_slot_may_lie_is_said_of_its_pod():
    where = NodePredicate(
        (("disk", "ssd"),),
        (zone("a"), NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n1",)),))),
        (Toleration("team", "Equal", "shop", "NoSchedule"), Toleration(operator="Exists")),
    )
    spec = content(where=where)["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["tolerations"] == [
        {"key": "team", "operator": "Equal", "value": "shop", "effect": "NoSchedule"},
        {"operator": "Exists"},
    ]
    expression = {"key": keys.ZONE_LABEL, "operator": "In", "values": ["a"]}
    name = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert required(spec["affinity"]["nodeAffinity"])["nodeSelectorTerms"] == [
        {"matchExpressions": [expression]},
        {"matchFields": [name]},
    ]


def test_nodes_are_where_all_its_volumes_are():
    where = NodePredicate(affinity=(zone("a", "b"),), volumes=((zone("b"), zone("c")), (zone("b"),)))
    terms = required(content(where=where)["spec"]["affinity"]["nodeAffinity"])["nodeSelectorTerms"]
    assert [[one["values"] for one in term["matchExpressions"]] for term in terms] == [
        [["a", "b"], ["b"], ["b"]],
        [["a", "b"], ["c"], ["b"]],
    ]
    many = NodePredicate(affinity=(zone("a"),), volumes=(tuple(zone(str(n)) for n in range(65)),))
    terms = required(content(where=many)["spec"]["affinity"]["nodeAffinity"])["nodeSelectorTerms"]
    assert [term["matchExpressions"][0]["values"] for term in terms] == [["a"]]


def test_no_node_is_asked_for_what_no_node_may_hold():
    assert buffers.slot_content(replace(DEMAND, where=NodePredicate(affinity=()))) is None


def test_slots_are_spread_as_their_pods_are():
    other = Selector((Requirement("tier", "In", ("front",)),))
    spread = (
        Spread(keys.ZONE_LABEL, 1, other, min_domains=3, honor_affinity=False, honor_taints=True),
        Spread(keys.ZONE_LABEL, 2, APP, required=False),
        Spread("rack", 1, APP, apart=True),
        Spread("rack", 1, APP, together=True),
    )
    found = content(spread=spread)
    assert found["labels"] == {"app": "web", "tier": "front"}, "they count themselves"
    expressions = [{"key": "app", "operator": "In", "values": ["web"]}]
    term = {"topologyKey": "rack", "labelSelector": {"matchExpressions": expressions}}
    assert required(found["spec"]["affinity"]["podAntiAffinity"]) == [term]
    assert required(found["spec"]["affinity"]["podAffinity"]) == [term]
    (even,) = found["spec"]["topologySpreadConstraints"]
    assert (even["maxSkew"], even["minDomains"], even["whenUnsatisfiable"]) == (1, 3, "DoNotSchedule")
    assert (even["nodeAffinityPolicy"], even["nodeTaintsPolicy"]) == ("Ignore", "Honor")


def test_no_node_has_more_slots_than_the_policy_says():
    (even,) = content(max_slots_per_node=4)["spec"]["topologySpreadConstraints"]
    assert (even["topologyKey"], even["maxSkew"]) == (keys.HOSTNAME_LABEL, 4)
    assert even["minDomains"] > 100_000, "there are never so many nodes: so 4 is the most"


def test_what_is_written_is_what_is_read():
    demand = replace(
        DEMAND,
        where=NodePredicate((("disk", "ssd"),), (zone("a"),), (Toleration(operator="Exists"),)),
        max_slots_per_node=2,
    )
    slot = buffers.slot_content(demand)
    assert slot is not None
    template = buffers.pod_template(OWNER, slot)
    filled_in = copy.deepcopy(template)  # as the API server does
    filled_in["template"]["spec"] |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}
    filled_in["template"]["spec"]["containers"][0] |= {"imagePullPolicy": "Always"}
    filled_in["metadata"] |= {"uid": "t-1", "resourceVersion": "7"}
    seen = buffers.seen_template(json.dumps(filled_in).encode())
    assert seen is not None
    assert (seen.key, seen.uid, seen.resource_version, seen.owner) == (
        "shop/j10ce-checkout",
        "t-1",
        "7",
        "u-1",
    )
    assert seen.content == slot
    filled_in["template"]["spec"]["nodeSelector"] = {"disk": "hdd"}
    other = buffers.seen_template(json.dumps(filled_in).encode())
    assert other is not None
    assert other.content != slot


@pytest.mark.parametrize("resource", CAPACITY_BUFFERS)
def test_a_buffer_is_of_the_version_that_is_served(resource):
    one = buffers.buffer(OWNER, resource, 12)
    assert one["apiVersion"] == f"autoscaling.x-k8s.io/{resource.version}"
    (reference,) = one["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"], reference["uid"]) == (
        "MinimalReservationPolicy",
        "checkout",
        "u-1",
    )
    told = [{"type": "Provisioning", "status": "True", "reason": "Fits", "message": "all", "more": 1}]
    seen = buffers.seen_buffer(json.dumps(one | {"status": {"conditions": told}}).encode())
    assert seen is not None
    assert seen.content == buffers.buffer_content(OWNER, 12) == one["spec"]
    assert seen.conditions == {"Provisioning": Told("True", "Fits", "all")}


def test_others_are_not_ours():
    one = buffers.buffer(OWNER, CAPACITY_BUFFERS[0], 1)
    for name, value in (("labels", {}), ("ownerReferences", [])):
        other = one | {"metadata": one["metadata"] | {name: value}}
        assert buffers.seen_buffer(json.dumps(other).encode()) is None
    reference = one["metadata"]["ownerReferences"][0] | {"kind": "Deployment"}
    other = one | {"metadata": one["metadata"] | {"ownerReferences": [reference]}}
    assert buffers.seen_buffer(json.dumps(other).encode()) is None


def test_what_cannot_be_read_is_an_error_of_its_own():
    for read in (buffers.seen_buffer, buffers.seen_template):
        with pytest.raises(DecodeError):
            read(b'{"metadata": 1}')


def test_two_long_names_are_two_names():
    names = {Owner("shop", letter * 253, "u").object_name for letter in "ab"}
    assert len(names) == 2
    assert all(len(name) <= 253 for name in names)
