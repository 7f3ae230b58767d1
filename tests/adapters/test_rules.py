"""The agent's own readers of policies and profiles: what the models make of them, without the models."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.kubernetes import custom, rules
from adapters.kubernetes.wire import DecodeError
from qos.cluster.policy import Policy
from tests.tables import documents

CREATED = "2026-11-21T14:23:39Z"


def encode(obj: Any) -> bytes:
    return json.dumps(obj).encode()


def with_metadata(obj: dict[str, Any]) -> dict[str, Any]:
    served = {"namespace": "shop", "uid": "u1", "generation": 3, "creationTimestamp": CREATED}
    return obj | {"metadata": served | {"resourceVersion": "17"} | obj.get("metadata", {})}


def still(policy: Policy) -> Policy:
    """Without what changes all the time."""
    return replace(policy, status={}, resource_version="")


@pytest.mark.parametrize(("given", "entry"), documents("policies", "accepted"))
def test_good_policies(given: dict[str, Any], entry: dict[str, Any]) -> None:
    raw = encode(with_metadata(given) | {"status": {"slots": {"desired": 1}}})
    assert rules.policy(raw) == still(custom.policy(raw))


@pytest.mark.parametrize(("given", "entry"), documents("profiles", "accepted"))
def test_good_profiles(given: dict[str, Any], entry: dict[str, Any]) -> None:
    assert rules.profile(encode(given)) == custom.profile(encode(given))


@pytest.mark.parametrize(
    ("read", "bad"),
    [
        *((rules.policy, one.values[0]) for one in documents("policies", "refused")),
        *((rules.profile, one.values[0]) for one in documents("profiles", "refused")),
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
        rules.profile(encode({"metadata": {"name": "fast"}, "spec": {"class": "LS"} | change}))
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
        ({"slots": {"surge": "many"}}, "spec.slots.surge: 'many'"),
        ({"nodeEnforcement": "Maybe"}, "spec.nodeEnforcement: 'Maybe'"),
    ],
)
def test_what_a_plan_could_not_bear_in_a_policy(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DecodeError) as error:
        rules.policy(encode({"metadata": {"name": "web", "namespace": "shop"}, "spec": SPEC | change}))
    assert words in str(error.value)


SPEC = {
    "selector": {"matchLabels": {"app": "web"}},
    "floor": {"resources": {"cpu": "1"}},
    "slots": {"count": 1},
}


def test_fields_of_a_newer_version_are_passed_over() -> None:
    named = {"metadata": {"name": "web", "namespace": "shop"}}
    newer = SPEC | {"newField": {"a": 1}, "floor": SPEC["floor"] | {"newToo": 1}}
    assert rules.policy(encode(named | {"spec": newer})) == rules.policy(encode(named | {"spec": SPEC}))


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
_policies = st.fixed_dictionaries(
    {
        "selector": maybe(matchExpressions=st.lists(_expression, max_size=2)).map(
            lambda more: {"matchLabels": {"app": "web"}} | more
        ),
        "floor": st.fixed_dictionaries({"resources": _amounts}),
    },
    optional={
        "profileName": st.just("fast"),
        "priorityClassName": st.just("high"),
        "suspend": st.booleans(),
        "consumePolicy": st.just("Reuse"),
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


@given(_policies, _slots_and_placement, st.booleans())
@settings(max_examples=100, deadline=None)
def test_both_readers_of_policies_agree(spec: Any, more: tuple[Any, Any], served: bool) -> None:
    whole = {"metadata": {"name": "web"}, "spec": spec | {"slots": more[0], "placement": more[1]}}
    raw = encode(with_metadata(whole) if served else whole | {"metadata": {"name": "web", "namespace": "a"}})
    assert rules.policy(raw) == still(custom.policy(raw))


def test_a_priority_class() -> None:
    obj = {"metadata": {"name": "high"}, "value": 7, "globalDefault": True}
    assert rules.priority_class(encode(obj)) == ("high", 7, True)


def test_neither_pydantic_nor_kubernetes_is_loaded_by_what_the_agent_imports() -> None:
    asked = "import adapters.kubernetes.rules, adapters.kubernetes.node_pods, adapters.kubernetes.client, "
    asked += "adapters.kubernetes.reflector, sys; print(*sorted({'pydantic', 'kubernetes', 'yaml', 'ruamel'}"
    asked += " & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
