"""Pods and usage as rescheduling sees them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from adapters.kubernetes.running_pods import running_pod
from adapters.kubernetes.usage import node_usage, pod_usage
from adapters.kubernetes.wire import DecodeError
from qos.cluster.running import BANDS, CLASSES, NEVER, PROD, QUALITIES, RunningPod


def read(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **meta: Any) -> RunningPod:
    body = {
        "metadata": {"namespace": "a", "name": "p", "uid": "u"} | meta,
        "spec": {"containers": [{"name": "m"}]} | (spec or {}),
        "status": status or {},
    }
    return running_pod(orjson.dumps(body))


def test_a_pod_that_says_nothing() -> None:
    one = read()
    assert (one.ready, one.band, one.local, one.claims, one.tied, one.floor, one.moved) == (
        *(False, PROD, False, False, ""),
        *(False, None),
    )


@pytest.mark.parametrize(
    ("labels", "priority", "qos", "band", "class_"),
    [
        ({}, 0, "Guaranteed", "koord-prod", "LSR"),
        ({}, 0, "BestEffort", "koord-batch", "BE"),
        ({}, 5999, "Burstable", "koord-batch", "LS"),
        ({}, 3000, "Burstable", "koord-free", "LS"),
        ({}, 7500, "Burstable", "koord-mid", "LS"),
        ({}, 9500, "BestEffort", "koord-prod", "BE"),
        ({"koordinator.sh/priority-class": "koord-mid"}, 9500, "Burstable", "koord-mid", "LS"),
        ({"koordinator.sh/qosClass": "BE"}, 0, "Burstable", "koord-batch", "BE"),
        ({"koordinator.sh/qosClass": "odd"}, 0, "Burstable", "koord-prod", "LS"),
    ],
)
def test_bands_and_classes(labels: dict[str, str], priority: int, qos: str, band: str, class_: str) -> None:
    one = read({"priority": priority}, {"qosClass": qos}, labels=labels)
    assert (BANDS[one.band], CLASSES[one.rank], QUALITIES[one.quality]) == (band, class_, qos)


TERM = {"topologyKey": "zone", "labelSelector": {}}
SPREAD = {"topologyKey": "zone", "maxSkew": 1, "labelSelector": {}}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}},
            "other pods",
        ),
        (
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}},
            "other pods",
        ),
        ({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}, ""),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "DoNotSchedule"}]}, "topology spread"),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]}, ""),
        (
            {"containers": [{"name": "m", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
            "port of its node",
        ),
        (
            {"containers": [{"name": "m", "ports": [{"containerPort": 80}]}], "hostNetwork": True},
            "port of its",
        ),
        ({"containers": [{"name": "m", "ports": [{"containerPort": 80}]}]}, ""),
        ({"resourceClaims": [{"name": "gpu"}]}, "resource claims"),
    ],
)
def test_what_ties_a_pod(spec: dict[str, Any], why: str) -> None:
    tied = read(spec).tied
    assert why in tied
    assert bool(why) == bool(tied)


def test_a_pod_that_chooses_its_reservation_is_tied() -> None:
    said = {"scheduling.koordinator.sh/reservation-affinity": '{"name":"r"}'}
    assert read(annotations=said).tied == "it uses a Reservation"
    assert (
        read(labels={"scheduling.koordinator.sh/reservation-ignored": "true"}).tied
        == "it uses no Reservation"
    )


def test_volumes() -> None:
    assert read({"volumes": [{"name": "v", "emptyDir": {}}]}).local
    assert read({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}).local
    assert read({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}).claims
    assert not read({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}).local


def test_costs_and_floors() -> None:
    one = read(
        annotations={
            "scheduling.koordinator.sh/eviction-cost": str(NEVER),
            "controller.kubernetes.io/pod-deletion-cost": "-5",
            "j10ce.io/policy": "a/p",
        }
    )
    assert (one.eviction_cost, one.deletion_cost, one.floor) == (NEVER, -5, True)
    assert read(annotations={"scheduling.koordinator.sh/eviction-cost": "much"}).eviction_cost == 0


def test_usage() -> None:
    body = {
        "metadata": {"name": "n1"},
        "timestamp": "2026-11-24T03:00:00Z",
        "usage": {"cpu": "1500000000n", "memory": "1Ki"},
    }
    one = node_usage(orjson.dumps(body))
    assert (one.key, one.stamp, one.usage) == ("n1", "2026-11-24T03:00:00Z", {"cpu": 1500, "memory": 1024})
    body = {
        "metadata": {"namespace": "a", "name": "p"},
        "containers": [{"usage": {"cpu": "1", "memory": "1"}}, {"usage": {"cpu": "500m"}}],
    }
    assert pod_usage(orjson.dumps(body)).usage == {"cpu": 1500, "memory": 1}
    with pytest.raises(DecodeError, match=r"usage\.cpu"):
        node_usage(orjson.dumps({"metadata": {"name": "n"}, "usage": {"cpu": "much"}}))
