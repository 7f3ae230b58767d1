"""T16: a pod's effective request.

tests/data/requests.json: pods made at random and what upstream's own code says of them. A small Go program
decoded each pod, ran SetObjectDefaults_Pod (k8s.io/kubernetes/pkg/apis/core/v1, v1.36.3), then PodRequests
(k8s.io/component-helpers/resource, v0.36.3) with UseStatusResources, pod-level resize and resource claims on,
and printed MilliValue of cpu and Value of all else. 170,000 such pods agreed; one of each kind is kept.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.cluster.requests import ResourceRequirements, effective, total
from qos.quantity import MAXIMUM, QuantityError

CASES = json.loads((Path(__file__).parents[2] / "data" / "requests.json").read_text())
GI = 2**30


def container(cpu="", memory="", name="app", **more):
    requests = {k: v for k, v in {"cpu": cpu, "memory": memory}.items() if v}
    return {"name": name, "resources": {"requests": requests}, **more}


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_t16_agrees_with_upstream(case):
    assert effective(case["spec"], case["status"]) == case["requests"]


def test_no_requests_is_one_pod():
    assert effective({"containers": [{"name": "app"}]}) == {"pods": 1}
    assert effective({"containers": [{"name": "app", "resources": None}], "initContainers": None}) == {
        "pods": 1
    }


def test_a_template_with_limits_only():
    spec = {"containers": [{"name": "app", "resources": {"limits": {"cpu": "1", "example.com/gpu": "2"}}}]}
    assert effective(spec) == {"cpu": 1000, "example.com/gpu": 2, "pods": 1}


def test_init_containers_run_one_at_a_time_beside_earlier_sidecars():
    sidecar = container("100m", name="proxy", restartPolicy="Always")
    late = container("50m", name="late", restartPolicy="Always")
    spec = {
        "containers": [container("500m")],
        "initContainers": [sidecar, container("2", name="migrate"), late],
    }
    assert effective(spec)["cpu"] == 2100


def test_overhead_comes_on_top():
    assert effective({"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "64Mi"}}) == {
        "cpu": 1250,
        "memory": 64 * 2**20,
        "pods": 1,
    }


def test_pod_level_requests_override_what_containers_ask():
    spec = {
        "containers": [container("1", "1Gi"), container("1", name="second")],
        "resources": {"requests": {"cpu": "3"}},
    }
    assert effective(spec) == {"cpu": 3000, "memory": GI, "pods": 1}


RUNNING = {
    "containerStatuses": [
        {"name": "app", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "1"}}
    ]
}


def test_a_resize_counts_as_the_largest_of_wanted_allocated_and_set():
    assert effective({"containers": [container("1500m")]}, RUNNING)["cpu"] == 2000
    assert effective({"containers": [container("3")]}, RUNNING)["cpu"] == 3000


@pytest.mark.parametrize(
    "refusal",
    [{"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}, {"resize": "Infeasible"}],
)
def test_an_infeasible_resize_does_not_count(refusal):
    assert effective({"containers": [container("3")]}, RUNNING | refusal)["cpu"] == 2000


def test_a_deferred_resize_counts():
    deferred = {"conditions": [{"type": "PodResizePending", "reason": "Deferred"}]}
    assert effective({"containers": [container("3")]}, RUNNING | deferred)["cpu"] == 3000


def test_an_unreadable_amount_is_named():
    with pytest.raises(QuantityError, match="memory: 'lots' is not a quantity"):
        effective({"containers": [container("1", "lots")]})


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.integers(0, 1000), max_size=3
)
ASKS = st.builds(
    ResourceRequirements, AMOUNTS, AMOUNTS, st.booleans(), st.none() | AMOUNTS, st.none() | AMOUNTS
)


@given(st.lists(ASKS, min_size=1, max_size=3), st.lists(ASKS, max_size=3), ASKS)
def test_more_containers_never_ask_for_less(containers, init, another):
    before = total(containers, init)
    for after in (total([*containers, another], init), total(containers, [*init, another])):
        assert all(after.get(resource, 0) >= amount for resource, amount in before.items())


@given(st.lists(ASKS, min_size=1, max_size=3))
def test_an_infeasible_resize_never_asks_for_more(containers):
    refused = total(containers, infeasible=True)
    assert all(total(containers).get(resource, 0) >= amount for resource, amount in refused.items())


def test_a_thousand_absurd_containers_are_capped_like_one():
    absurd = [container(cpu="9223372036854775807", memory="16Ei", name=f"c{i}") for i in range(1_100)]
    assert effective({"containers": absurd}) == {"cpu": MAXIMUM, "memory": MAXIMUM, "pods": 1}
