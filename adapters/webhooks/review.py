"""AdmissionReview (admission.k8s.io/v1): what is asked, and the bytes that answer it. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import orjson

_NOTHING: Final = msgspec.Raw(b"null")
_FORBIDDEN: Final = 403


class Request(msgspec.Struct, rename="camel"):
    """What the API server asks about. `object`, `old_object`: raw JSON, null where there is none: the second
    of a creation, the first of a deletion.
    """

    uid: str
    operation: str = ""
    namespace: str = ""
    name: str = ""
    dry_run: bool = False
    object: msgspec.Raw = _NOTHING
    old_object: msgspec.Raw = _NOTHING


class _Review(msgspec.Struct):
    request: Request


_REVIEW = msgspec.json.Decoder(_Review)


def read(body: bytes) -> Request:
    """The request of an AdmissionReview. msgspec.MsgspecError."""
    return _REVIEW.decode(body).request


def allowed(request: Request, patch: Sequence[dict[str, Any]] = ()) -> bytes:
    """Let it pass, changed by a JSON patch where there is one."""
    changed = {"patchType": "JSONPatch", "patch": b64encode(orjson.dumps(patch)).decode()} if patch else {}
    return _answer({"uid": request.uid, "allowed": True, **changed})


def refused(request: Request, message: str) -> bytes:
    """Refuse it; the message is what people see."""
    status = {"code": _FORBIDDEN, "reason": "Forbidden", "message": message}
    return _answer({"uid": request.uid, "allowed": False, "status": status})


def _answer(response: dict[str, Any]) -> bytes:
    return orjson.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    )
