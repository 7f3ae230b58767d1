"""The admission webhook that gates owners until a placeholder's place is handed over to them.

It fails open: with nobody there owners are not gated, have the priority that the API server has raised them
to, and preempt. While somebody is there they get their own back: who is handed a hold need not preempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import msgspec

from adapters.kubernetes import decode, priorities
from adapters.webhooks import review
from extender.metrics import Metrics
from ledger.ledger import Ledger
from qos.keys import GANG_GATE, HAND_OVER_GATE

log = logging.getLogger(__name__)

PATH: Final = "/gate"


class _Gates(msgspec.Struct, rename="camel"):
    scheduling_gates: list[Any] | None = None


class _Pod(msgspec.Struct):
    spec: _Gates


_POD = msgspec.json.Decoder(_Pod)


class Gate:
    """Decides about one pod. `kept`: whether placeholders keep a policy; `lifts`: whether this program
    would lift gates if it led: its account is complete. One that does not lead gates as well, because it
    leads once nobody else does: owners wait until then, and evict nobody. `gated` is called for each that is.
    """

    def __init__(
        self,
        ledger: Ledger,
        metrics: Metrics,
        *,
        kept: Callable[[str], bool],
        lifts: Callable[[], bool],
        gated: Callable[[], None] = lambda: None,
    ) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._kept = kept
        self._lifts = lifts
        self._gated = gated

    def review(self, body: bytes) -> bytes:
        """The AdmissionReview that answers one. msgspec.MsgspecError, DecodeError."""
        request = review.read(body)
        raw = bytes(request.object)
        return review.allowed(request, [*self._changes(request.namespace, raw)] if self._lifts() else [])

    def _changes(self, namespace: str, raw: bytes) -> Iterator[dict[str, Any]]:
        there = _POD.decode(raw).spec.scheduling_gates or ()
        if {"name": GANG_GATE} in there:
            return  # its gang gives it its place: of two gates each would wait for the other
        own = priorities.own(raw)
        if own is not None:
            yield from priorities.taken_back(own)
        try:
            gated = self._gates(namespace, raw)
        except decode.DecodeError as error:
            log.warning("pod not gated namespace=%s error=%s", namespace, error)
            gated = False
        if gated:
            self._gated()
            gates = [*there, {"name": HAND_OVER_GATE}]
            yield {"op": "add", "path": "/spec/schedulingGates", "value": gates}

    def _gates(self, namespace: str, raw: bytes) -> bool:
        pod = replace(decode.pod(raw), namespace=namespace)  # it is the request that has it
        policy = "" if pod.node_name else self._ledger.policy_of(pod)
        # With every slot filled, too: a predecessor may just be going, and no watch have shown it yet.
        gated = bool(policy) and self._kept(policy) and self._ledger.given(policy) > 0
        self._metrics.reviewed("gated" if gated else "passed")
        return gated
