"""The verbs' HTTP server, on connections of our own; everything else is FastAPI's (extender.rest)."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final

from adapters.serving.addresses import listen
from adapters.serving.readiness import Readiness
from adapters.serving.tls import mutual
from extender import verbs
from extender.binder import Binder
from extender.config import ExtenderConfig, TLSFiles
from extender.connection import VerbsServer
from extender.metrics import Metrics
from extender.verbs import Reply
from ledger.ledger import Ledger
from qos.cluster.objects import Pod

Sockets = tuple[socket.socket, socket.socket]
"""Listening: the verbs' and the rest's."""

_ELSEWHERE: Final = b'{"Error":"POST a verb of kube-scheduler"}'


class VerbsApp:
    """POST /filter /prioritize /preempt /bind. No middleware, no routing beyond one dictionary.

    `apart`: whether a pod is in no account (a placeholder).
    """

    def __init__(
        self,
        ledger: Ledger,
        binder: Binder,
        readiness: Readiness,
        metrics: Metrics,
        clock: Callable[[], float],
        apart: Callable[[Pod], bool] = lambda _pod: False,
    ) -> None:
        self._ledger = ledger
        self._apart = apart
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
        reply = verbs.filter(body, self._ledger, self._clock(), self._apart)
        if reply.refused or reply.withheld:
            self._metrics.refused(reply.refused, reply.withheld)
        return reply


def verbs_server(app: VerbsApp, tls: TLSFiles | None = None) -> VerbsServer:
    """The verbs' server, with mutual TLS where `tls` is given."""
    context = None if tls is None else mutual(tls.cert_file, tls.key_file, tls.client_ca_file)
    return VerbsServer(app.answer, context)


def open_sockets(config: ExtenderConfig) -> Sockets:
    """The sockets of the verbs and of the rest."""
    verbs_socket = listen(config.verbs_address)
    try:
        return verbs_socket, listen(config.address)
    except OSError:
        verbs_socket.close()
        raise
