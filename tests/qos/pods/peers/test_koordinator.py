"""Koordinator's annotations, one by one: what each becomes, what it cannot become here, what is refused."""

from __future__ import annotations

import pytest

from qos import keys
from qos.classes import promises_of
from qos.pods.containers import BURSTABLE
from qos.pods.peers.koordinator import ANNOTATIONS
from qos.pods.peers.reading import Note, Said

MEMORY = keys.KOORDINATOR_MEMORY_ANNOTATION
CPU = keys.KOORDINATOR_CPU_ANNOTATION
BURST = keys.KOORDINATOR_BURST_ANNOTATION
DISK = keys.KOORDINATOR_DISK_ANNOTATION
OOM = keys.KOORDINATOR_OOM_ANNOTATION
OOM_SPEC = keys.KOORDINATOR_OOM_SPEC_ANNOTATION


def read(key: str, text: str, class_name: str = "LS") -> Said:
    return ANNOTATIONS[key](Note(text, class_name, BURSTABLE, promises_of(class_name)))


NO_MEMORY_QOS = {
    "memory_request_min_percent": 0,
    "memory_request_low_percent": 0,
    "memory_high_percent": 0,
    "memory_oom_group": None,
}


@pytest.mark.parametrize(
    ("key", "text", "overrides", "unsupported"),
    [
        (MEMORY, "{}", {}, []),
        (MEMORY, '{"policy": "default"}', {}, []),
        (MEMORY, '{"policy": ""}', {}, []),
        (MEMORY, '{"minLimitPercent": null}', {}, []),
        (
            MEMORY,
            '{"policy": "auto"}',
            {},
            ["memory.wmark_ratio", "memory.wmark_scale_factor", "memory.wmark_min_adj"],
        ),
        (MEMORY, '{"policy": "none", "minLimitPercent": 100, "wmarkRatio": 95}', NO_MEMORY_QOS, []),
        (
            MEMORY,
            '{"minLimitPercent": 50, "lowLimitPercent": 80, "throttlingPercent": 90, "oomKillGroup": 1}',
            {
                "memory_request_min_percent": 50,
                "memory_request_low_percent": 80,
                "memory_high_percent": 90,
                "memory_oom_group": True,
            },
            [],
        ),
        (MEMORY, '{"MINLIMITPERCENT": 7}', {"memory_request_min_percent": 7}, []),
        (MEMORY, '{"wmarkMinAdj": -25, "wmarkRatio": 0}', {}, ["memory.wmark_ratio", "memory.wmark_min_adj"]),
        (
            MEMORY,
            '{"pageCacheLimitEnable": 1, "pageCacheLimitSize": 1048576, "priority": 12, "priorityEnable": 1}',
            {},
            [
                "memory.pagecache_limit.enable",
                "memory.pagecache_limit.size",
                "memory.use_priority_oom",
                "memory.priority",
            ],
        ),
        (CPU, '{"enable": true, "groupIdentity": -1}', {"cpu_idle": True}, ["cpu.bvt_warp_ns"]),
        (CPU, '{"enable": true, "groupIdentity": 2}', {"cpu_idle": False}, ["cpu.bvt_warp_ns"]),
        (CPU, '{"enable": true, "schedIdle": 1}', {"cpu_idle": True}, []),
        (CPU, '{"enable": true, "schedIdle": 0}', {"cpu_idle": False}, []),
        (CPU, '{"groupIdentity": -1}', {"cpu_idle": False}, []),
        (CPU, '{"enable": false, "schedIdle": 1}', {"cpu_idle": False}, []),
        (CPU, '{"enable": true, "coreExpeller": true}', {"cpu_idle": False}, [""]),
        (BURST, '{"policy": "none"}', {"cpu_burst_percent": 0}, []),
        (BURST, '{"policy": "cpuBurstOnly"}', {"cpu_burst_percent": 100}, ["cpu.max.burst"]),
        (BURST, '{"policy": "cpuBurstOnly", "cpuBurstPercent": 60}', {"cpu_burst_percent": 60}, []),
        (BURST, '{"policy": "cpuBurstOnly", "cpuBurstPercent": 100}', {"cpu_burst_percent": 100}, []),
        (
            BURST,
            '{"policy": "auto", "cpuBurstPercent": 200, "cfsQuotaBurstPercent": 300}',
            {"cpu_burst_percent": 100},
            ["cpu.max.burst", "cpu.max"],
        ),
        (BURST, '{"policy": "cfsQuotaBurstOnly"}', {"cpu_burst_percent": 0}, ["cpu.max"]),
        (DISK, '{"blocks": []}', {}, []),
        (
            DISK,
            '{"blocks": [{"name": "sdb", "type": "device"}, {"name": "a", "type": "volumegroup"}]}',
            {},
            ["io.max", "io.max"],
        ),
        (OOM, "-500", {"oom_score_adj": -500}, []),
        (OOM, "+1000", {"oom_score_adj": 1000}, []),
        (OOM, "", {}, []),
        (OOM_SPEC, "", {}, []),
        (OOM_SPEC, '{"a": -500, "b": 200}', {}, []),
    ],
)
def test_what_it_becomes(key: str, text: str, overrides: dict[str, object], unsupported: list[str]) -> None:
    said = read(key, text)
    assert said.overrides == overrides
    assert [one.file for one in said.unsupported] == unsupported
    assert all(one.promise and one.why for one in said.unsupported)
    assert said.unknown == ()


