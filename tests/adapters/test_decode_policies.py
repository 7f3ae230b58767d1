"""Our own resources, read from the watch: policies and profiles."""

import json

import pytest

from adapters.kubernetes import decode
from adapters.kubernetes.decode import DecodeError
from qos.bandwidth import Band, Limits
from qos.cluster.objects import (
    NodePredicate,
    PlacementMode,
    Requirement,
    Selector,
    Spread,
    Toleration,
)
from qos.cluster.policy import ScaleTarget, Surge
from qos.promises import CpuSet, IoLimit

CREATED, CREATED_SECONDS = "2026-11-21T14:23:39Z", 1795271019.0


def encode(obj):
    return json.dumps(obj).encode()


def policy_object(slots=None, **spec):
    return {
        "apiVersion": "j10ce.io/v1alpha1",
        "kind": "MinimalReservationPolicy",
        "metadata": {
            "name": "checkout",
            "namespace": "shop",
            "uid": "u1",
            "generation": 3,
            "resourceVersion": "42",
            "creationTimestamp": CREATED,
            "managedFields": [],
        },
        "spec": {
            "selector": {"matchLabels": {"app": "checkout"}},
            "floor": {"resources": {"cpu": "2", "memory": "4Gi"}},
            "slots": slots or {"count": 20},
        }
        | spec,
    }


def test_a_policy_with_a_count():
    placement = {
        "mode": "Pinned",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}, {"operator": "Exists"}],
        "maxSlotsPerNode": 4,
    }
    raw = encode(policy_object(priorityClassName="high", suspend=True, profileName="lc", placement=placement))
    policy = decode.policy(raw)
    assert (policy.key, policy.uid, policy.generation, policy.resource_version) == (
        "shop/checkout",
        "u1",
        3,
        "42",
    )
    assert policy.created == CREATED_SECONDS
    assert policy.selector == Selector((Requirement("app", "In", ("checkout",)),))
    assert policy.floor == {"cpu": 2000, "memory": 4 * 2**30}
    assert (policy.priority_class_name, policy.profile_name, policy.suspend) == ("high", "lc", True)
    assert (policy.count, policy.scale_target, policy.surge) == (20, None, Surge(0))
    assert (policy.mode, policy.max_slots_per_node) == (PlacementMode.PINNED, 4)
    assert policy.inherit_from_workload is False
    assert policy.where == NodePredicate(
        node_selector=(("disk", "ssd"),),
        tolerations=(Toleration("dedicated", "Equal", "db", "NoSchedule"), Toleration("", "Exists")),
    )


@pytest.mark.parametrize(("surge", "extra"), [("25%", 3), (2, 2), ("0%", 0)])
def test_a_policy_with_a_scale_target(surge, extra):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"}
    policy = decode.policy(encode(policy_object({"scaleTargetRef": target, "surge": surge})))
    assert policy.scale_target == ScaleTarget("apps/v1", "Deployment", "checkout")
    assert (policy.count, policy.inherit_from_workload) == (None, True)
    assert policy.surge.of(10) == extra


def test_a_status_is_kept_as_it_was_written_and_cannot_make_a_policy_unreadable():
    obj = policy_object() | {"status": {"slots": {"desired": "many"}, "fromAnotherVersion": 1}}
    assert decode.policy(encode(obj)).status == obj["status"]


def test_slots_that_were_used_up_count_only_while_the_policy_says_once():
    status = {"status": {"slots": {"consumed": 3}, "filledBy": [{"podUID": "p1", "nodeName": "n1"}]}}
    once, reuse = (policy_object(consumePolicy=one) | status for one in ("Once", "Reuse"))
    assert decode.policy(encode(once)).remembered.gone == 2
    assert decode.policy(encode(reuse)).remembered.gone == 0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"slots": {"count": -1}}, "MinimalReservationPolicy shop/checkout: spec.slots.count: -1"),
        (
            {"expirationTime": "9999-12-31T23:59:59-23:59"},  # no status could say that year
            "MinimalReservationPolicy shop/checkout: spec.expirationTime: '9999-12-31T23:59:59-23:59': must",
        ),
        (
            {"floor": {"resources": {"cpu": "0"}}},
            "MinimalReservationPolicy shop/checkout: spec.floor.resources.cpu: '0': must be",
        ),
    ],
)
def test_a_bad_policy_is_named_with_field_and_value(spec, message):
    with pytest.raises(DecodeError) as caught:
        decode.policy(encode(policy_object(**spec)))
    assert str(caught.value).startswith(message)


