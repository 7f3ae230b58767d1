"""NRI's two layers of framing, as pure functions of bytes.

Outer: 8 bytes, big endian: which of two connections (PLUGIN: the runtime calls us; RUNTIME: we call it) and
the payload's length. Inner, a stream in each: ttrpc, 10 bytes: length, stream, type, flags; then protobuf.
Neither layer's frames end where the other's do, nor where a read ends.

Source: github.com/containerd/nri v0.12 (pkg/net/multiplex), github.com/containerd/ttrpc v1.2 (PROTOCOL.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

PLUGIN: Final = 1
RUNTIME: Final = 2

REQUEST: Final = 1
RESPONSE: Final = 2
DATA: Final = 3

LONGEST: Final = 4 << 20
"""The most bytes that one ttrpc message may have."""

_OUTER: Final = struct.Struct(">II")
_INNER: Final = struct.Struct(">IIBB")
_LONGEST_OUTER: Final = _INNER.size + LONGEST
_FIRST: Final = 4096


class FrameError(Exception):
    """Bytes that are no frame: nothing that follows on this connection can be understood."""


class Message(NamedTuple):
    """One ttrpc message: on which of the two connections, its stream, type and flags, and its body.

    `body` is None where the message was longer than LONGEST: it was skipped, as the protocol has it.
    """

    connection: int
    stream: int
    type: int
    flags: int
    body: bytes | None


def encode(connection: int, stream: int, kind: int, body: bytes) -> bytes:
    """A message as it goes over the socket. FrameError: longer than LONGEST.

    The runtime reads a connection's frames through a buffer of 4096 bytes and gives the connection up
    (ENOMEM) when a frame does not fit into what it asks for. What it asks for is 4096 bytes while it waits
    for a header, and all the rest afterwards: so at most two frames, cut there.
    """
    if len(body) > LONGEST:
        raise FrameError(f"a message of {len(body)} bytes; at most {LONGEST} may be sent")
    inner = _INNER.pack(len(body), stream, kind, 0) + body
    first, rest = inner[:_FIRST], inner[_FIRST:]
    framed = _OUTER.pack(connection, len(first)) + first
    return framed + _OUTER.pack(connection, len(rest)) + rest if rest else framed


class Decoder:
    """Collects what is read, in whatever pieces, into messages."""

    def __init__(self) -> None:
        self._outer = bytearray()
        self._inner: dict[int, _Stream] = {PLUGIN: _Stream(PLUGIN), RUNTIME: _Stream(RUNTIME)}

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete with these bytes. FrameError: these bytes are no frames."""
        self._outer += data
        while len(self._outer) >= _OUTER.size:
            connection, length = _OUTER.unpack_from(self._outer)
            if length > _LONGEST_OUTER:
                raise FrameError(f"a frame of {length} bytes on connection {connection}")
            if len(self._outer) < _OUTER.size + length:
                return
            payload = bytes(self._outer[_OUTER.size : _OUTER.size + length])
            del self._outer[: _OUTER.size + length]
            if connection in self._inner:  # others may be used one day: they are not for us
                yield from self._inner[connection].feed(payload)


class _Stream:
    """The ttrpc messages of one connection."""

    def __init__(self, connection: int) -> None:
        self._connection = connection
        self._bytes = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            data = data[passed:]
        self._bytes += data
        while len(self._bytes) >= _INNER.size:
            length, stream, kind, flags = _INNER.unpack_from(self._bytes)
            end = _INNER.size + length
            if length > LONGEST:
                self._skip = max(0, end - len(self._bytes))
                del self._bytes[:end]
                yield Message(self._connection, stream, kind, flags, None)
                continue
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[_INNER.size : end])
            del self._bytes[:end]
            yield Message(self._connection, stream, kind, flags, body)
