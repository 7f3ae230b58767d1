"""The process's two HTTP servers: the verbs as a bare ASGI application, everything else by FastAPI."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from time import perf_counter
from typing import Any, Final

import uvicorn

from extender import verbs
from extender.binder import Binder
from extender.config import ExtenderConfig, TLSFiles, split_address
from extender.metrics import Metrics
from extender.readiness import Readiness
from ledger.ledger import Ledger

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Sockets = tuple[socket.socket, socket.socket]
"""Listening: the verbs' and the rest's."""

KEEP_ALIVE_SECONDS: Final = 150
"""Above the 90 s that Go keeps idle connections: it does not replay a POST on one that we closed."""
MAX_BODY_BYTES: Final = 256 * 1024 * 1024
"""5,000 full nodes are about 50 MB; what is larger is no scheduler's."""
DRAIN_SECONDS: Final = 20


class BodyTooLargeError(Exception):
    """The body exceeds MAX_BODY_BYTES."""


class VerbsApp:
    """ASGI: POST /filter /prioritize /preempt /bind. No middleware, no routing beyond one dictionary."""

    def __init__(
        self,
        ledger: Ledger,
        binder: Binder,
        readiness: Readiness,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._binder = binder
        self._readiness = readiness
        self._metrics = metrics
        self._clock = clock
        self._decide: dict[str, Callable[[bytes], verbs.Reply]] = {
            "/filter": self._filter,
            "/prioritize": lambda body: verbs.prioritize(body, ledger, clock()),
            "/preempt": lambda body: verbs.preempt(body, ledger, clock()),
            "/bind": verbs.bind,
        }

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """One request."""
        path = scope["path"]
        decide = self._decide.get(path)
        if decide is None or scope["method"] != "POST":
            await _respond(send, 404 if decide is None else 405, b'{"Error":"POST a verb of kube-scheduler"}')
            return
        try:
            body = await _read(receive)
        except BodyTooLargeError:
            await _respond(send, 413, b'{"Error":"the body is too large"}')
            return
        started = perf_counter()
        reply = self._answer(decide, body)
        if reply.attempt is not None:
            error = await self._binder.bind(reply.attempt)
            reply = verbs.bound(error)
        self._metrics.observe(path, perf_counter() - started, reply.status)
        await _respond(send, reply.status, reply.body)

    def _answer(self, decide: Callable[[bytes], verbs.Reply], body: bytes) -> verbs.Reply:
        problem = self._readiness.problem()
        if problem:
            return verbs.not_ready(problem)
        try:
            return decide(body)
        except Exception as error:  # a bug must cost one attempt, not the process
            self._metrics.crashed(error)
            return verbs.crashed(error)

    def _filter(self, body: bytes) -> verbs.Reply:
        reply = verbs.filter(body, self._ledger, self._clock())
        if reply.refused or reply.withheld:
            self._metrics.refused(reply.refused, reply.withheld)
        return reply


async def _read(receive: Receive) -> bytes:
    """The whole body; the usual one arrives in one message."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return body
    parts, size = [body], len(body)
    while message.get("more_body"):
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise BodyTooLargeError
        parts.append(part)
    return b"".join(parts)


async def _respond(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Server(uvicorn.Server):
    """uvicorn's server, without its signal handlers: the program has two servers and stops them itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def server(app: Any, tls: TLSFiles | None = None) -> Server:
    """One server; the verbs' one with mutual TLS where `tls` is given."""
    secured: dict[str, Any] = {}
    if tls is not None:
        secured = {
            "ssl_certfile": tls.cert_file,
            "ssl_keyfile": tls.key_file,
            "ssl_ca_certs": str(tls.client_ca_file),
            "ssl_cert_reqs": ssl.CERT_REQUIRED,
        }
    return Server(
        uvicorn.Config(
            app,
            loop="none",
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            **secured,
        )
    )


def listen(address: str) -> socket.socket:
    """A listening socket; OSError names the address."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from error
    opened.setblocking(False)
    return opened


async def serve_until(
    stop: asyncio.Event, servers: list[tuple[Server, socket.socket]], *, draining: Callable[[], None]
) -> None:
    """Serve all until `stop` is set, then finish the requests under way; `draining` is called in between."""
    running = [asyncio.create_task(one.serve(sockets=[opened])) for one, opened in servers]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    draining()
    for one, _ in servers:
        one.should_exit = True
    await asyncio.gather(*running)


def open_sockets(config: ExtenderConfig) -> Sockets:
    """The sockets of the verbs and of the rest."""
    verbs_socket = listen(config.verbs_address)
    try:
        return verbs_socket, listen(config.address)
    except OSError:
        verbs_socket.close()
        raise
