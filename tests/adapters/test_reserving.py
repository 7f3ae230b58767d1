"""Reservations as Koordinator's users write them, and what pods say of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.kubernetes import decode
from adapters.kubernetes.reserving import affinity_of, reservation
from adapters.kubernetes.wire import DecodeError
from qos.cluster.objects import Node, Pod, Taint
from qos.cluster.reservation import PodOwner, Reservation
from qos.cluster.selectors import admits

CREATED = 1767225600.0
WEB: dict[str, Any] = {"labelSelector": {"matchLabels": {"app": "web"}}}

SPREAD = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


def read(metadata: dict[str, Any] | None = None, status: Any = None, **spec: Any) -> Reservation:
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]}}
    template["spec"] |= spec.pop("template", {})
    body = {"template": template, "owners": [WEB]} | spec
    meta = {"name": "demo", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"} | (metadata or {})
    return reservation(json.dumps({"metadata": meta, "spec": body, "status": status or {}}).encode())


def test_what_is_said_and_what_is_meant() -> None:
    one = read(status={"phase": "Available", "nodeName": "n1"}, unschedulable=True)
    assert one.vector == {"cpu": 500, "memory": 1 << 30, "pods": 1}
    assert (one.key, one.phase, one.node, one.once, one.unschedulable) == (
        "/demo",
        "Available",
        "n1",
        True,
        True,
    )
    assert one.unheeded == ()


@pytest.mark.parametrize(
    ("spec", "end"),
    [
        ({}, CREATED + 86400),
        ({"ttl": "30m"}, CREATED + 1800),
        ({"ttl": "1h30m0s"}, CREATED + 5400),
        ({"ttl": "0s", "expires": "2026-01-01T00:10:00Z"}, None),
        ({"ttl": "0"}, None),
        ({"expires": "2026-01-01T00:10:00Z"}, CREATED + 600),
        ({"expires": "2026-01-01T00:10:00Z", "ttl": "24h"}, CREATED + 600),
        ({"expires": "2027-01-01T00:10:00Z", "ttl": "24h"}, CREATED + 86400),
    ],
)
def test_when_it_ends(spec: dict[str, Any], end: float | None) -> None:
    assert read(**spec).expires == end


def test_a_ttl_that_is_no_duration_is_named() -> None:
    with pytest.raises(DecodeError, match=r"Reservation demo: spec\.ttl: 'a day'.*24h"):
        read(ttl="a day")


@pytest.mark.parametrize(
    ("template", "labels", "priority"),
    [
        ({}, {}, None),
        ({"priority": 7}, {"koordinator.sh/priority": "5"}, 7),
        ({}, {"koordinator.sh/priority": "5"}, 5),
        ({}, {"koordinator.sh/priority": "much"}, None),
    ],
)
def test_its_priority(template: dict[str, Any], labels: dict[str, str], priority: int | None) -> None:
    assert read({"labels": labels}, template=template).priority == priority


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"preAllocation": True}, "spec.preAllocation"),
        ({"template": {"topologySpreadConstraints": [SPREAD]}}, "topologySpreadConstraints"),
        ({"template": {"affinity": {"podAntiAffinity": {}}}}, "affinity"),
        ({"template": {"containers": [{"ports": [{"hostPort": 80}]}]}}, "hostPort"),
        ({"owners": [{"controller": {"kind": "Job", "controller": False}}]}, "controller"),
    ],
)
def test_what_is_not_honoured_is_named(spec: dict[str, Any], named: str) -> None:
    (said,) = read(**spec).unheeded
    assert named in said


def test_an_annotation_that_is_not_honoured_is_named() -> None:
    annotations = {"scheduling.koordinator.sh/reservation-resize-allocatable": "{}"}
    (said,) = read({"annotations": annotations}).unheeded
    assert "reservation-resize-allocatable" in said


def test_owners_of_every_kind() -> None:
    by_name, by_controller, anyone = read(
        owners=[
            {"object": {"kind": "Pod", "namespace": "shop", "name": "web-0"}},
            {
                "controller": {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "rs",
                    "namespace": "shop",
                }
            },
            {"labelSelector": {}},
        ]
    ).owners
    assert by_name == PodOwner(namespace="shop", name="web-0")
    assert by_controller.controller is not None
    assert by_controller.controller.name == "rs"
    assert anyone.owns(Pod("u", "n", "p", {}))


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        ({}, True),
        ({"name": "demo"}, True),
        ({"name": "other", "reservationSelector": {"tier": "gold"}}, False),
        ({"reservationSelector": {"tier": "gold"}}, True),
        ({"reservationSelector": {"tier": "silver"}}, False),
        ({"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": []}}, False),
        (
            {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "reservationSelectorTerms": [
                        {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}
                    ]
                }
            },
            True,
        ),
    ],
)
def test_which_reservations_an_affinity_selects(said: dict[str, Any], fits: bool) -> None:
    there = Node("demo", "u", {}, labels={"tier": "gold"})
    assert admits(affinity_of(json.dumps(said)), there) is fits


def test_an_affinity_that_cannot_be_read_selects_nothing() -> None:
    assert not admits(affinity_of("{"), Node("demo", "u", {}))


def test_an_affinity_tolerates_taints() -> None:
    tainted = Node("demo", "u", {}, taints=(Taint("k", "v", "NoSchedule"),))
    assert not admits(affinity_of("{}"), tainted)
    assert admits(affinity_of('{"tolerations": [{"key": "k", "operator": "Exists"}]}'), tainted)


def test_what_a_pod_says() -> None:
    annotations = {
        "scheduling.koordinator.sh/reservation-allocated": '{"name":"demo","uid":"u-1"}',
        "scheduling.koordinator.sh/reservation-affinity": '{"name":"demo"}',
    }
    raw = {"metadata": {"name": "p", "annotations": annotations}, "spec": {}}
    pod = decode.pod(json.dumps(raw).encode())
    assert pod.reserved_by == "u-1"
    assert pod.reservation_affinity == affinity_of('{"name":"demo"}')
    deep = '{"x":' + "[" * 100_000  # which a pod may carry as an annotation
    for text in ("{", deep):
        broken = {"metadata": {"annotations": dict.fromkeys(annotations, text)}, "spec": {}}
        assert decode.pod(json.dumps(broken).encode()).reserved_by == ""
