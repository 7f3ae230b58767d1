"""Scale targets of any kind, and Jobs, from what the API server says of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.api import Resource
from adapters.kubernetes import scale
from adapters.kubernetes.wire import DecodeError
from qos.cluster.policy import ScaleTarget

ROLLOUT = ScaleTarget("argoproj.io/v1alpha1", "Rollout", "checkout")
TEMPLATE = {
    "metadata": {"labels": {"app": "checkout"}},
    "spec": {
        "nodeSelector": {"pool": "a"},
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
    },
}


def _object(spec: dict[str, Any], status: dict[str, Any] | None = None, **metadata: Any) -> bytes:
    meta = {"namespace": "shop", "name": "checkout", "generation": 3, "resourceVersion": "7", **metadata}
    return json.dumps({"metadata": meta, "spec": spec, "status": status or {}}).encode()


def _served(*names: str, kind: str = "Rollout", namespaced: bool = True) -> bytes:
    there = [{"name": n, "kind": "Scale" if "/scale" in n else kind, "namespaced": namespaced} for n in names]
    return json.dumps({"resources": there}).encode()


def test_a_kind_of_kubernetes_itself_is_known_by_its_name_alone() -> None:
    said = [
        ("apps/v1", "Deployment", "Deployment"),
        ("batch/v1", "Job", "Job"),
        ("v1", "ReplicationController", "ReplicationController"),
        ("", "Deployment", "Deployment"),  # as a HorizontalPodAutoscaler may have it
        ("apps/v1", "DaemonSet", "DaemonSet.apps"),
        ("batch/v1", "Deployment", "Deployment.batch"),
        ("argoproj.io/v1alpha1", "Rollout", "Rollout.argoproj.io"),
        ("argoproj.io/v1", "Rollout", "Rollout.argoproj.io"),
    ]
    assert [ScaleTarget(version, kind, "x").full_kind for version, kind, _ in said] == [k for *_, k in said]


def test_the_resource_of_a_kind_is_found_and_whether_it_scales() -> None:
    rollouts = Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout")
    assert scale.resource_of(ROLLOUT, _served("rollouts", "rollouts/status")) == (rollouts, False)
    assert scale.resource_of(ROLLOUT, _served("rollouts/scale", "rollouts")) == (rollouts, True)
    assert scale.resource_of(ROLLOUT, _served("experiments", kind="Experiment")) == (None, False)
    found, _ = scale.resource_of(ROLLOUT, _served("rollouts", namespaced=False))
    assert found is not None
    assert not found.namespaced


def test_a_template_says_what_a_slot_needs_and_scale_how_many() -> None:
    one = scale.scaled(ROLLOUT, _object({"replicas": 99, "template": TEMPLATE}))
    assert one.generation == "3"
    made = scale.with_scale(one.workload, _object({"replicas": 5}, {"selector": "other=labels"}))
    assert (made.kind, made.replicas, made.requests["cpu"]) == ("Rollout.argoproj.io", 5, 2000)
    assert made.selected == {"app": "checkout"}
    assert made.where.node_selector == (("pool", "a"),)
    assert made.templated


@pytest.mark.parametrize("template", [None, "checkout.tmpl", {}, {"spec": {"containers": "many"}}, 3])
def test_what_is_no_pod_template_is_none(template: object) -> None:
    one = scale.scaled(ROLLOUT, _object({"template": template}, generation=0))
    assert (one.workload.templated, one.workload.selected, one.generation) == (False, None, "7")


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        ("app=a,tier==b", {"app": "a", "tier": "b"}),
        ("app=a,zone in (x,y),!old,rev!=3", {"app": "a"}),
        ("", None),
        ("app", None),
    ],
)
def test_without_a_template_the_selector_of_the_scale_says_the_labels(
    selector: str, labels: dict[str, str] | None
) -> None:
    bare = scale.scaled(ROLLOUT, _object({})).workload
    made = scale.with_scale(bare, _object({"replicas": 2}, {"selector": selector}))
    assert (made.replicas, made.selected) == (2, labels)


def test_a_scale_that_is_none_is_an_error() -> None:
    bare = scale.scaled(ROLLOUT, _object({})).workload
    with pytest.raises(DecodeError):
        scale.with_scale(bare, _object({"replicas": "many"}))


@pytest.mark.parametrize(
    ("spec", "status", "replicas"),
    [
        ({}, {}, 1),
        ({"parallelism": 4, "completions": 10}, {}, 4),
        ({"parallelism": 4, "completions": 10}, {"succeeded": 7}, 3),
        ({"parallelism": 4, "completions": 10}, {"succeeded": 12}, 0),
        ({"parallelism": 4}, {}, 4),
        ({"parallelism": 4}, {"succeeded": 1, "active": 2}, 2),
        ({"parallelism": 4}, {"succeeded": 1}, 0),
        ({"parallelism": 0, "completions": 3}, {}, 0),
        ({"parallelism": 4, "completions": 4, "suspend": True}, {}, 0),
        ({"parallelism": 4, "completions": 4}, {"conditions": [{"type": "Failed", "status": "True"}]}, 0),
        (
            {"parallelism": 4, "completions": 4},
            {"conditions": [{"type": "FailureTarget", "status": "True"}]},
            0,
        ),
        ({"parallelism": 4, "completions": 4}, {"conditions": [{"type": "Suspended", "status": "False"}]}, 4),
    ],
)
def test_a_job_has_as_many_slots_as_pods_it_still_runs_at_a_time(
    spec: dict[str, Any], status: dict[str, Any], replicas: int
) -> None:
    job = scale.job(_object({"template": TEMPLATE, **spec}, status))
    assert (job.kind, job.replicas, job.selected) == ("Job", replicas, {"app": "checkout"})
