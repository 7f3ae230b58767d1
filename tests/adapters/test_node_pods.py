"""Pods for the node's agent: read from the API server's bytes as from a manifest, and what else is taken."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.kubernetes.node_pods import node_pod
from adapters.kubernetes.wire import DecodeError
from qos import keys
from qos.pods.containers import NodePod, from_manifest
from qos.pods.expectation import ANNOTATIONS

UID = "0f6a4b7e-3a4b-4e43-9d2c-3a1f5be0f001"
STATIC = "0123456789abcdef0123456789abcdef"

CPU = st.sampled_from(["100m", "0.5", 1, "1500m", "2"])
MEMORY = st.sampled_from(["64Mi", "128974848", "1Gi", 2**31, "1.5Gi"])


def amounts() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={"cpu": CPU, "memory": MEMORY, "example.com/gpu": st.just("1")})


def resources() -> st.SearchStrategy[dict[str, Any] | None]:
    """Requests and limits as the API server takes them: requests never above limits."""

    def made(requests: dict[str, Any], limits: dict[str, Any], how: str) -> dict[str, Any]:
        if how == "equal":
            return {"requests": requests, "limits": requests}
        return {"requests": requests} if how == "requests" else {"limits": limits, "requests": None}

    how = st.sampled_from(["equal", "requests", "limits"])
    return st.none() | st.just({}) | st.builds(made, amounts(), amounts(), how)


@st.composite
def statuses(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    def reported() -> dict[str, Any]:
        return draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "allocatedResources": amounts(),
                    "resources": st.fixed_dictionaries(
                        {}, optional={"requests": amounts(), "limits": amounts()}
                    ),
                },
            )
        )

    conditions = st.lists(st.sampled_from(["Ready", "PodResizePending", "PodResizeInProgress"]), max_size=2)
    split = draw(st.integers(0, len(names)))
    return {
        "phase": draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])),
        "conditions": [{"type": kind, "status": "True"} for kind in draw(conditions)],
        "resize": draw(st.sampled_from(["", "Deferred", "InProgress"])),
        "initContainerStatuses": [{"name": name, **reported()} for name in names[:split]],
        "containerStatuses": [{"name": name, **reported()} for name in names[split:]],
        **reported(),
        **draw(
            st.fixed_dictionaries({}, optional={"qosClass": st.sampled_from(["Guaranteed", "Burstable"])})
        ),
    }


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5, unique=True))
    split = draw(st.integers(0, len(names) - 1))
    always = st.sampled_from([{}, {"restartPolicy": "Always"}, {"restartPolicy": None}])
    spec: dict[str, Any] = {
        "nodeName": "here",
        "containers": [{"name": name, "resources": draw(resources())} for name in names[split:]],
        "initContainers": [
            {"name": name, "resources": draw(resources()), **draw(always)} for name in names[:split]
        ],
        **draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "overhead": amounts(),
                    "priority": st.none() | st.integers(-(2**31), 2**31 - 1),
                    "resources": resources(),
                },
            )
        ),
    }
    texts = st.dictionaries(st.sampled_from(["app", "koordinator.sh/qosClass"]), st.text(max_size=5))
    kept = st.sampled_from([*sorted(ANNOTATIONS), keys.POLICY_ANNOTATION, "j10ce.io/hook-fail"])
    pod = {
        "kind": "Pod",
        "metadata": {
            "name": "web-0",
            "namespace": "shop",
            "uid": UID,
            "labels": draw(st.none() | texts),
            "annotations": draw(st.none() | st.dictionaries(kept, st.text(max_size=5))),
        },
        "spec": spec,
    }
    return pod if draw(st.booleans()) else {**pod, "status": draw(statuses(names))}


def read(manifest: dict[str, Any]) -> NodePod | None:
    """What from_manifest makes of it; None: the API server would not have taken it."""
    try:
        return from_manifest(manifest)
    except ValueError:
        return None


@given(pods())
@settings(max_examples=60, deadline=None)
def test_both_readers_agree(manifest: dict[str, Any]) -> None:
    expected = read(manifest)
    if expected is not None:
        assert node_pod(json.dumps(manifest).encode()).pod == expected


def raw(status: dict[str, Any] | None = None, **metadata: Any) -> bytes:
    pod = {
        "metadata": {"name": "web-0", "namespace": "shop", "uid": UID} | metadata,
        "spec": {"nodeName": "here", "containers": [{"name": "web", "env": [{"name": "A", "value": "1"}]}]},
        "status": status or {},
    }
    return json.dumps(pod).encode()


def test_only_annotations_that_mean_something_are_kept() -> None:
    said = dict.fromkeys([*ANNOTATIONS, "j10ce.io/hook-fail", "j10ce.io/policy"], "{}")
    other = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000, "notj10ce.io/policy": "a/b"}
    assert node_pod(raw(annotations=said | other)).pod.annotations == said


def test_the_policy_whose_slot_it_fills() -> None:
    assert node_pod(raw(annotations={keys.POLICY_ANNOTATION: "shop/web"})).policy == "shop/web"
    assert node_pod(raw(annotations={keys.POLICY_ANNOTATION: ""})).policy == "", (
        "it was counted and fills none"
    )
    assert node_pod(raw()).policy is None


@pytest.mark.parametrize(
    ("phase", "finished"),
    [("Succeeded", True), ("Failed", True), ("Running", False), ("Pending", False), ("Unknown", False)],
)
def test_what_has_ended(phase: str, finished: bool) -> None:
    assert node_pod(raw({"phase": phase})).finished is finished


def test_ids_of_what_runs() -> None:
    def status(name: str, container_id: str, **state: Any) -> dict[str, Any]:
        return {"name": name, "containerID": container_id, "state": state}

    running = {"startedAt": "2026-01-01T00:00:00Z"}
    found = node_pod(
        raw(
            {
                "containerStatuses": [
                    status("web", "containerd://c0ffee", running=running),
                    status("waits", "containerd://dead", waiting={"reason": "CrashLoopBackOff"}),
                    {"name": "new", "state": {"waiting": {}}},
                    {"name": "old", "containerID": "containerd://old"},
                ],
                "initContainerStatuses": [status("sidecar", "cri-o://5ca1e", running=running)],
                "ephemeralContainerStatuses": [status("debug", "cri-o://de6", running={})],
            }
        )
    )
    assert found.ids == {"web": "c0ffee", "sidecar": "5ca1e", "debug": "de6"}


@pytest.mark.parametrize(
    ("annotations", "uid"),
    [
        ({keys.MIRROR_ANNOTATION: STATIC, keys.STATIC_UID_ANNOTATION: STATIC}, STATIC),
        ({keys.STATIC_UID_ANNOTATION: STATIC}, UID),
        ({keys.MIRROR_ANNOTATION: STATIC}, UID),
        ({keys.MIRROR_ANNOTATION: "x", keys.STATIC_UID_ANNOTATION: UID}, UID),
        ({keys.MIRROR_ANNOTATION: "x", keys.STATIC_UID_ANNOTATION: "../../etc"}, UID),
        ({keys.MIRROR_ANNOTATION: "x", keys.STATIC_UID_ANNOTATION: STATIC[:-1] + "-"}, UID),
    ],
)
def test_a_static_pods_cgroups_have_its_own_uid(annotations: dict[str, str], uid: str) -> None:
    found = node_pod(raw(annotations=annotations))
    assert found.pod.uid == uid
    assert found.api_uid == UID


def test_pods_of_one_template_share_their_containers() -> None:
    first, second = node_pod(raw()).pod, node_pod(raw(name="web-1", uid="other")).pod
    assert first.containers[0] is second.containers[0]
    assert replace(second, name=first.name, uid=first.uid) == first


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (b"{", "Pod (unreadable)"),
        (raw(labels={"app": 1}), "Pod shop/web-0: metadata.labels"),
        (raw({"containerStatuses": [{"name": "web", "allocatedResources": {"cpu": "x"}}]}), "Resources.cpu"),
    ],
)
def test_what_cannot_be_read_is_named(bad: bytes, named: str) -> None:
    with pytest.raises(DecodeError) as error:
        node_pod(bad)
    assert named in str(error.value)


@pytest.mark.parametrize(
    ("status", "addresses"),
    [
        ({"podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}, {"ip": "fd00::7"}]}, ("10.1.0.7", "fd00::7")),
        ({"podIP": "10.1.0.7"}, ("10.1.0.7",)),
        ({"podIPs": []}, ()),
        ({}, ()),
    ],
)
def test_addresses(status: dict[str, Any], addresses: tuple[str, ...]) -> None:
    assert node_pod(raw(status)).addresses == addresses


def test_the_hosts_network() -> None:
    body = json.loads(raw())
    assert not node_pod(raw()).host_network
    body["spec"]["hostNetwork"] = True
    found = node_pod(json.dumps(body).encode())
    assert found.host_network
    assert found.pod == node_pod(raw()).pod
