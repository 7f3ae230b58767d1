"""The HTTP side of admission webhooks: an AdmissionReview is posted to a path, another answers it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from adapters.api import APIError, Unreachable
from adapters.kubernetes.wire import DecodeError

log = logging.getLogger(__name__)

_MOST_BYTES: Final = 20 << 20
"""The API server takes objects of 3 MB, and writes some characters, such as <, by six."""

Answer = Callable[[bytes], "bytes | Awaitable[bytes]"]
"""The AdmissionReview that answers one. msgspec.MsgspecError, DecodeError: it cannot be read; APIError,
Unreachable: the API server did not say what it takes to decide.
"""


def application(answers: Mapping[str, Answer]) -> Any:
    """The ASGI application: POST PATH. What cannot be answered gets an answer that is none: then the
    webhook's failurePolicy decides.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = bytearray()
        while len(body) <= _MOST_BYTES:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        answer = answers.get(scope["path"]) if scope["method"] == "POST" else None
        status, said = (404, b"") if answer is None else await _ask(answer, bytes(body))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(said)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": said})

    return app


async def _ask(answer: Answer, body: bytes) -> tuple[int, bytes]:
    try:
        said = answer(body)
        return 200, await said if inspect.isawaitable(said) else said
    except (msgspec.MsgspecError, DecodeError) as error:
        return 400, str(error).encode()
    except (APIError, Unreachable, TimeoutError) as error:
        log.warning("review not answered error=%s", error)
        return 503, str(error).encode()
