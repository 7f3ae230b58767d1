"""Watch streams cut into events, and the API server's Status objects turned into exceptions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Protocol

import msgspec

from adapters.api import APIError, Conflict, Ended, Gone, NotFound, NotTaken, Unreachable, WatchEvent

LONGEST_EVENT: Final = 32 * 1024 * 1024
"""An event with its object; etcd's limit of 1.5 MiB is on the stored form, which JSON can exceed."""
_KINDS: Final[dict[int, type[APIError]]] = {404: NotFound, 409: Conflict, 410: Gone}


class Stream(Protocol):
    """Bytes as they arrive; empty at the end."""

    async def readany(self) -> bytes:
        """What there is, at least one byte."""
        ...


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_BUSY: Final = 429
_TIMEOUT: Final = 504


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


_EVENT = msgspec.json.Decoder(_Event)
_AS_WRITTEN: Final = {
    f'{{"type":"{kind}","object":'.encode(): kind for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
}
"""How the API server begins an event. What follows is the object, which whoever takes it parses anyway."""
_STATUS = msgspec.json.Decoder(_Status)


async def events_of(stream: Stream) -> AsyncIterator[WatchEvent]:
    """The events of a stream of lines. Raises what an ERROR event says; Unreachable for nonsense."""
    async for line in _lines(stream):
        yield _event(line)


def _event(line: bytes) -> WatchEvent:
    start = line.find(b'"object":') + 9
    kind = _AS_WRITTEN.get(line[:start])
    if kind is not None and line.endswith(b"}}"):
        return WatchEvent(kind, line[start:-1])
    try:
        event = _EVENT.decode(line)
    except msgspec.MsgspecError as error:
        raise Unreachable(f"watch: not an event: {error}: {line[:80]!r}") from error
    if event.type == "ERROR":
        raise status_error(0, bytes(event.object), "watch")
    return WatchEvent(event.type, bytes(event.object))


async def _lines(stream: Stream) -> AsyncIterator[bytes]:
    """Whole lines; a last one without its newline was cut off, and is dropped."""
    parts: list[bytes] = []
    size = 0
    while chunk := await stream.readany():
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            whole = b"".join((*parts, line)) if parts else line
            parts, size = [], 0
            if whole:
                yield whole
        if rest:
            parts.append(rest)
            size += len(rest)
        if size > LONGEST_EVENT:
            raise Unreachable(f"watch: an event larger than {LONGEST_EVENT} bytes")


def status_error(code: int, raw: bytes, what: str) -> APIError | Unreachable:
    """The exception for an answer that is not success; `code` 0 takes the Status object's own."""
    try:
        status = _STATUS.decode(raw)
    except msgspec.MsgspecError:
        status = _Status(message=raw[:200].decode(errors="replace"))
    code = code or status.code
    if code >= 500 or code in (0, 429):
        # After a timeout (504) the server may still be at it; without a reason it is a proxy that answers.
        ended = code >= 500 and code != _TIMEOUT and status.reason
        kind = NotTaken if code == _BUSY else Ended if ended else Unreachable
        return kind(f"{what}: {code} {status.reason}: {status.message}")
    return _KINDS.get(code, APIError)(code, status.reason, f"{what}: {status.message}")