def test_the_scores_of_single_containers() -> None:
    assert read(OOM_SPEC, '{"a": -500, "b": 200}').oom_score_adj == {"a": -500, "b": 200}


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        (MEMORY, "", "not JSON"),
        (MEMORY, "auto", "not JSON"),
        (MEMORY, '"auto"', "not a JSON object"),
        (MEMORY, "[]", "not a JSON object"),
        (MEMORY, "{'policy': 'auto'}", "not JSON"),
        (MEMORY, '{"minLimitPercent": NaN}', "not JSON: NaN is no number"),
        (MEMORY, '{"policy": "Auto"}', 'policy: "Auto" is none of default, none, auto'),
        (MEMORY, '{"policy": []}', "policy: [] is none of default, none, auto"),
        (MEMORY, '{"minLimitPercent": 101}', "minLimitPercent: 101 is no integer from 0 to 100"),
        (MEMORY, '{"minLimitPercent": "50"}', 'minLimitPercent: "50" is no integer'),
        (MEMORY, '{"minLimitPercent": 50.0}', "minLimitPercent: 50.0 is no integer"),
        (MEMORY, '{"oomKillGroup": true}', "oomKillGroup: true is no integer from 0 to 1"),
        (MEMORY, '{"policy": "none", "wmarkMinAdj": -26}', "wmarkMinAdj: -26 is no integer from -25 to 50"),
        (CPU, '{"enable": "true"}', 'enable: "true" is neither true nor false'),
        (CPU, '{"enable": true, "groupIdentity": 3}', "groupIdentity: 3 is no integer from -1 to 2"),
        (BURST, "{}", "names no policy"),
        (BURST, '{"cpuBurstPercent": 200}', "names no policy"),
        (BURST, '{"policy": "on"}', 'policy: "on" is none of none, cpuBurstOnly'),
        (BURST, '{"policy": "auto", "cpuBurstPercent": 10001}', "cpuBurstPercent: 10001 is no integer"),
        (DISK, '{"blocks": {}}', "blocks: {} is no list of objects"),
        (DISK, '{"blocks": [1]}', "blocks: [1] is no list of objects"),
        (DISK, '{"blocks": [{"name": "a", "type": "disk"}]}', 'type: "disk" is none of device'),
        (DISK, '{"blocks": [{"name": 1, "type": "device"}]}', "name: 1 is no text"),
        (DISK, '{"blocks": [{"type": "device"}]}', "blocks: a block has no name"),
        (DISK, '{"blocks": [{"name": "a"}]}', "blocks: a has no type"),
        (OOM, "-1001", 'oom_score_adj: "-1001" is no integer from -1000 to 1000'),
        (OOM, "1e2", "is no integer"),
        (OOM, "+-5", "is no integer"),
        (OOM, "٣", "is no integer"),
        (OOM, "9" * 10_000, "is no integer"),
        (OOM_SPEC, '{"a": "-500"}', 'a: "-500" is no integer from -1000 to 1000'),
        (OOM_SPEC, '{"a": true}', "a: true is no integer"),
        (OOM_SPEC, "[" * 100_000, "nested too deeply"),
        (MEMORY, '{"minLimitPercent": ' + "9" * 10_000 + "}", "not JSON"),
    ],
)
def test_what_is_not_understood(key: str, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        read(key, text)
    assert why in str(caught.value)


@pytest.mark.parametrize("class_name", ["SYSTEM", "LSE", "LSR", "BE"])
def test_cpu_qos_is_heeded_in_class_ls_only(class_name: str) -> None:
    with pytest.raises(ValueError, match="Koordinator heeds it in class LS only"):
        read(CPU, '{"enable": true, "groupIdentity": -1}', class_name)


@pytest.mark.parametrize(
    ("class_name", "why"), [("LSE", "no CPU quota"), ("LSR", "no CPU quota"), ("BE", "idle")]
)
def test_no_burst_without_a_quota(class_name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(BURST, '{"policy": "auto"}', class_name)
    assert read(BURST, '{"policy": "none"}', class_name).overrides == {"cpu_burst_percent": 0}


def test_a_misspelt_field_is_told() -> None:
    said = read(MEMORY, '{"minLimitPercnt": 50, "throttlingPercent": 80}')
    assert said.overrides == {"memory_high_percent": 80}
    assert said.unknown == ("minLimitPercnt",)
