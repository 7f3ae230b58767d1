"""Which share of the requested CPU bypasses a scheduler; the pods are given, nothing is asked."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

import manifests
from cli import bypassing, installation
from qos import keys

SCHEDULER = installation.SCHEDULER


def pod(
    cpu: str, scheduler: str = "default-scheduler", namespace: str = "shop", **metadata: Any
) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": "p", "namespace": namespace} | metadata,
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


DAEMON = {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}
STATIC = {"annotations": {keys.MIRROR_ANNOTATION: "x"}}


def test_each_pod_is_counted_once() -> None:
    found = bypassing.load(
        [
            pod("2", SCHEDULER),
            pod("3"),
            pod("500m", namespace="batch"),
            pod("1", "volcano", "batch"),
            pod("250m", namespace="kube-system"),
            pod("100m", namespace="shop", **DAEMON),
            pod("50m", SCHEDULER, namespace="kube-system", **STATIC),
            pod("1", SCHEDULER, **DAEMON),
        ],
        SCHEDULER,
    )
    assert found.total == 7900
    assert found.others == {"default-scheduler": 3750, "volcano": 1000}
    assert found.tied == 150
    assert found.free == {"shop": 3000, "batch": 1500}
    said = bypassing.said(found, SCHEDULER)
    assert said == (
        "62 % of the CPU that pods request (4.9 of 7.9) bypasses j10ce-scheduler: 3.75 by default-scheduler, "
        "1 by volcano, 0.15 of DaemonSets and static pods"
    )


def test_what_is_labelled_needs_no_label() -> None:
    pods = [pod("3"), pod("2", namespace="batch")]
    found = bypassing.load(pods, SCHEDULER, frozenset({"shop"}))
    said = bypassing.remedy(found, can_name=True)
    assert said == (
        "3 of them in namespaces with the label j10ce.io/schedule=true: made anew, they come. Most are in "
        "namespaces batch 2. kubectl label namespace NAME j10ce.io/schedule=true brings its new pods"
    )
    both = bypassing.load(pods, SCHEDULER, frozenset({"shop", "batch"}))
    assert "kubectl label" not in bypassing.remedy(both, can_name=True)
    assert "serves no MutatingAdmissionPolicy" in bypassing.remedy(found, can_name=False)


def test_an_amount_that_cannot_be_read_and_no_pod_at_all() -> None:
    assert bypassing.load([pod("much")], SCHEDULER).total == 0
    assert bypassing.said(bypassing.load([], SCHEDULER), SCHEDULER) == "no pod requests CPU yet"


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**6),
            st.sampled_from([SCHEDULER, "default-scheduler", "other"]),
            st.sampled_from(["a", "b", *sorted(bypassing.NEVER)]),
            st.sampled_from([{}, DAEMON, STATIC]),
        )
    )
)
def test_no_more_bypasses_than_there_is(made: list[tuple[int, str, str, dict[str, Any]]]) -> None:
    pods = [pod(f"{cpu}m", scheduler, namespace, **more) for cpu, scheduler, namespace, more in made]
    found = bypassing.load(pods, SCHEDULER)
    assert found.total == sum(cpu for cpu, *_ in made)
    through = sum(cpu for cpu, scheduler, _, more in made if scheduler == SCHEDULER and more is not STATIC)
    assert found.total - found.bypassing == through
    assert not found.free.keys() & bypassing.NEVER


def test_the_policy_leaves_the_same_namespaces_alone() -> None:
    with manifests.overlay("second-scheduler") as folder:
        policy, binding = YAML(typ="safe").load_all(folder / "schedule.yaml")
    assert policy["metadata"]["name"] == binding["spec"]["policyName"] == installation.NAMING
    chosen = policy["spec"]["matchConstraints"]["namespaceSelector"]
    assert chosen["matchLabels"] == {keys.SCHEDULE_LABEL: "true"}
    assert set(chosen["matchExpressions"][0]["values"]) == bypassing.NEVER
    assert f"'{SCHEDULER}'" in policy["spec"]["mutations"][0]["jsonPatch"]["expression"]