def test_a_profile():
    obj = {"metadata": {"name": "lc"}, "spec": {"class": "LSR", "priorityClassName": "high"}}
    profile = decode.profile(encode(obj))
    assert (profile.name, profile.class_name, profile.priority_class_name) == ("lc", "LSR", "high")
    assert profile.overrides == {}
    with pytest.raises(DecodeError, match=r"QoSProfile lc: spec.class: 'FAST'"):
        decode.profile(encode({"metadata": {"name": "lc"}, "spec": {"class": "FAST"}}))


def test_a_profile_promises_otherwise_than_its_class():
    promises = {"cpus": "Shared", "ioLimit": {"readBytesPerSecond": "1Mi"}, "oomScoreAdj": -7}
    obj = {"metadata": {"name": "lc"}, "spec": {"class": "LSR", "promises": promises}}
    assert decode.profile(encode(obj)).overrides == {
        "cpus": CpuSet.SHARED,
        "io_limit": IoLimit(read_bytes=2**20),
        "oom_score_adj": -7,
    }
    obj["spec"]["promises"] = {"cpuBurstPercent": 10}
    with pytest.raises(DecodeError, match=r"QoSProfile lc: spec.promises \(cpu_burst_percent\): .* without"):
        decode.profile(encode(obj))


def test_a_profiles_band_and_limits_are_bytes_a_second():
    network = {"band": "L1", "limit": {"egress": "100M", "ingress": 8000}}
    obj = {"metadata": {"name": "lc"}, "spec": {"class": "LS", "network": network}}
    profile = decode.profile(encode(obj))
    assert (profile.band, profile.limits) == (Band.L1, Limits(12_500_000, 1000))
    obj["spec"]["network"] = {"limit": {"egress": "-1"}}
    with pytest.raises(DecodeError, match=r"QoSProfile lc: spec.network.limit.egress: '-1': must be greater"):
        decode.profile(encode(obj))
    del obj["spec"]["network"]
    assert (decode.profile(encode(obj)).band, decode.profile(encode(obj)).limits) == (None, Limits())


def test_spread_constraints_of_a_policy():
    constraint = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    own = policy_object(placement={"topologySpreadConstraints": [constraint]})
    (found,) = decode.policy(encode(own)).spread
    assert found == Spread("zone", 2, decode.policy(encode(own)).selector)
    other = {"labelSelector": {"matchLabels": {"tier": "web"}}, "minDomains": 3, "nodeTaintsPolicy": "Honor"}
    given = policy_object(placement={"topologySpreadConstraints": [constraint | other]})
    (found,) = decode.policy(encode(given)).spread
    assert (found.selector, found.min_domains) == (Selector((Requirement("tier", "In", ("web",)),)), 3)
    assert (found.honor_affinity, found.honor_taints, found.required) == (True, True, True)


@pytest.mark.parametrize(
    ("change", "field"),
    [({"maxSkew": 0}, "maxSkew"), ({"minDomains": 0}, "minDomains"), ({"whenUnsatisfiable": ""}, "whenUns")],
)
def test_a_spread_constraint_that_cannot_be(change, field):
    constraint = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"} | change
    raw = encode(policy_object(placement={"topologySpreadConstraints": [constraint]}))
    with pytest.raises(DecodeError, match=rf"topologySpreadConstraints\[0\]\.{field}"):
        decode.policy(raw)
