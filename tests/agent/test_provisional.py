"""Pods made from what the runtime tells."""

from __future__ import annotations

import pytest

from agent.nri.records import LinuxResources, NriPod
from agent.provisional import pod_of, with_container
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED

UID = "0c6f8b1e-5f3a-4a0e-9a53-0d6a6b2d9f11"
SLICE_UID = UID.replace("-", "_")


def told(parent: str = "", annotations: dict[str, str] | None = None) -> NriPod:
    return NriPod("s1", UID, "shop", "checkout-1", {"app": "checkout"}, annotations or {}, parent)


@pytest.mark.parametrize(
    ("parent", "qos"),
    [
        (f"/kubepods/burstable/pod{UID}", BURSTABLE),
        (f"/kubepods/besteffort/pod{UID}", BEST_EFFORT),
        (f"/kubepods/pod{UID}", GUARANTEED),
        (f"kubepods-burstable-pod{SLICE_UID}.slice", BURSTABLE),
        (f"kubepods-pod{SLICE_UID}.slice", GUARANTEED),
        ("/elsewhere", BEST_EFFORT),
        ("", BEST_EFFORT),
    ],
)
def test_the_class_is_that_of_its_cgroup(parent: str, qos: str) -> None:
    assert pod_of(told(parent)).pod.qos == qos


def test_what_the_runtime_tells_of_the_pod_is_kept() -> None:
    known = pod_of(told(annotations={"j10ce.io/policy": "shop/checkout"}))
    assert known.provisional
    assert known.policy == "shop/checkout"
    assert (known.pod.namespace, known.pod.name) == ("shop", "checkout-1")
    assert known.pod.labels == {"app": "checkout"}


def test_requests_are_inferred() -> None:
    known = with_container(
        pod_of(told()), "app", LinuxResources(512, 100_000, 100_000, memory_limit=64 << 20)
    )
    (one,) = known.pod.containers
    assert (one.cpu_request, one.cpu_limit, one.memory_limit, one.memory_request) == (500, 1000, 64 << 20, 0)


def test_a_container_that_comes_again_is_the_same() -> None:
    known = with_container(pod_of(told()), "app", LinuxResources(512))
    known = with_container(known, "sidecar", LinuxResources())
    known = with_container(known, "app", LinuxResources(2, -1))
    assert [(one.name, one.cpu_request, one.cpu_limit) for one in known.pod.containers] == [
        ("sidecar", 0, 0),
        ("app", 0, 0),
    ]
