"""Katalyst's enhancements, one by one: what each becomes, what it cannot become here, what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos import keys
from qos.classes import CLASSES, promises_of
from qos.pods.containers import BURSTABLE, GUARANTEED
from qos.pods.peers import katalyst
from qos.pods.peers.reading import Note, Said

MEMORY = keys.KATALYST_MEMORY_ANNOTATION
CPU = keys.KATALYST_CPU_ANNOTATION
NETWORK = keys.KATALYST_NETWORK_ANNOTATION


def read(key: str, text: str, class_name: str = "LS", qos: str = BURSTABLE) -> Said:
    return katalyst.ANNOTATIONS[key](Note(text, class_name, qos, promises_of(class_name)))


def oom_score_adj(priority: int, class_name: str, qos: str = BURSTABLE) -> int | None:
    text = json.dumps({"oom_priority": str(priority)})
    return read(MEMORY, text, class_name, qos).overrides.get("oom_score_adj")


@pytest.mark.parametrize("name", katalyst.CLASSES.values())
def test_levels_are_classes(name: str) -> None:
    assert name in CLASSES


@pytest.mark.parametrize(
    ("priority", "class_name", "qos", "adjustment"),
    [
        (-100, "BE", BURSTABLE, 1000),
        (-1, "BE", BURSTABLE, 505),
        (0, "LS", BURSTABLE, 500),
        (99, "LS", BURSTABLE, 5),
        (100, "LSE", BURSTABLE, 0),
        (299, "SYSTEM", BURSTABLE, -995),
        (100, "LSE", GUARANTEED, -997),  # never weaker than what the kubelet gives it
        (299, "SYSTEM", GUARANTEED, -997),
        (300, "LS", BURSTABLE, -1000),
        (300, "LSE", GUARANTEED, -1000),
        (-300, "LS", BURSTABLE, None),
    ],
)
def test_oom_priority_becomes_oom_score_adj(
    priority: int, class_name: str, qos: str, adjustment: int | None
) -> None:
    assert oom_score_adj(priority, class_name, qos) == adjustment


RANGES = {"BE": (-100, -1), "LS": (0, 99), "LSE": (100, 199), "SYSTEM": (200, 299)}
RANKED = st.sampled_from(list(RANGES)).flatmap(
    lambda name: st.tuples(st.integers(*RANGES[name]), st.just(name))
)


@given(RANKED, RANKED)
def test_who_survives_there_survives_here(one: tuple[int, str], other: tuple[int, str]) -> None:
    first, second = sorted([one, other])
    assert (oom_score_adj(*first) or 0) >= (oom_score_adj(*second) or 0)


def test_what_stands_for_the_priority_is_told() -> None:
    (told,) = read(MEMORY, '{"oom_priority": "50"}').unsupported
    assert (told.promise, told.file) == ("memory_enhancement.oom_priority", "oom_score_adj")
    assert "250 stands for 50" in told.why


@pytest.mark.parametrize(
    ("key", "text", "overrides", "unsupported"),
    [
        (MEMORY, "{}", {}, []),
        (
            MEMORY,
            '{"numa_binding": "true", "numa_exclusive": "true", "rss_overuse_threshold": "1.2"}',
            {},
            ["numa_binding", "numa_exclusive", "rss_overuse_threshold"],
        ),
        (CPU, "{}", {}, []),
        (CPU, '{"cpu_burst_policy": "default", "cpu_burst_percent": "50"}', {}, []),
        (CPU, '{"cpu_burst_policy": "closed"}', {"cpu_burst_percent": 0}, []),
        (CPU, '{"cpu_burst_policy": "static"}', {"cpu_burst_percent": 100}, []),
        (CPU, '{"cpu_burst_policy": "static", "cpu_burst_percent": "12.9"}', {"cpu_burst_percent": 12}, []),
        (CPU, '{"cpu_burst_policy": "static", "cpu_burst_percent": "300"}', {"cpu_burst_percent": 100}, []),
        (
            CPU,
            '{"cpu_burst_policy": "dynamic", "cpu_burst_threshold": "0.7"}',
            {},
            ["cpu_burst_policy", "cpu_burst_threshold"],
        ),
        (
            CPU,
            '{"cpuset_pool": "batch", "suppression_tolerance_rate": "1.2", "numa_affinity": "true"}',
            {},
            ["cpuset_pool", "suppression_tolerance_rate", "numa_affinity"],
        ),
        (
            NETWORK,
            '{"namespace_type": "host_ns", "topology_affinity_restricted": "true"}',
            {},
            ["namespace_type", "topology_affinity_restricted"],
        ),
    ],
)
def test_what_it_becomes(key: str, text: str, overrides: dict[str, object], unsupported: list[str]) -> None:
    said = read(key, text)
    assert said.overrides == overrides
    assert [one.promise.rsplit(".", 1)[-1] for one in said.unsupported] == unsupported
    assert said.unknown == ()


def test_an_unknown_enhancement_is_told() -> None:
    assert read(MEMORY, '{"numa_bindings": "true"}').unknown == ("numa_bindings",)


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        (MEMORY, "numa_binding", "not JSON"),
        (MEMORY, '{"oom_priority": 100}', "oom_priority: 100 is no text"),
        (MEMORY, '{"numa_binding": true}', "numa_binding: true is no text"),
        (MEMORY, '{"oom_priority": "high"}', 'oom_priority: "high" is no integer'),
        (MEMORY, '{"oom_priority": "100"}', "oom_priority: 100 is outside 0 to 99, as class LS has it"),
        (MEMORY, '{"oom_priority": "301"}', "is no integer from -300 to 300"),
        (CPU, '{"cpu_burst_policy": "auto"}', "cpu_burst_policy: auto is none of default"),
        (CPU, '{"cpu_burst_percent": "all"}', "cpu_burst_percent: 'all' is no number"),
        (CPU, '{"cpu_burst_percent": "-1"}', "cpu_burst_percent: -1 is less than 0"),
        (CPU, '{"cpu_burst_percent": "nan"}', "cpu_burst_percent: nan is less than 0"),
        (NETWORK, "[]", "not a JSON object"),
    ],
)
def test_what_is_not_understood(key: str, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        read(key, text)
    assert why in str(caught.value)


@pytest.mark.parametrize("class_name", ["LSE", "BE"])
def test_no_burst_without_a_quota(class_name: str) -> None:
    with pytest.raises(ValueError, match="cpu_burst_policy: static has no effect"):
        read(CPU, '{"cpu_burst_policy": "static"}', class_name)
