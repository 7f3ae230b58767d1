"""From a pod's labels, annotations and profile to its class and promises: precedence, and nothing silent."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos import keys
from qos.classes import CLASSES, promises_of
from qos.cluster.policy import Profile
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED, Container, NodePod
from qos.pods.expectation import Expectation, expectation
from qos.pods.peers import katalyst, koordinator
from qos.promises import CpuQuota, CpuSet, Promises

CLASS = keys.KOORDINATOR_CLASS_LABEL
LEVEL = keys.KATALYST_LEVEL
BURST = keys.KOORDINATOR_BURST_ANNOTATION
OOM = keys.KOORDINATOR_OOM_ANNOTATION
OOM_SPEC = keys.KOORDINATOR_OOM_SPEC_ANNOTATION
STATIC_BURST = {keys.KATALYST_CPU_ANNOTATION: '{"cpu_burst_policy": "static", "cpu_burst_percent": "40"}'}


def pod(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    qos: str = BURSTABLE,
) -> NodePod:
    containers = (Container("main"), Container("side"))
    return NodePod("1", "shop", "web", containers, qos, labels or {}, annotations or {})


def said(found: Expectation) -> str:
    return "\n".join(map(str, found.misread))


@pytest.mark.parametrize(("qos", "name"), [(GUARANTEED, "LSR"), (BURSTABLE, "LS"), (BEST_EFFORT, "BE")])
def test_without_a_word_the_qos_class_decides(qos: str, name: str) -> None:
    found = expectation(pod(qos=qos))
    assert (found.class_name, found.class_source) == (name, f"QoS class {qos}")
    assert not found.misread
    assert not found.unsupported


def test_nobody_loses_a_quota_without_having_asked_for_cpus() -> None:
    """Koordinator gives CPUs to labelled pods only; every Guaranteed pod would run without its limit."""
    found = expectation(pod(qos=GUARANTEED))
    assert (found.promises.cpus, found.promises.cpu_quota) == (CpuSet.SHARED, CpuQuota.LIMIT)
    assert found.sources["cpu_quota"] == f"no label {CLASS}"
    asked = expectation(pod({CLASS: "LSR"}, qos=GUARANTEED))
    assert asked.promises == promises_of("LSR")
    assert asked.promises.cpu_quota is CpuQuota.NONE


@pytest.mark.parametrize("name", CLASSES)
def test_the_label_names_the_class(name: str) -> None:
    found = expectation(pod({CLASS: name}))
    assert (found.class_name, found.class_source) == (name, f"label {CLASS}")
    assert found.promises == promises_of(name)
    assert found.sources == {}


@pytest.mark.parametrize(
    ("level", "name"),
    [
        ("dedicated_cores", "LSE"),
        ("shared_cores", "LS"),
        ("reclaimed_cores", "BE"),
        ("system_cores", "SYSTEM"),
    ],
)
@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_katalysts_level_names_the_class(level: str, name: str, where: str) -> None:
    found = expectation(pod(**{where: {LEVEL: level}}))
    assert (found.class_name, found.promises) == (name, promises_of(name))
    assert found.class_source == f"{where.removesuffix('s')} {LEVEL}"


def test_koordinators_label_stands_above_katalysts_level_and_says_so() -> None:
    found = expectation(pod({CLASS: "LSR"}, {LEVEL: "reclaimed_cores"}))
    assert found.class_name == "LSR"
    assert said(found) == (
        f"Pod shop/web: annotation {LEVEL}: 'reclaimed_cores': has no effect: label {CLASS} says LSR"
    )


def test_two_that_agree_are_not_worth_a_word() -> None:
    assert not expectation(pod({CLASS: "LS"}, {LEVEL: "shared_cores"})).misread


@pytest.mark.parametrize("value", ["ls", "LS ", "Guaranteed", "None", "0"])
def test_an_unknown_class_is_named_with_what_stands_instead(value: str) -> None:
    found = expectation(pod({CLASS: value}, {LEVEL: "reclaimed_cores"}))
    assert found.class_name == "BE"
    assert f"label {CLASS}: {value!r}: is none of SYSTEM, LSE, LSR, LS, BE" in said(found)
    assert f"annotation {LEVEL} says BE" in said(found)


def test_an_unknown_level_is_named() -> None:
    found = expectation(pod(annotations={LEVEL: "gold_cores"}))
    assert found.class_name == "LS"
    assert f"annotation {LEVEL}: 'gold_cores': is none of dedicated_cores" in said(found)


def test_the_profile_stands_above_all() -> None:
    profile = Profile("gold", "LSR", overrides={"oom_score_adj": -500, "cpu_quota": CpuQuota.LIMIT})
    found = expectation(pod({CLASS: "BE"}, {OOM: "7", OOM_SPEC: '{"main": 8}'}), profile)
    assert (found.class_name, found.class_source) == ("LSR", "QoSProfile gold")
    assert found.promises == promises_of("LSR", profile.overrides)
    assert found.of("main").oom_score_adj == found.of("side").oom_score_adj == -500
    assert found.sources == {"oom_score_adj": "QoSProfile gold", "cpu_quota": "QoSProfile gold"}
    assert "'BE': has no effect: QoSProfile gold says LSR" in said(found)


def test_a_profile_leaves_the_rest_to_annotations() -> None:
    profile = Profile("gold", "LS", overrides={"io_weight": 500})
    found = expectation(pod(annotations={OOM: "-7"}), profile)
    assert (found.promises.io_weight, found.promises.oom_score_adj) == (500, -7)
    assert found.sources["oom_score_adj"] == f"annotation {OOM}"


def test_a_pod_cannot_idle_away_the_floor_of_its_policy() -> None:
    idle = {keys.KOORDINATOR_CPU_ANNOTATION: '{"enable": true, "groupIdentity": -1}'}
    assert expectation(pod({CLASS: "LS"}, idle)).promises.cpu_idle
    found = expectation(pod({CLASS: "LS"}, idle), Profile("gold", "LS"))
    assert not found.promises.cpu_idle
    assert "the floor of QoSProfile gold needs CPU" in said(found)


def test_a_pod_with_a_floor_and_no_class_is_not_taken_for_best_effort() -> None:
    found = expectation(pod(qos=BEST_EFFORT), floor=True)
    assert (found.class_name, found.class_source) == ("LS", "the floor of its policy")
    assert not found.promises.cpu_idle
    assert not found.misread
    assert expectation(pod({CLASS: "BE"}, qos=BEST_EFFORT), floor=True).class_name == "BE"
    assert expectation(pod({CLASS: "none"}, qos=BEST_EFFORT), floor=True).class_name == "LS"
    assert expectation(pod(qos=BURSTABLE), floor=True) == expectation(pod(qos=BURSTABLE))
    assert expectation(pod(qos=BEST_EFFORT), Profile("gold", "BE"), floor=True).class_name == "BE"


def test_no_pod_with_a_floor_can_idle_it_away() -> None:
    idle = {keys.KOORDINATOR_CPU_ANNOTATION: '{"enable": true, "groupIdentity": -1}'}
    found = expectation(pod({CLASS: "LS"}, idle), floor=True)
    assert not found.promises.cpu_idle
    assert "the floor of its policy needs CPU" in said(found)
    assert expectation(pod({CLASS: "BE"}), floor=True).promises.cpu_idle


def test_koordinators_annotations_stand_above_katalysts() -> None:
    found = expectation(
        pod(annotations={**STATIC_BURST, BURST: '{"policy": "cpuBurstOnly", "cpuBurstPercent": 70}'})
    )
    assert found.promises.cpu_burst_percent == 70
    assert found.sources["cpu_burst_percent"] == f"annotation {BURST}"
    assert expectation(pod(annotations=STATIC_BURST)).promises.cpu_burst_percent == 40


def test_one_container_may_have_its_own_oom_score() -> None:
    found = expectation(pod(annotations={OOM: "-100", OOM_SPEC: '{"side": 300, "gone": 1}'}))
    assert (found.of("main").oom_score_adj, found.of("side").oom_score_adj) == (-100, 300)
    assert said(found) == f"Pod shop/web: annotation {OOM_SPEC}: 'gone': the pod has no such container"


def test_a_bad_annotation_has_no_effect_and_the_others_have_theirs() -> None:
    found = expectation(pod(annotations={BURST: '{"policy": "auto"', OOM: "5"}))
    assert found.promises == promises_of("LS", {"oom_score_adj": 5})
    assert f'Pod shop/web: annotation {BURST}: \'{{"policy": "auto"\': not JSON:' in said(found)


def test_long_values_are_cut_in_messages() -> None:
    assert len(said(expectation(pod(annotations={BURST: "x" * 100_000})))) < 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(st.text(max_size=4), parts, max_size=2),
    max_leaves=4,
)
NAMES = [
    "policy", "enable", "groupIdentity", "schedIdle", "coreExpeller", "minLimitPercent", "lowLimitPercent",
    "throttlingPercent", "wmarkRatio", "oomKillGroup", "cpuBurstPercent", "cfsQuotaBurstPercent", "blocks",
    "oom_priority", "numa_binding", "cpu_burst_policy", "cpu_burst_percent", "main",
]  # fmt: skip
VALUES = JSON | st.sampled_from(["auto", "none", "static", "100", "-1", -1, 0, 1, 50, 100, True])
TEXTS = (
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4).map(json.dumps)
    | JSON.map(json.dumps)
    | st.text()
)
ANNOTATIONS = st.dictionaries(st.sampled_from([*katalyst.ANNOTATIONS, *koordinator.ANNOTATIONS]), TEXTS)
PROFILES = st.none() | st.builds(
    Profile,
    st.just("gold"),
    st.sampled_from(list(CLASSES)),
    overrides=st.fixed_dictionaries(
        {}, optional={"oom_score_adj": st.integers(-9, 9), "io_weight": st.just(7)}
    ),
)


def in_range(promises: Promises) -> bool:
    percents = [getattr(promises, field.name) for field in fields(Promises) if field.name.endswith("percent")]
    oom = promises.oom_score_adj
    return all(0 <= percent <= 100 for percent in percents) and (oom is None or -1000 <= oom <= 1000)


@given(
    st.dictionaries(
        st.sampled_from([CLASS, LEVEL]), st.sampled_from([*CLASSES, *katalyst.CLASSES]) | st.text()
    ),
    ANNOTATIONS | st.dictionaries(st.just(LEVEL), st.sampled_from(list(katalyst.CLASSES))),
    st.sampled_from([GUARANTEED, BURSTABLE, BEST_EFFORT]),
    PROFILES,
)
def test_whatever_a_pod_says_there_is_an_answer(
    labels: dict[str, str], annotations: dict[str, str], qos: str, profile: Profile | None
) -> None:
    found = expectation(pod(labels, annotations, qos), profile)
    assert found.class_name in CLASSES
    for name in ("main", "side"):
        assert in_range(found.of(name))
    differs = {
        f.name
        for f in fields(Promises)
        if getattr(found.promises, f.name) != getattr(promises_of(found.class_name), f.name)
    }
    assert differs <= found.sources.keys(), "every change has a source"
    if profile:
        assert found.class_name == profile.class_name
        overridden: dict[str, Any] = dict(profile.overrides)
        assert {name: getattr(found.of("main"), name) for name in overridden} == overridden
