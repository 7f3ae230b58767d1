"""Annotations that say something of a pod's traffic, one by one."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos import keys
from qos.bandwidth import Band, Limits
from qos.pods.peers.asked import Asked
from qos.pods.peers.bandwidth import ANNOTATIONS

EGRESS = keys.EGRESS_BANDWIDTH_ANNOTATION
INGRESS = keys.INGRESS_BANDWIDTH_ANNOTATION
KOORDINATOR = keys.KOORDINATOR_NETWORK_ANNOTATION
TERWAY = keys.TERWAY_CLASS_ANNOTATION


@pytest.mark.parametrize(
    ("key", "text", "asked"),
    [
        (EGRESS, "10M", Asked(limits=Limits(egress=1_250_000))),
        (INGRESS, "1G", Asked(limits=Limits(ingress=125_000_000))),
        (TERWAY, "guaranteed", Asked(Band.L0)),
        (TERWAY, "burstable", Asked(Band.L1)),
        (TERWAY, "best-effort", Asked(Band.L2)),
        (
            KOORDINATOR,
            '{"IngressLimit": "10M", "EgressLimit": "20M"}',
            Asked(limits=Limits(egress=2_500_000, ingress=1_250_000)),
        ),
        (KOORDINATOR, '{"egressLimit": "20M"}', Asked(limits=Limits(egress=2_500_000))),
        (KOORDINATOR, '{"egressLimit": "20M", "ingressLimit": ""}', Asked(limits=Limits(egress=2_500_000))),
        (KOORDINATOR, "{}", Asked()),
    ],
)
def test_what_it_asks(key: str, text: str, asked: Asked) -> None:
    assert ANNOTATIONS[key](text) == asked


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        (EGRESS, "100m", "kubernetes.io/egress-bandwidth: '100m' is not a quantity: less than 1k bits"),
        (INGRESS, "fast", "kubernetes.io/ingress-bandwidth: 'fast' is not a quantity"),
        (TERWAY, "Guaranteed", "is none of guaranteed, burstable, best-effort"),
        (KOORDINATOR, "10M", "not JSON"),
        (KOORDINATOR, '{"egressLimit": 50}', "egressLimit: 50 is no text"),
        (KOORDINATOR, '{"egressLimit": "50%"}', "egressLimit: '50%' is not a quantity"),
    ],
)
def test_what_cannot_be_understood(key: str, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        ANNOTATIONS[key](text)


def test_a_pods_author_cannot_promise_it_a_floor() -> None:
    asked = ANNOTATIONS[KOORDINATOR]('{"egressRequest": "1G", "QoSClass": "LS", "burst": "1"}')
    assert asked.limits == Limits()
    assert [one.promise for one in asked.unsupported] == ["networkQOS.egressRequest", "networkQOS.qosClass"]
    assert asked.unknown == ("burst",)


@given(st.integers(1000, 2**47))
def test_no_crossing_of_units_is_wrong_by_eight(bits: int) -> None:
    text = str(bits)
    networkqos = json.dumps({"egressLimit": text, "ingressLimit": text})
    limits = ANNOTATIONS[KOORDINATOR](networkqos).limits
    egress, ingress = ANNOTATIONS[EGRESS](text).limits.egress, ANNOTATIONS[INGRESS](text).limits.ingress
    assert egress == ingress == limits.egress == limits.ingress == bits // 8
