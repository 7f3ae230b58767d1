"""Manifests of pods: QoS class, what the API server fills in, and clear errors for what it would refuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED, Container, NodePod, from_manifest
from qos.quantity import parse

TABLE = YAML(typ="safe", pure=True).load(Path(__file__).parents[2] / "data" / "pods" / "classes.yaml")
MIB = 2**20


def pod_of(spec: dict[str, Any], **metadata: Any) -> NodePod:
    return from_manifest({"kind": "Pod", "metadata": {"name": "one", **metadata}, "spec": spec})


def amounts(part: Container | NodePod) -> list[int]:
    return [part.cpu_request, part.cpu_limit, part.memory_request // MIB, part.memory_limit // MIB]


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry["name"])
def test_class_and_defaults_are_the_api_servers(entry: dict[str, Any]) -> None:
    pod = pod_of(entry["spec"])
    assert pod.qos == entry["qos"]
    becomes = {container.name: amounts(container) for container in pod.containers}
    if any(amounts(pod)):
        becomes[""] = amounts(pod)
    assert becomes == entry["becomes"]
    assert [container.name for container in pod.containers if container.sidecar] == entry.get("sidecars", [])


def test_containers_come_in_starting_order() -> None:
    pod = pod_of({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]})
    assert pod.containers == (Container("i", init=True), Container("a"))


def test_what_the_sandbox_needs_is_read() -> None:
    spec = {"containers": [{"name": "a"}], "overhead": {"cpu": "250m", "memory": "1Gi"}}
    assert (pod_of(spec).cpu_overhead, pod_of(spec).memory_overhead) == (250, 2**30)
    with pytest.raises(ValueError, match=r"Pod default/one: spec\.overhead"):
        pod_of({**spec, "overhead": {"cpu": "much"}})


def test_the_api_servers_word_on_the_class_stands() -> None:
    """Such a pod cannot be made, but a pod's class never changes, whatever later versions compute."""
    manifest = {
        "metadata": {"name": "a", "uid": "1-2", "namespace": "shop", "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "a"}], "priority": 9000},
        "status": {"qosClass": "Burstable"},
    }
    pod = from_manifest(manifest)
    assert (pod.qos, pod.uid, pod.namespace, pod.labels, pod.priority) == (
        BURSTABLE,
        "1-2",
        "shop",
        {"app": "a"},
        9000,
    )


def test_what_is_not_stated_is_empty() -> None:
    pod = from_manifest({"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "a"}]}})
    assert (pod.uid, pod.namespace, pod.name) == ("", "default", "web-")
    assert (pod.labels, pod.annotations, pod.priority) == ({}, {}, None)


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "a", "resources": resources}


GOOD = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "a"}]}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "Deployment"}, "kind: 'Deployment': expected a Pod"),
        ({"metadata": {}}, "metadata.name: None: expected a name"),
        ({"metadata": []}, "metadata: []: expected a mapping"),
        ({"metadata": {"name": 7}}, "metadata.name: 7: expected a name"),
        ({"spec": None}, "Pod default/one: spec.containers: None: a pod has at least one"),
        ({"spec": {"containers": {"name": "a"}}}, "spec.containers: {'name': 'a'}: expected a list"),
        ({"spec": {"containers": ["a"]}}, "spec.containers[0]: 'a': expected a mapping"),
        ({"spec": {"containers": [{}]}}, "spec.containers[0].name: None: expected a name"),
        ({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}, "spec.containers[1].name: 'a': another"),
        (
            {"spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "a"}]}},
            "spec.containers[0].name: 'a': another",
        ),
        (
            {"spec": {"containers": [container(requests={"cpu": "2 cores"})]}},
            "Pod default/one: spec.containers[0].resources.requests: cpu: '2 cores' is not a quantity",
        ),
        (
            {"spec": {"containers": [container(limits={"memory": True})]}},
            "spec.containers[0].resources.limits: memory: True is not a quantity",
        ),
        (
            {"spec": {"containers": [container(limits={"memory": "-1"})]}},
            "spec.containers[0].resources.limits.memory: '-1': must not be negative",
        ),
        (
            {"spec": {"containers": [container(requests={"cpu": "3"}, limits={"cpu": "2500m"})]}},
            "spec.containers[0].resources.requests.cpu: 3 is more than the limit 2500m",
        ),
        (
            {"spec": {"containers": [container(limits={"cpu": ["1"]})]}},
            "spec.containers[0].resources.limits.cpu: ['1']: expected a quantity",
        ),
        ({"spec": {"containers": [container(limits=["1"])]}}, "resources.limits: ['1']: expected a mapping"),
        ({"spec": {"containers": [container(limits={1: "1"})]}}, "resources.limits: 1: keys are text"),
        (
            {
                "spec": {
                    "containers": [container(requests={"cpu": "3"})],
                    "resources": {"limits": {"cpu": "2"}},
                }
            },
            "spec.resources.requests.cpu: 3 is more than the limit 2",
        ),
        ({"spec": GOOD["spec"] | {"resources": {"limits": {"cpu": "x"}}}}, "spec.resources.limits: cpu: 'x'"),
        ({"spec": GOOD["spec"] | {"priority": "high"}}, "spec.priority: 'high': expected an integer"),
        (
            {"metadata": {"name": "one", "labels": {"a": 1}}},
            "metadata.labels.a: 1: values are text: put it in",
        ),
        (
            {
                "metadata": {
                    "name": "one",
                    "namespace": "shop",
                    "annotations": {"koordinator.sh/oom-score-adj": -5},
                }
            },
            "Pod shop/one: metadata.annotations.koordinator.sh/oom-score-adj: -5: values are text: put it in",
        ),
        ({"status": {"qosClass": "Gold"}}, "status.qosClass: 'Gold': expected one of Guaranteed"),
    ],
)
def test_what_the_api_server_would_refuse_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=r"^(Pod \w+/\w+: )?\w+") as caught:
        from_manifest(GOOD | change)
    assert says in str(caught.value)


