"""The process's two HTTP servers: the verbs on connections of our own, everything else by FastAPI."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from time import perf_counter
from typing import Any, Final, Protocol

import uvicorn

from extender import verbs
from extender.binder import Binder
from extender.config import ExtenderConfig, TLSFiles, split_address
from extender.connection import DRAIN_SECONDS, VerbsServer
from extender.metrics import Metrics
from extender.readiness import Readiness
from extender.verbs import Reply
from ledger.ledger import Ledger

Sockets = tuple[socket.socket, socket.socket]
"""Listening: the verbs' and the rest's."""

_ELSEWHERE: Final = b'{"Error":"POST a verb of kube-scheduler"}'


class VerbsApp:
    """POST /filter /prioritize /preempt /bind. No middleware, no routing beyond one dictionary."""

    def __init__(
        self,
        ledger: Ledger,
        binder: Binder,
        readiness: Readiness,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._readiness = readiness
        self._metrics = metrics
        self._clock = clock
        self._verbs: dict[str, Callable[[bytes], Reply | Awaitable[Reply]]] = {
            "/filter": self._filter,
            "/prioritize": lambda body: verbs.prioritize(body, ledger, clock()),
            "/preempt": lambda body: verbs.preempt(body, ledger, clock()),
            "/bind": lambda body: verbs.bind(body, binder.bind),
        }

    def answer(self, method: str, path: str, body: bytes) -> Reply | Awaitable[Reply]:
        """The reply to one request: a decision at once, bind's when its outcome is known."""
        verb = self._verbs.get(path)
        if verb is None or method != "POST":
            return Reply(404 if verb is None else 405, _ELSEWHERE)
        started = perf_counter()
        problem = self._readiness.problem()
        try:
            found = verbs.not_ready(problem) if problem else verb(body)
        except Exception as error:  # a bug must cost one attempt, not the process
            found = self._crashed(error)
        if not isinstance(found, Reply):
            return self._awaited(found, path, started)
        self._metrics.observe(path, perf_counter() - started, found.status)
        return found

    async def ask(self, path: str, body: bytes) -> Reply:
        """The reply to a POST."""
        found = self.answer("POST", path, body)
        return found if isinstance(found, Reply) else await found

    async def _awaited(self, found: Awaitable[Reply], path: str, started: float) -> Reply:
        try:
            reply = await found
        except Exception as error:  # likewise
            reply = self._crashed(error)
        self._metrics.observe(path, perf_counter() - started, reply.status)
        return reply

    def _crashed(self, error: Exception) -> Reply:
        self._metrics.crashed(error)
        return verbs.crashed(error)

    def _filter(self, body: bytes) -> Reply:
        reply = verbs.filter(body, self._ledger, self._clock())
        if reply.refused or reply.withheld:
            self._metrics.refused(reply.refused, reply.withheld)
        return reply


class Server(uvicorn.Server):
    """uvicorn's server, without its signal handlers: the program has two servers and stops them itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    def stop(self) -> None:
        """Accept no more, and end once what is under way is answered."""
        self.should_exit = True


class Serving(Protocol):
    """A server that serve_until can run."""

    def stop(self) -> None:
        """Accept no more."""
        ...

    async def serve(self, sockets: list[socket.socket]) -> None:
        """Until stop(), and what was under way then is answered."""
        ...


def server(app: Any) -> Server:
    """A server of an ASGI application: of everything but the verbs."""
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
            timeout_graceful_shutdown=int(DRAIN_SECONDS),
        )
    )


def verbs_server(app: VerbsApp, tls: TLSFiles | None = None) -> VerbsServer:
    """The verbs' server, with mutual TLS where `tls` is given."""
    return VerbsServer(app.answer, None if tls is None else _mutual(tls))


def _mutual(tls: TLSFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.cert_file, tls.key_file)
    context.load_verify_locations(tls.client_ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


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
    stop: asyncio.Event, servers: Sequence[tuple[Serving, socket.socket]], *, draining: Callable[[], None]
) -> None:
    """Serve all until `stop` is set, then finish the requests under way; `draining` is called in between."""
    running = [asyncio.create_task(one.serve([opened])) for one, opened in servers]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    draining()
    for one, _ in servers:
        one.stop()
    await asyncio.gather(*running)


def open_sockets(config: ExtenderConfig) -> Sockets:
    """The sockets of the verbs and of the rest."""
    verbs_socket = listen(config.verbs_address)
    try:
        return verbs_socket, listen(config.address)
    except OSError:
        verbs_socket.close()
        raise
