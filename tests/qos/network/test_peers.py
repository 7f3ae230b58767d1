"""Nodes' configurations in other projects' words: every unit crossing, and nothing ignored in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.network.bands import DEFAULT, WHOLE, Amount, Share, divide
from qos.network.peers import with_global_bps_config, with_node_json, with_slo_controller_config
from qos.network.wanted import Band, Direction, Link

TERWAY = """\
hw_tx_bps_max 900000000
hw_rx_bps_max 0
offline_l1_tx_bps_min 100000000
offline_l1_tx_bps_max=200000000
offline_l2_tx_bps_min 100000000
offline_l2_tx_bps_max 300000000
offline_l1_rx_bps_min 0
offline_l1_rx_bps_max 0
"""
QOS = {
    "enable": True,
    "egressRequest": 20,
    "egressLimit": "200M",
    "ingressRequest": "10M",
    "ingressLimit": 50,
}


def koordinator(
    *, classes: object = None, system: object = None, nodes: object = (), labels: dict[str, str] | None = None
) -> Any:
    data = {"resource-qos-config": json.dumps({"clusterStrategy": classes, "nodeStrategies": nodes})}
    if system is not None:
        data["system-config"] = json.dumps({"clusterStrategy": system})
    return with_slo_controller_config(DEFAULT, data, labels or {})


def test_global_bps_config_is_bytes_a_second_and_zero_says_nothing() -> None:
    found, ignored = with_global_bps_config(DEFAULT, TERWAY)
    assert not ignored
    assert (found.total_egress, found.total_ingress) == (900_000_000, 0)
    assert found.egress.share(Band.L1) == Share(Amount(rate=100_000_000), Amount(rate=200_000_000))
    assert found.egress.share(Band.L2) == Share(Amount(rate=100_000_000), Amount(rate=300_000_000))
    assert found.egress.share(Band.L0) == DEFAULT.egress.share(Band.L0)
    assert found.ingress == DEFAULT.ingress
    assert divide(found.egress, 900_000_000).minima[1:] == (100_000_000, 100_000_000)


def test_its_total_stands_for_the_links_speed() -> None:
    found = with_global_bps_config(DEFAULT, TERWAY).configuration
    link = Link(2, "eth0", 117_500_000, 112_500_000)
    assert found.speed(link, Direction.EGRESS) == 900_000_000
    assert found.speed(link, Direction.INGRESS) == 112_500_000


def test_node_json_is_the_same_with_l0() -> None:
    text = json.dumps({"hw_rx_bps_max": 7, "l0_tx_bps_min": 5, "l0_tx_bps_max": 0, "l2_rx_bps_max": 6})
    found, ignored = with_node_json(DEFAULT, text)
    assert not ignored
    assert found.total_ingress == 7
    assert found.egress.share(Band.L0) == Share(Amount(rate=5), WHOLE)
    assert found.ingress.share(Band.L2) == Share(Amount(percent=2), Amount(rate=6))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("offline_l3_tx_bps_min 5", "line 1: 'offline_l3_tx_bps_min 5' is no amount that is known"),
        ("hw_tx_bps_max 10M", "line 1: 'hw_tx_bps_max 10M' is no amount that is known"),
    ],
)
def test_lines_that_are_not_known_are_said(line: str, why: str) -> None:
    assert with_global_bps_config(DEFAULT, line) == (DEFAULT, (f"global_bps_config: {why}",))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "node.json: not a JSON object"),
        ('{"hw_tx_bps_max": "10M"}', 'node.json: hw_tx_bps_max: "10M" is no integer'),
        ('{"hw_tx": 1}', "node.json: hw_tx: is no field of it"),
    ],
)
def test_what_is_wrong_in_node_json_is_said(text: str, why: str) -> None:
    found, (message,) = with_node_json(DEFAULT, text)
    assert found == DEFAULT
    assert message.startswith(why)


def test_koordinators_numbers_are_percents_and_its_texts_bits() -> None:
    found, ignored = koordinator(classes={"lsClass": {"networkQOS": QOS}, "beClass": {"networkQOS": QOS}})
    assert not ignored
    for band in (Band.L0, Band.L2):
        assert found.egress.share(band) == Share(Amount(percent=20), Amount(rate=25_000_000))
        assert found.ingress.share(band) == Share(Amount(rate=1_250_000), Amount(percent=50))
    assert Band.L1 not in found.egress.shares


def test_koordinators_total_is_bits() -> None:
    found, ignored = koordinator(system={"totalNetworkBandwidth": "600M"})
    assert (found.total_egress, found.total_ingress, ignored) == (75_000_000, 75_000_000, ())
    assert koordinator(system={"totalNetworkBandwidth": 1_000_000}).configuration.total_egress == 125_000


def test_the_first_node_strategy_that_selects_the_node_is_laid_over_the_clusters() -> None:
    def of(percent: int) -> dict[str, Any]:
        return {"beClass": {"networkQOS": {"egressLimit": percent}}}

    nodes = [
        {"name": "other", "nodeSelector": {"matchLabels": {"pool": "b"}}, **of(1)},
        {
            "name": "ours",
            "nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]},
            **of(7),
        },
        {"name": "late", "nodeSelector": {"matchLabels": {"pool": "a"}}, **of(9)},
    ]
    classes = {"beClass": {"networkQOS": QOS}}
    for labels, most in (
        ({"pool": "a"}, Amount(7)),
        ({"pool": "b"}, Amount(1)),
        ({}, Amount(rate=25_000_000)),
    ):
        found = koordinator(classes=classes, nodes=nodes, labels=labels).configuration
        assert found.egress.share(Band.L2) == Share(Amount(20), most)


@pytest.mark.parametrize("enable", [False, None])
def test_what_is_not_enabled_says_nothing(enable: bool | None) -> None:
    found = koordinator(classes={"lsClass": {"networkQOS": QOS | {"enable": enable}}, "beClass": None})
    assert found == (DEFAULT, ())


@pytest.mark.parametrize(
    ("classes", "why"),
    [
        (
            {"lsrClass": {"networkQOS": QOS}},
            "resource-qos-config: lsrClass.networkQOS: heeded of lsClass and beClass alone",
        ),
        (
            {"lsClass": {"networkQOS": QOS | {"egressLimit": 101}}},
            "resource-qos-config: lsClass.networkQOS: egressLimit: 101 is no percentage",
        ),
        (
            {"lsClass": {"networkQOS": QOS | {"egressLimit": "50%"}}},
            "resource-qos-config: lsClass.networkQOS: egressLimit: '50%' is not a quantity",
        ),
        (
            {"beClass": {"networkQOS": {"enable": True, "egresLimit": 1}}},
            "resource-qos-config: beClass.networkQOS.egresLimit: is no field of it",
        ),
        ([], "resource-qos-config: clusterStrategy: [] is no object"),
        ({"beClass": False}, "resource-qos-config: beClass.networkQOS: class: false is no object"),
    ],
)
def test_what_koordinator_has_and_is_not_heeded_is_said(classes: object, why: str) -> None:
    found, (message,) = koordinator(classes=classes)
    assert found == DEFAULT
    assert message.startswith(why)


@pytest.mark.parametrize(
    ("total", "why"), [("600m", "'600m' is not a quantity"), ([1], "[1] is no quantity")]
)
def test_a_bad_total_is_said(total: object, why: str) -> None:
    found, (message,) = koordinator(system={"totalNetworkBandwidth": total})
    assert found == DEFAULT
    assert message.startswith(f"system-config: totalNetworkBandwidth: {why}")


@given(st.integers(1000, 2**40), st.integers(1, 2**40))
def test_bits_are_divided_by_eight_once_and_bytes_never(bits: int, size: int) -> None:
    qos = {"enable": True, "egressLimit": str(bits)}
    found = koordinator(classes={"beClass": {"networkQOS": qos}}, system={"totalNetworkBandwidth": str(bits)})
    assert found.configuration.egress.share(Band.L2).maximum == Amount(rate=bits // 8)
    assert found.configuration.total_egress == bits // 8
    terway = with_global_bps_config(DEFAULT, f"hw_tx_bps_max {size}\noffline_l2_tx_bps_max {size}")
    assert terway.configuration.total_egress == size
    assert terway.configuration.egress.share(Band.L2).maximum == Amount(rate=size)


WORDS = [
    *("clusterStrategy", "nodeStrategies", "nodeSelector", "matchLabels", "matchExpressions", "lsClass"),
    *("beClass", "lsrClass", "networkQOS", *QOS, "totalNetworkBandwidth", "hw_tx_bps_max"),
]
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, JSON)
def test_whatever_is_written_there_is_an_answer(classes: object, system: object) -> None:
    text = json.dumps(classes)
    data = {"resource-qos-config": text, "system-config": json.dumps(system)}
    with_slo_controller_config(DEFAULT, data, {"a": "b"})
    with_node_json(DEFAULT, text)
    with_global_bps_config(DEFAULT, text)


@pytest.mark.parametrize("depth", [300, 900, 5000, 100_000])
def test_what_is_nested_too_deeply_is_named(depth: int) -> None:
    deep = '{"a": ' * depth + "1" + "}" * depth
    both = f'{{"clusterStrategy": {deep}, "nodeStrategies": [{{"nodeSelector": {{}}, {deep[1:-1]}}}]}}'
    read = with_slo_controller_config(DEFAULT, {"system-config": both}, {})
    assert read.configuration == DEFAULT
    assert bool(read.ignored) is (depth > 300)
