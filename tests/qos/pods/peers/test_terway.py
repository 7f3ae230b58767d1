"""terway-qos' files of single pods: its own form, and the one that Koordinator's agent writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.bandwidth import Band, Limits
from qos.pods.peers.asked import Asked
from qos.pods.peers.terway import per_cgroup_bps_limit, pod_json

UID = "12345678-aaaa-bbbb-cccc-1234567890ab"
OWN = {
    "podName": "web",
    "podNamespace": "shop",
    "podUID": UID,
    "prio": 1,
    "ipv4": "10.0.0.1",
    "ipv6": "",
    "hostNetwork": False,
    "cgroupDir": "",
}


def test_terways_own_form_is_a_list() -> None:
    assert pod_json(json.dumps([OWN])) == ({UID: Asked(Band.L1)}, ())


def test_koordinators_is_an_object_with_limits_in_bytes_a_second() -> None:
    one = {
        "podName": "web",
        "podNamespace": "shop",
        "podUID": UID,
        "prio": 2,
        "cgroupDir": "/sys/fs/cgroup/net_cls/kubepods/pod",
        "qosConfig": {"ingressBandwidth": 1_250_000, "egressBandwidth": 0},
    }
    assert pod_json(json.dumps({UID: one})) == ({UID: Asked(Band.L2, Limits(None, 1_250_000))}, ())


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("x", "pod.json: not JSON"),
        ("3", "pod.json: 3 is no list of pods"),
        ("[3]", "pod.json: pod 0: 3 is no object"),
        ("[{}]", "pod.json: pod 0: has no podUID"),
        (json.dumps([OWN | {"prio": 3}]), "pod.json: pod 0: prio: 3 is no integer from 0 to 2"),
        (json.dumps([OWN | {"qosConfig": 3}]), "pod.json: pod 0: qosConfig: 3 is no object"),
    ],
)
def test_what_is_wrong_in_it_is_said_and_the_rest_read(written: str, why: str) -> None:
    (message,) = pod_json(written).ignored
    assert message.startswith(why)


def test_one_bad_pod_harms_no_other() -> None:
    found = pod_json(json.dumps([3, OWN]))
    assert found.pods.keys() == {UID}
    assert len(found.ignored) == 1


@pytest.mark.parametrize(
    ("line", "limits"),
    [
        (f"/sys/fs/cgroup/net_cls/kubepods/pod{UID} rx_bps=100 tx_bps=200", Limits(200, 100)),
        (
            f"/net_cls/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice tx_bps 7",
            Limits(7, None),
        ),
        (f"/kubepods/pod{UID} tx_bps=0 rx_bps=5", Limits(None, 5)),
    ],
)
def test_a_line_a_cgroup_in_bytes_a_second(line: str, limits: Limits) -> None:
    assert per_cgroup_bps_limit(f"\n{line}\n") == ({UID: Asked(limits=limits)}, ())


@pytest.mark.parametrize("line", ["/kubepods/podx tx_bps=1", f"/kubepods/pod{UID}", f"tx_bps=1 /pod{UID}"])
def test_a_line_without_pod_or_rate_is_said(line: str) -> None:
    found = per_cgroup_bps_limit(line)
    assert not found.pods
    assert found.ignored[0].startswith("per_cgroup_bps_limit: line 1 has not ")


@given(st.integers(1, 2**40), st.integers(1, 2**40))
def test_bytes_stay_bytes(egress: int, ingress: int) -> None:
    line = f"/kubepods/pod{UID} tx_bps={egress} rx_bps={ingress}"
    pod = OWN | {"qosConfig": {"egressBandwidth": egress, "ingressBandwidth": ingress}}
    assert per_cgroup_bps_limit(line).pods[UID].limits == Limits(egress, ingress)
    assert pod_json(json.dumps([pod])).pods[UID].limits == Limits(egress, ingress)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*OWN, "qosConfig", "x"]), inner, max_size=4)
    ),
)


@given(JSON)
def test_whatever_is_written_there_is_an_answer(written: object) -> None:
    pod_json(json.dumps(written))
    per_cgroup_bps_limit(str(written))
