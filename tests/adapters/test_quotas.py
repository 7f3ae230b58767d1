"""ElasticQuotas as Koordinator's and scheduler-plugins' users write them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from adapters.kubernetes.quotas import quota
from adapters.kubernetes.wire import DecodeError
from qos import keys
from qos.cluster.quota import ElasticQuota

GIB = 1 << 30
PREFIX = keys.KOORDINATOR_QUOTA_PREFIX


def read(
    labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None, **spec: Any
) -> ElasticQuota:
    meta: dict[str, Any] = {"name": "gold", "namespace": "teams", "uid": "u", "resourceVersion": "7"}
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    if labels is not None:
        meta["labels"] = {PREFIX + key: value for key, value in labels.items()} | {"app": "x"}
    if annotations is not None:
        meta["annotations"] = {PREFIX + key: value for key, value in annotations.items()}
    return quota(json.dumps({"metadata": meta, "spec": spec, "status": {"used": {"cpu": "1"}}}).encode())


def test_koordinators() -> None:
    one = read(
        {
            "parent": "web",
            "is-parent": "true",
            "allow-lent-resource": "false",
            "tree-id": "gpu",
            "is-root": "true",
        },
        {
            "shared-weight": '{"cpu": 2, "memory": "1Gi"}',
            "namespaces": '["shop", "yard"]',
            "total-resource": '{"cpu": "100"}',
        },
        min={"cpu": "500m", "memory": "1Gi"},
        max={"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": "2"},
    )
    assert one.key == "teams/gold"
    assert one.min == {"cpu": 500, "memory": GIB}
    assert one.max == {"cpu": 4000, "memory": 8 * GIB, "nvidia.com/gpu": 2}
    assert one.weight == {"cpu": 2000, "memory": GIB, "nvidia.com/gpu": 2}
    assert (one.parent, one.is_parent, one.lends, one.tree) == ("web", True, False, "gpu")
    assert (one.is_root, one.total, one.beside, one.forced) == (True, {"cpu": 100_000}, False, False)
    assert one.namespaces == ("shop", "yard")
    assert not one.plain
    assert one.problems == ()
    assert one.created == 1767225600.0


def test_defaults() -> None:
    one = read({"parent": keys.ROOT_QUOTA}, max={"cpu": "4"})
    assert (one.parent, one.is_parent, one.lends, one.tree, one.total) == ("", False, True, "", None)
    assert (one.min, one.weight, one.namespaces) == ({}, {"cpu": 4000}, ())


@pytest.mark.parametrize("labels", [None, {}])
def test_a_plain_one_is_scheduler_plugins(labels: Mapping[str, str] | None) -> None:
    assert read(labels, min={"cpu": "1"}, max={"cpu": "4"}).plain


def test_one_without_a_spec() -> None:
    bare = quota(b'{"metadata": {"name": "gold", "namespace": "teams"}}')
    assert (bare.min, bare.max, bare.weight) == ({}, {}, {})


@pytest.mark.parametrize(
    ("stated", "weight"),
    [
        ('{"cpu": 0, "memory": 0}', {"cpu": 4000, "memory": GIB}),
        ('{"cpu": 0, "memory": 1}', {"cpu": 0, "memory": 1}),
        ('{"cpu": 1}', {"cpu": 1000, "memory": GIB}),
        ('{"gpu": 1, "cpu": 1}', {"cpu": 1000, "memory": GIB}),
    ],
)
def test_weights_are_of_what_max_names(stated: str, weight: dict[str, int]) -> None:
    assert read({}, {"shared-weight": stated}, max={"cpu": "4", "memory": "1Gi"}).weight == weight


@pytest.mark.parametrize(
    ("annotation", "value", "told"),
    [
        ("shared-weight", "{cpu: 1}", r"shared-weight\]: '\{cpu: 1\}': .* write a JSON object such as"),
        ("shared-weight", '{"cpu": "much"}', r"shared-weight\]: cpu: 'much' is not a quantity"),
        ("shared-weight", '{"cpu": "-1"}', r"shared-weight\]: cpu: -1000 is negative: write zero or more"),
        ("total-resource", "[]", r"total-resource\]: '\[\]': .* counts as not there"),
        ("namespaces", "shop", r"namespaces\]: 'shop': .* write a JSON list such as"),
    ],
)
def test_an_annotation_that_cannot_be_read_counts_as_not_there_and_is_told(
    annotation: str, value: str, told: str
) -> None:
    one = read({}, {annotation: value}, max={"cpu": "4"})
    assert (one.weight, one.total, one.namespaces) == ({"cpu": 4000}, None, ())
    (problem,) = one.problems
    assert problem.startswith(f"metadata.annotations[{PREFIX}")
    assert re.search(told, problem), problem


@pytest.mark.parametrize(
    ("text", "seconds"), [("900", 900), ("0", 0), ("15m", 0), ("-1", 0), ("9" * 5000, 0)]
)
def test_how_long_a_turn_is(text: str, seconds: int) -> None:
    meta = {"name": "gold", "namespace": "teams", "annotations": {keys.QUOTA_TURN_ANNOTATION: text}}
    one = quota(json.dumps({"metadata": meta}).encode())
    assert one.turn_seconds == seconds
    assert bool(one.problems) == (not seconds)
    assert all(keys.QUOTA_TURN_ANNOTATION in problem and "31536000" in problem for problem in one.problems)


def test_an_amount_that_is_none_names_object_field_and_value() -> None:
    with pytest.raises(DecodeError, match=r"ElasticQuota teams/gold: spec\.max\.cpu: 'much'"):
        read({}, max={"cpu": "much"})
    with pytest.raises(DecodeError, match=r"ElasticQuota teams/gold: spec\.min"):
        read({}, min=["cpu"])


def test_more_than_any_node_has_is_not_capped() -> None:
    assert read({}, max={"memory": "9Ei"}).max == {"memory": 9 * 2**60}
