"""The runtime's side of NRI, played: what connects to it, and what is asked and told there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from agent.nri import messages_pb2 as pb
from agent.nri.frames import PLUGIN, REQUEST, RESPONSE, RUNTIME, Decoder, Message, encode
from agent.nri.plugin import NriPlugin
from tests import waiting
from tests.waiting import SECONDS, eventually

POD = pb.PodSandbox(id="s1", name="web", uid="u1", namespace="shop")
APP = pb.Container(id="c1", pod_sandbox_id="s1", name="app")
BOTH = pb.EventRequest(pod=POD, container=APP)


class Handler:
    """Notes what it is told; `does` says what it answers, or raises, or waits for."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.does: dict[str, Callable[[], Any]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def event(*arguments: Any) -> Any:
            self.told.append((name, *arguments))
            answer = self.does.get(name, lambda: {} if name == "synchronize" else None)()
            return await answer if asyncio.isfuture(answer) else answer

        return event

    def names(self) -> list[str]:
        return [name for name, *_ in self.told]


class Runtime:
    """The runtime's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder, self._ready = Decoder(), list[Message]()
        self._stream = 1
        self.asked: list[pb.UpdateContainersRequest] = []
        self.refuse = False

    async def message(self) -> Message:
        while not self._ready:
            data = await self.reader.read(1000)
            assert data, "the plugin closed the connection"
            self._ready += self._decoder.feed(data)
        return self._ready.pop(0)

    async def registered(self) -> pb.RegisterPluginRequest:
        message = await self.message()
        request = pb.Request.FromString(message.body or b"")
        assert (message.connection, message.type, request.method) == (RUNTIME, REQUEST, "RegisterPlugin")
        self.writer.write(encode(RUNTIME, message.stream, RESPONSE, b""))
        return pb.RegisterPluginRequest.FromString(request.payload)

    async def call(
        self, method: str, request: Any = None, service: str = "nri.pkg.api.v1alpha1.Plugin"
    ) -> tuple[int, bytes]:
        """(status, payload)."""
        stream, self._stream = self._stream, self._stream + 2
        payload = request.SerializeToString() if request is not None else b""
        body = pb.Request(service=service, method=method, payload=payload, timeout_nano=2 * 10**9)
        self.writer.write(encode(PLUGIN, stream, REQUEST, body.SerializeToString()))
        while (message := await self.message()).connection == RUNTIME:
            self.update(message)
        assert (message.stream, message.type) == (stream, RESPONSE)
        response = pb.Response.FromString(message.body or b"")
        return response.status.code, response.payload

    def update(self, message: Message) -> None:
        request = pb.Request.FromString(message.body or b"")
        assert request.method == "UpdateContainers"
        self.asked.append(pb.UpdateContainersRequest.FromString(request.payload))
        status = pb.Status(code=2, message="no such container") if self.refuse else None
        answer = pb.Response(status=status).SerializeToString()
        self.writer.write(encode(RUNTIME, message.stream, RESPONSE, answer))

    async def configured(self, version: str = "v0.12.5", milliseconds: int = 2000) -> int:
        request = pb.ConfigureRequest(
            runtime_name="containerd",
            runtime_version="2.3.5",
            request_timeout=milliseconds,
            nri_version=version,
        )
        _, payload = await self.call("Configure", request)
        return pb.ConfigureResponse.FromString(payload).events

    async def synchronized(self, *parts: pb.SynchronizeRequest) -> list[pb.SynchronizeResponse]:
        calls = [await self.call("Synchronize", part) for part in parts or (pb.SynchronizeRequest(),)]
        assert all(status == 0 for status, _ in calls)
        return [pb.SynchronizeResponse.FromString(payload) for _, payload in calls]


class Rig:
    """A socket where a plugin may connect, and the plugin."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.socket = folder / "nri.sock"
        self.handler = Handler()
        self.registry = CollectorRegistry()
        self.pauses: list[float] = []
        self.plugin = NriPlugin(
            self.socket,
            self.handler,  # type: ignore[arg-type]  # every method, by __getattr__
            lock=folder / "nri.lock",
            registry=self.registry,
            sleep=self.sleep,
            **options,
        )
        self.connections: asyncio.Queue[Runtime] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.001)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        accepted = []
        self.connections = asyncio.Queue()  # the plugin may have come back just before the last one ended

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.append(writer)
            await self.connections.put(Runtime(reader, writer))

        server = await asyncio.start_unix_server(accept, self.socket)
        try:
            yield
        finally:
            server.close()
            for writer in accepted:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
            self.socket.unlink(missing_ok=True)

    async def connected(self, version: str = "v0.12.5", milliseconds: int = 2000) -> Runtime:
        runtime = await self.connections.get()
        await runtime.registered()
        await runtime.configured(version, milliseconds)
        await runtime.synchronized()
        return runtime

    def count(self, event: str, outcome: str) -> float:
        labels = {"event": event, "outcome": outcome}
        return self.registry.get_sample_value("j10ce_agent_nri_requests_total", labels) or 0

    async def until(self, condition: Callable[[], bool]) -> None:
        await eventually(condition)


@contextlib.asynccontextmanager
async def running(folder: Path, **options: Any) -> AsyncIterator[Rig]:
    rig = Rig(folder, **options)
    async with waiting.running(rig.plugin.run()), asyncio.timeout(SECONDS):
        yield rig
