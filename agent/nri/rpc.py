"""One connection to the runtime: its requests are served, ours are answered. Source: ttrpc v1.2."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from google.protobuf.message import DecodeError, Message

from agent.nri import messages_pb2 as pb
from agent.nri.frames import DATA, PLUGIN, REQUEST, RESPONSE, RUNTIME, Decoder, FrameError, encode
from agent.nri.frames import Message as Frame

log = logging.getLogger(__name__)

INVALID_ARGUMENT: Final = 3
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"
_AT_ONCE: Final = 1 << 16


class NriError(Exception):
    """The runtime refused, did not answer, or is not connected; the message says what was asked of it."""


class Refusal(Exception):  # noqa: N818 - it is an answer
    """What a request is answered with instead of a payload: a code of gRPC's and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


Serve = Callable[[pb.Request], Awaitable[bytes]]
"""Answers a request of the runtime. Refusal: the answer is that status."""


class Connection:
    """Both directions over one socket. `serve` runs as a task a request; it is never cancelled."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, serve: Serve) -> None:
        self._reader = reader
        self._writer = writer
        self._serve = serve
        self._calls: dict[int, asyncio.Future[pb.Response]] = {}
        self._next = 1
        self._served: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Read until the runtime closes the connection. FrameError, OSError: it cannot be read any more."""
        decoder = Decoder()
        try:
            while data := await self._reader.read(_AT_ONCE):
                for frame in decoder.feed(data):
                    self._received(frame)
        finally:
            self._writer.close()
            for call in self._calls.values():
                if not call.done():
                    call.set_exception(NriError("the runtime closed the connection"))

    async def call(self, method: str, request: Message, seconds: float) -> bytes:
        """Call a method of the runtime's service; answer its payload. NriError."""
        stream, self._next = self._next, self._next + 2  # a client's are odd
        answer: asyncio.Future[pb.Response] = asyncio.get_running_loop().create_future()
        self._calls[stream] = answer
        body = pb.Request(
            service=_SERVICE,
            method=method,
            payload=request.SerializeToString(),
            timeout_nano=int(seconds * 1e9),
        )
        try:
            self._send(RUNTIME, stream, REQUEST, body)
            async with asyncio.timeout(seconds):
                await self._writer.drain()
                response = await answer
        except TimeoutError:
            raise NriError(f"{method}: the runtime did not answer within {seconds:g} s") from None
        except (OSError, FrameError) as error:
            raise NriError(f"{method}: {error}") from None
        finally:
            del self._calls[stream]
        if response.status.code:
            raise NriError(f"{method}: code {response.status.code}: {response.status.message}")
        return response.payload

    def _received(self, frame: Frame) -> None:
        if frame.connection == RUNTIME:
            self._answered(frame)
        elif frame.type == REQUEST:
            task = asyncio.get_running_loop().create_task(self._answer(frame))
            self._served.add(task)
            task.add_done_callback(self._served.discard)
        elif frame.type == DATA:
            self._refuse(frame.stream, Refusal(INVALID_ARGUMENT, "no method here takes a stream of data"))

    def _answered(self, frame: Frame) -> None:
        call = self._calls.get(frame.stream)
        if call is None or call.done():
            return  # it took too long and nobody waits any more
        if frame.type == RESPONSE and frame.body is not None:
            try:
                call.set_result(pb.Response.FromString(frame.body))
            except DecodeError as error:
                call.set_exception(NriError(f"the runtime's answer cannot be read: {error}"))
        else:
            call.set_exception(NriError(f"the runtime's answer is no response: type {frame.type}"))

    async def _answer(self, frame: Frame) -> None:
        try:
            payload = await self._serve(_request(frame))
            self._send(PLUGIN, frame.stream, RESPONSE, pb.Response(status=pb.Status(), payload=payload))
            await self._writer.drain()
        except Refusal as refusal:
            self._refuse(frame.stream, refusal)
        except FrameError as error:
            self._refuse(frame.stream, Refusal(RESOURCE_EXHAUSTED, str(error)))
        except OSError as error:
            log.info("nri answer lost stream=%d error=%r", frame.stream, str(error))

    def _refuse(self, stream: int, refusal: Refusal) -> None:
        status = pb.Status(code=refusal.code, message=str(refusal))
        self._send(PLUGIN, stream, RESPONSE, pb.Response(status=status))

    def _send(self, connection: int, stream: int, kind: int, message: Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(connection, stream, kind, message.SerializeToString()))


def _request(frame: Frame) -> pb.Request:
    """Raises Refusal."""
    if frame.body is None:
        raise Refusal(RESOURCE_EXHAUSTED, "longer than a message may be")
    if frame.stream % 2 == 0:
        raise Refusal(INVALID_ARGUMENT, f"stream {frame.stream}: a client's streams are odd")
    try:
        return pb.Request.FromString(frame.body)
    except DecodeError:
        raise Refusal(INVALID_ARGUMENT, "not a request") from None
