"""A pod's traffic in annotations: Kubernetes' own, which CNI plugins read, Koordinator's, and terway-qos'.

All amounts are bits a second there. terway-qos takes Kubernetes' for bytes, eight times too much; here it is
what Kubernetes says it is.
Source: k8s.io/kubernetes pkg/util/bandwidth; koordinator-sh/koordinator pkg/koordlet/runtimehooks/hooks, tc
and terwayqos; AliyunContainerService/terway-qos pkg/k8s/pods.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qos import keys
from qos.bandwidth import Band, BytesPerSecond, Limits, from_quantity
from qos.pods.peers.asked import Asked, AskedReader
from qos.pods.peers.reading import Fields
from qos.promises import Unsupported

TERWAY_BANDS: Final = {"guaranteed": Band.L0, "burstable": Band.L1, "best-effort": Band.L2}

_A_FLOOR: Final = "a floor is a policy's (spec.floor.network): it is held before the pod exists"
_BY_CLASS: Final = "the pod's class decides its band, or k8s.aliyun.com/qos-class"


def _egress(text: str) -> Asked:
    return Asked(limits=Limits(egress=from_quantity(keys.EGRESS_BANDWIDTH_ANNOTATION, text)))


def _ingress(text: str) -> Asked:
    return Asked(limits=Limits(ingress=from_quantity(keys.INGRESS_BANDWIDTH_ANNOTATION, text)))


def _terway(text: str) -> Asked:
    if text not in TERWAY_BANDS:
        raise ValueError(f"is none of {', '.join(TERWAY_BANDS)}")
    return Asked(TERWAY_BANDS[text])


def _koordinator(text: str) -> Asked:
    """networkQOS: limits. An empty amount is as if it were absent, which Koordinator takes for an error."""
    fields = Fields(text)
    limits = Limits(
        egress=_amount("egressLimit", fields.text("egressLimit")),
        ingress=_amount("ingressLimit", fields.text("ingressLimit")),
    )
    not_done = {"egressRequest": _A_FLOOR, "ingressRequest": _A_FLOOR, "qosClass": _BY_CLASS}
    unsupported = [
        Unsupported(f"networkQOS.{name}", "", why) for name, why in not_done.items() if fields.text(name)
    ]
    return Asked(limits=limits, unsupported=tuple(unsupported), unknown=fields.rest())


def _amount(name: str, text: str) -> BytesPerSecond | None:
    return from_quantity(name, text) if text else None


ANNOTATIONS: Final[Mapping[str, AskedReader]] = {
    keys.KOORDINATOR_NETWORK_ANNOTATION: _koordinator,
    keys.EGRESS_BANDWIDTH_ANNOTATION: _egress,
    keys.INGRESS_BANDWIDTH_ANNOTATION: _ingress,
    keys.TERWAY_CLASS_ANNOTATION: _terway,
}
"""The reader of each annotation."""