@pytest.mark.parametrize("manifest", [None, [], "Pod", 7])
def test_no_mapping_is_no_pod(manifest: Any) -> None:
    with pytest.raises(ValueError, match="expected a mapping"):
        from_manifest(manifest)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(st.text(max_size=3), parts, max_size=2),
    max_leaves=4,
)


RESOURCES_OF_ALL: Any = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}
WHOLE: Any = {
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "b", "uid": "c", "labels": {"d": "e"}, "annotations": {"f": "g"}},
    "spec": {
        "priority": 1,
        "resources": RESOURCES_OF_ALL,
        "containers": [{"name": "a", "resources": RESOURCES_OF_ALL}],
        "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": RESOURCES_OF_ALL}],
    },
    "status": {"qosClass": "Burstable"},
}


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(part, dict | list):
        for key in part if isinstance(part, dict) else range(len(part)):
            yield from places(part[key], (*path, key))


def put(part: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with this value at this place."""
    if not path:
        return value
    copied = copy(part)
    copied[path[0]] = put(part[path[0]], path[1:], value)
    return copied


@pytest.mark.parametrize("path", list(places(WHOLE)), ids=lambda path: "/".join(map(str, path)) or "all")
@given(value=ANYTHING)
@settings(max_examples=30)
def test_anything_anywhere_is_a_pod_or_a_value_error(path: tuple[Any, ...], value: Any) -> None:
    with suppress(ValueError):
        assert isinstance(from_manifest(put(WHOLE, path, value)), NodePod)


QUANTITY = {
    "cpu": st.sampled_from(["0", "1m", "100m", "0.1", "2", "2000m"]),
    "memory": st.sampled_from(["0", "1Gi"]),
}
RESOURCES = st.fixed_dictionaries(
    {
        "limits": st.fixed_dictionaries({}, optional=QUANTITY),
        "requests": st.fixed_dictionaries({}, optional=QUANTITY),
    }
)


def valid(resources: dict[str, dict[str, str]]) -> bool:
    limits = resources["limits"]
    requests = resources["requests"]
    return all(parse(n, requests[n]) <= parse(n, limits[n]) for n in requests.keys() & limits.keys())


def class_by_sums(containers: list[dict[str, Any]]) -> str:
    """As Kubernetes up to 1.31 computed it: by the sums over all containers, after defaulting."""
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    all_limited = True
    for one in containers:
        stated = one["resources"]
        limited = 0
        for name, text in (stated["limits"] | stated["requests"]).items():
            requests[name] = requests.get(name, 0) + parse(name, text)
        for name, text in stated["limits"].items():
            limits[name] = limits.get(name, 0) + parse(name, text)
            limited += parse(name, text) > 0
        all_limited = all_limited and limited == 2
    requests = {name: amount for name, amount in requests.items() if amount}
    limits = {name: amount for name, amount in limits.items() if amount}
    if not requests and not limits:
        return BEST_EFFORT
    return GUARANTEED if all_limited and requests == limits else BURSTABLE


@given(
    st.lists(RESOURCES.filter(valid), min_size=1, max_size=3), st.lists(RESOURCES.filter(valid), max_size=2)
)
def test_the_class_is_that_of_older_versions_too(main: list[Any], init: list[Any]) -> None:
    containers = [{"name": f"a{n}", "resources": part} for n, part in enumerate(main)]
    inits = [{"name": f"i{n}", "resources": part} for n, part in enumerate(init)]
    pod = pod_of({"containers": containers, "initContainers": inits})
    assert pod.qos == class_by_sums(containers + inits)
