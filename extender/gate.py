"""The admission webhook that gates owners until a placeholder's place is handed over to them.

It fails open: with nobody there owners are not gated, have the priority that the API server has raised them
to, and preempt. While somebody is there they get their own back: who is handed a hold need not preempt.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import msgspec
import orjson

from adapters.kubernetes import decode, priorities
from extender.metrics import Metrics
from ledger.ledger import Ledger
from qos.keys import HAND_OVER_GATE

log = logging.getLogger(__name__)

PATH: Final = "/gate"
_MOST_BYTES: Final = 20 << 20
"""The API server takes objects of 3 MB, and writes some characters, such as <, by six. Of one that we do not
read it would keep the owner raised.
"""


class _Request(msgspec.Struct):
    uid: str
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw()


class _Review(msgspec.Struct):
    request: _Request


class _Gates(msgspec.Struct, rename="camel"):
    scheduling_gates: list[Any] | None = None


class _Pod(msgspec.Struct):
    spec: _Gates


_REVIEW = msgspec.json.Decoder(_Review)
_POD = msgspec.json.Decoder(_Pod)


class Gate:
    """Decides about one pod. `kept`: whether placeholders keep a policy; `lifts`: whether this program
    would lift gates if it led: its account is complete. One that does not lead gates as well, because it
    leads once nobody else does: owners wait until then, and evict nobody.
    """

    def __init__(
        self,
        ledger: Ledger,
        metrics: Metrics,
        *,
        kept: Callable[[str], bool],
        lifts: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._kept = kept
        self._lifts = lifts

    def review(self, body: bytes) -> bytes:
        """The AdmissionReview that answers one. msgspec.MsgspecError, DecodeError."""
        request = _REVIEW.decode(body).request
        answer: dict[str, Any] = {"uid": request.uid, "allowed": True}
        raw = bytes(request.object)
        patch = [*self._changes(request.namespace, raw)] if self._lifts() else []
        if patch:
            answer |= {"patchType": "JSONPatch", "patch": b64encode(orjson.dumps(patch)).decode()}
        return orjson.dumps(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        )

    def _changes(self, namespace: str, raw: bytes) -> Iterator[dict[str, Any]]:
        own = priorities.own(raw)
        if own is not None:
            yield from priorities.taken_back(own)
        try:
            gated = self._gates(namespace, raw)
        except decode.DecodeError as error:
            log.warning("pod not gated namespace=%s error=%s", namespace, error)
            gated = False
        if gated:
            gates = [*(_POD.decode(raw).spec.scheduling_gates or ()), {"name": HAND_OVER_GATE}]
            yield {"op": "add", "path": "/spec/schedulingGates", "value": gates}

    def _gates(self, namespace: str, raw: bytes) -> bool:
        pod = replace(decode.pod(raw), namespace=namespace)  # it is the request that has it
        policy = "" if pod.node_name else self._ledger.policy_of(pod)
        # With every slot filled, too: a predecessor may just be going, and no watch have shown it yet.
        openings = self._ledger.openings(policy) if policy and self._kept(policy) else None
        gated = openings is not None and openings.desired > 0
        self._metrics.reviewed("gated" if gated else "passed")
        return gated


def application(gate: Gate) -> Any:
    """The ASGI application: POST /gate. Whatever it cannot read it lets pass, by an answer that is none."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = bytearray()
        while len(body) <= _MOST_BYTES:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, answer = 404, b""
        if scope["path"] == PATH and scope["method"] == "POST":
            try:
                status, answer = 200, gate.review(bytes(body))
            except (msgspec.MsgspecError, decode.DecodeError) as error:
                status, answer = 400, str(error).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return app
