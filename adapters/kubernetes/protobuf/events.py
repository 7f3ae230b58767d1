"""Watch streams in protobuf cut into events, and the envelope that each object comes in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

import orjson
from google.protobuf.message import DecodeError as ProtobufError

from adapters.api import Unreachable, WatchEvent
from adapters.kubernetes.protobuf import messages_pb2 as pb
from adapters.kubernetes.watching import LONGEST_EVENT, Stream, status_error

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
ONLY: Final = f"{CONTENT_TYPE};stream=watch"
"""What to accept where JSON will not do."""
ACCEPT: Final = f"{ONLY}, application/json;q=0.5"
"""A server that has no protobuf for a resource answers in JSON."""
_MAGIC: Final = b"k8s\x00"
"""How an object's envelope begins; runtime.Unknown follows (k8s.io/apimachinery, serializer/protobuf)."""
_LENGTH: Final = 4


async def events_of(stream: Stream, as_json: Callable[[bytes], bytes]) -> AsyncIterator[WatchEvent]:
    """The events of a stream; `as_json` gives an object's JSON.

    Raises what an ERROR event says; Unreachable for nonsense; DecodeError for an object that cannot be read.
    """
    async for message in messages(stream):
        yield _event(message, as_json)


async def messages(stream: Stream) -> AsyncIterator[bytes]:
    """A stream's messages, each of which has its length before it. Unreachable for one that is too long.

    One that comes in many parts is put together once, when all of it is there.
    """
    parts: list[bytes] = []
    size, wanted = 0, _LENGTH
    while chunk := await stream.readany():
        parts.append(chunk)
        size += len(chunk)
        if size < wanted:
            continue
        data, at, wanted = b"".join(parts), 0, _LENGTH
        while (begin := at + _LENGTH) <= len(data):
            end = begin + int.from_bytes(data[at:begin])
            if end - begin > LONGEST_EVENT:
                raise Unreachable(f"watch: an event larger than {LONGEST_EVENT} bytes")
            if end > len(data):
                wanted = end - at
                break
            yield data[begin:end]
            at = end
        parts, size = [data[at:]], len(data) - at


def status_json(raw: bytes) -> bytes:
    """A Status as JSON, whatever it is written in: who asks for protobuf is refused in protobuf."""
    try:
        said = pb.Status.FromString(_content(raw))
    except ProtobufError:
        return raw
    return orjson.dumps({"code": said.code, "reason": said.reason, "message": said.message})


def _event(message: bytes, as_json: Callable[[bytes], bytes]) -> WatchEvent:
    try:
        event = pb.WatchEvent.FromString(message)
        if event.type == "ERROR":
            raise status_error(0, status_json(event.object.raw), "watch")
        return WatchEvent(event.type, as_json(_content(event.object.raw)))
    except ProtobufError as error:
        raise Unreachable(f"watch: not an event: {error}: {message[:80]!r}") from error


def _content(envelope: bytes) -> bytes:
    """The object's own message. ProtobufError."""
    if not envelope.startswith(_MAGIC):
        raise ProtobufError("no object of Kubernetes")
    raw: bytes = pb.Unknown.FromString(envelope[len(_MAGIC) :]).raw
    return raw
