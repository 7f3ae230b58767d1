"""Policies, profiles and PriorityClasses from JSON: what the models say of them, without the models."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import written_policies
from adapters.kubernetes import policies
from adapters.kubernetes.wire import DecodeError
from qos.api.network import Network
from qos.api.policy import MinimalReservationPolicy
from qos.api.profile import QoSProfile
from qos.cluster.policy import ScaleTarget
from qos.quantity import parse
from tests.tables import documents

CREATED = "2026-11-21T14:23:39Z"


def encode(obj: Any) -> bytes:
    return json.dumps(obj).encode()


def with_metadata(obj: dict[str, Any]) -> dict[str, Any]:
    served = {"namespace": "shop", "uid": "u1", "generation": 3, "creationTimestamp": CREATED}
    return obj | {"metadata": served | {"resourceVersion": "17"} | obj.get("metadata", {})}


@pytest.mark.parametrize(("given", "entry"), documents("policies", "accepted"))
def test_good_policies(given: dict[str, Any], entry: dict[str, Any]) -> None:
    raw = encode(with_metadata(given))
    assert policies.policy(raw) == written_policies.policy(raw)


@pytest.mark.parametrize(("given", "entry"), documents("profiles", "accepted"))
def test_good_profiles(given: dict[str, Any], entry: dict[str, Any]) -> None:
    model = QoSProfile.model_validate(given)
    found = policies.profile(encode(given))
    assert (found.name, found.class_name) == (model.metadata.name, model.spec.class_name)
    assert (found.priority_class_name, found.overrides) == (
        model.spec.priority_class_name or "",
        model.spec.overrides(),
    )


@pytest.mark.parametrize(
    ("read", "bad"),
    [
        *((policies.policy, one.values[0]) for one in documents("policies", "refused")),
        *((policies.profile, one.values[0]) for one in documents("profiles", "refused")),
    ],
)
def test_nonsense_is_refused_in_words_or_harmless(read: Any, bad: Any) -> None:
    with suppress(DecodeError):
        assert read(encode(bad)).name == bad["metadata"]["name"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"class": "GOLD"}, "QoSProfile fast: spec.class: 'GOLD': must be one of SYSTEM"),
        ({"promises": {"cpuWeight": 0}}, "QoSProfile fast: spec.promises.cpuWeight: 0: Expected `int` >= 1"),
        ({"promises": {"cpuQuota": "Half"}}, "spec.promises.cpuQuota: 'Half': Invalid enum value"),
        ({"promises": {"memoryMinPercent": 101}}, "spec.promises.memoryMinPercent: 101"),
        ({"promises": {"ioLimit": {"readBytesPerSecond": "fast"}}}, "spec.promises.ioLimit: 'fast'"),
        ({"promises": {"cpuIdle": True}}, "a class with a floor cannot be idle"),
    ],
)
def test_what_a_plan_could_not_bear_in_a_profile(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DecodeError) as error:
        policies.profile(encode({"metadata": {"name": "fast"}, "spec": {"class": "LS"} | change}))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"selector": {}}, "MinimalReservationPolicy shop/web: spec.selector: {}: must select something"),
        (
            {"floor": {"resources": {"cpu": "-1"}}},
            "spec.floor.resources.cpu: '-1': must be greater than zero",
        ),
        ({"floor": {"resources": {"cpu": "one"}}}, "spec.floor.resources.cpu: 'one'"),
        ({"floor": {}}, "spec.floor: {}: must name resources, network or both"),
        ({"floor": {"network": {"egress": "fast"}}}, "spec.floor.network.egress: 'fast'"),
        ({"floor": {"network": {"ingress": 0}}}, "spec.floor.network.ingress: 0: must be greater than zero"),
        ({"limit": {"network": {"egress": "-1"}}}, "spec.limit.network.egress: '-1': must be greater"),
        ({"slots": {"count": 1, "surge": "many"}}, "spec.slots.surge: 'many'"),
        ({"slots": {}}, "'headroomTo': None}: exactly one of count, scaleTargetRef"),
        ({"slots": {"count": -1}}, "spec.slots.count: -1: Expected `int` >= 0"),
        ({"placement": {"maxSlotsPerNode": 0}}, "spec.placement.maxSlotsPerNode: 0"),
        ({"nodeEnforcement": "Maybe"}, "spec.nodeEnforcement: 'Maybe'"),
    ],
)
def test_what_a_plan_could_not_bear_in_a_policy(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DecodeError) as error:
        policies.policy(encode({"metadata": {"name": "web", "namespace": "shop"}, "spec": SPEC | change}))
    assert words in str(error.value)


SPEC = {
    "selector": {"matchLabels": {"app": "web"}},
    "floor": {"resources": {"cpu": "1"}},
    "slots": {"count": 1},
}


def test_fields_of_a_newer_version_are_passed_over() -> None:
    named = {"metadata": {"name": "web", "namespace": "shop"}}
    newer = SPEC | {"newField": {"a": 1}, "floor": SPEC["floor"] | {"newToo": 1}}
    assert policies.policy(encode(named | {"spec": newer})) == policies.policy(encode(named | {"spec": SPEC}))


def maybe(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=optional)


_label = st.sampled_from(["app", "tier", "example.com/zone"])
_value = st.sampled_from(["a", "b-1", ""])
_expression = st.builds(
    lambda key, operator, values: (
        {"key": key, "operator": operator} | ({"values": values} if operator in ("In", "NotIn") else {})
    ),
    _label,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(_value, min_size=1, max_size=3),
)
_toleration = st.sampled_from(
    [
        {"operator": "Exists"},
        {"key": "dedicated", "value": "x", "effect": "NoSchedule"},
        {"key": "dedicated", "operator": "Equal"},
    ]
)
_chosen_nodes = maybe(
    nodeSelector=st.dictionaries(_label, _value, max_size=2), tolerations=st.lists(_toleration, max_size=2)
)
_target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
_amounts = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from([1, "2", "3Gi"]), min_size=1)
_bandwidth = st.sampled_from([1000, "100M", "2.5k", "1e6", "1Mi"])
_network = st.one_of(
    st.fixed_dictionaries({"egress": _bandwidth}, optional={"ingress": _bandwidth}),
    st.fixed_dictionaries({"ingress": _bandwidth}),
)
_policies = st.fixed_dictionaries(
    {
        "selector": maybe(matchExpressions=st.lists(_expression, max_size=2)).map(
            lambda more: {"matchLabels": {"app": "web"}} | more
        ),
        "floor": st.one_of(
            st.fixed_dictionaries({"resources": _amounts}, optional={"network": _network}),
            st.fixed_dictionaries({"network": _network}),
        ),
    },
    optional={
        "limit": st.just({"network": {"egress": "1G", "ingress": 1_000_000_000}}),
        "profileName": st.just("fast"),
        "priorityClassName": st.just("high"),
        "suspend": st.booleans(),
        "consumePolicy": st.just("Reuse"),
        "ownerFit": st.sampled_from(["Aligned", "Restricted"]),
        "nodeEnforcement": st.sampled_from(["BestEffort", "Strict"]),
    },
)
_slots_and_placement = st.one_of(
    st.tuples(
        st.fixed_dictionaries({"count": st.integers(0, 100)}),
        st.builds(
            lambda nodes, more: nodes | more,
            _chosen_nodes,
            maybe(mode=st.sampled_from(["Floating", "Pinned"]), maxSlotsPerNode=st.integers(1, 9)),
        ),
    ),
    st.tuples(
        st.fixed_dictionaries(
            {"scaleTargetRef": st.just(_target)}, optional={"surge": st.sampled_from([0, 3, "25%", "100%"])}
        ),
        st.sampled_from([{}, {"inheritFromWorkload": True}, {"inheritFromWorkload": False}]),
    ),
)


def bits(network: Network | None) -> dict[str, int]:
    """By extended resource, in bits a second."""
    egress, ingress = (network.egress, network.ingress) if network else (None, None)
    stated = {"j10ce.io/egress-bandwidth": egress, "j10ce.io/ingress-bandwidth": ingress}
    return {name: parse(name, value) for name, value in stated.items() if value is not None}


@given(_policies, _slots_and_placement, st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_policy_is_what_its_model_says(spec: Any, more: tuple[Any, Any], served: bool) -> None:
    whole = {"metadata": {"name": "web"}, "spec": spec | {"slots": more[0], "placement": more[1]}}
    given = with_metadata(whole) if served else whole | {"metadata": {"name": "web", "namespace": "a"}}
    model, found = MinimalReservationPolicy.model_validate(given), policies.policy(encode(given))
    slots, placement = model.spec.slots, model.spec.placement
    assert found.key == f"{model.metadata.namespace}/web"
    created = model.metadata.creation_timestamp
    assert found.created == (created.timestamp() if created else 0.0)
    resources, network, limit = model.spec.floor.resources or {}, model.spec.floor.network, model.spec.limit
    assert found.floor == {name: parse(name, value) for name, value in resources.items()} | bits(network)
    assert found.limit == bits(limit and limit.network)
    assert (found.count, found.suspend) == (slots.count, model.spec.suspend)
    target = slots.scale_target_ref
    assert found.scale_target == (target and ScaleTarget(target.api_version, target.kind, target.name))
    assert found.surge.of(8) == {None: 0, 0: 0, 3: 3, "25%": 2, "100%": 8}[slots.surge]
    assert found.inherit_from_workload == model.spec.inherits
    assert (found.mode.value, found.enforcement.value) == (placement.mode, model.spec.node_enforcement)
    assert found.max_slots_per_node == placement.max_slots_per_node
    assert dict(found.where.node_selector) == (placement.node_selector or {})
    assert [one.operator for one in found.where.tolerations] == [
        one.operator for one in placement.tolerations or ()
    ]
    chosen = (model.spec.selector.match_labels or {}, model.spec.selector.match_expressions or ())
    assert len(found.selector.requirements) == sum(map(len, chosen))


def test_a_priority_class() -> None:
    obj = {"metadata": {"name": "high"}, "value": 7, "globalDefault": True}
    assert policies.priority_class(encode(obj)) == ("high", 7, True)


def test_neither_pydantic_nor_kubernetes_is_loaded_by_what_reads_the_api_server() -> None:
    modules = ("decode", "policies", "node_pods", "node_qos", "client", "reflector")
    asked = f"import {', '.join(f'adapters.kubernetes.{name}' for name in modules)}, sys; "
    asked += "print(*sorted({'pydantic', 'kubernetes', 'yaml', 'ruamel'}"
    asked += " & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
