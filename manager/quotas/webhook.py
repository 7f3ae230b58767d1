"""The webhook that refuses quotas which break a rule, and pods on parent quotas: its edge to the API server.

Of a quota it is asked by every change, and fails closed: what is wrong stays until somebody finds it, and
who changes quotas sees the error and tries again. It decides by what the API server has at that moment, not
by a watch: the child of a parent that was made a millisecond ago passes. Of pods it is asked by those alone
that name a parent quota, as its watch has it, and fails open: what they use is counted in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final

import msgspec

from adapters import own_certificate
from adapters.api import (
    PODS,
    QUOTAS,
    VALIDATING_WEBHOOKS,
    APIError,
    ClusterAPI,
    NotFound,
    Unreachable,
)
from adapters.kubernetes import quotas
from adapters.kubernetes.decode import DecodeError
from adapters.kubernetes.wire import FullMetadata, key_of, read
from adapters.own_certificate import Certificate
from adapters.serving.server import serve_until, server
from adapters.webhooks import review
from adapters.webhooks.kept_certificate import KeptCertificate
from adapters.webhooks.registration import Registration
from adapters.webhooks.review import Request
from adapters.webhooks.server import application
from adapters.webhooks.settings import WebhookPlace
from manager.quotas import reviews
from manager.quotas.hooks import NAME, POD_PATH, QUOTA_PATH, hooks
from manager.quotas.known import Known, UnderWay
from qos import keys
from qos.cluster.quota import ElasticQuota
from quota.book import Book

log = logging.getLogger(__name__)

CERTIFICATE_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 8.0
"""Less than the webhook's timeout."""
_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"
_LONGEST_LABEL: Final = 63


class _Pod(msgspec.Struct):
    metadata: FullMetadata


_POD: Final = msgspec.json.Decoder(_Pod)


class QuotaWebhook:
    """Its questions, its registration, its server. `secrets`: the namespace of its certificate's Secret.
    `reviewed(resource, outcome)` counts.
    """

    def __init__(
        self,
        api: ClusterAPI,
        place: WebhookPlace,
        secrets: str,
        *,
        reviewed: Callable[[str, str], None],
        skipped: Callable[[str], None],
        stale_after: float,
        clock: Callable[[], float],
    ) -> None:
        self.known = Known(api, skipped=skipped, stale_after=stale_after, clock=clock)
        self.synced = asyncio.Event()
        self._api = api
        self._reviewed = reviewed
        self._skipped = skipped
        self._under_way = UnderWay(clock)
        self._one_at_a_time = asyncio.Lock()
        self._certificate = KeptCertificate(api, secrets, NAME, place.host)
        self._registration = Registration(
            api,
            VALIDATING_WEBHOOKS,
            NAME,
            place,
            self._certificate,
            self.known.parents,
            hooks,
            missed="quotas are not checked",
            clock=clock,
        )
        self.register = self._registration.run_once

    def stale(self, _now: float) -> bool:
        """Never, once it has its certificate: whether the API server answers is seen with each question."""
        return False

    async def serve(self, stop: asyncio.Event, opened: socket.socket) -> None:
        """Until `stop`, once there is the certificate that all replicas have. opened: listens already."""
        with opened:
            own = await self._shared(stop)
            if own is None:
                return
            app = application({QUOTA_PATH: self.quota, POD_PATH: self.pod})
            self.synced.set()
            serving = server(app, own_certificate.context(own)), opened
            await serve_until(stop, [serving], draining=lambda: None)

    async def _shared(self, stop: asyncio.Event) -> Certificate | None:
        while not stop.is_set():
            try:
                return await self._certificate.shared()
            except (APIError, Unreachable) as error:
                log.warning("certificate not there, asked again secret=%s error=%s", NAME, error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), CERTIFICATE_SECONDS)
        return None

    async def quota(self, body: bytes) -> bytes:
        """The answer to a question about an ElasticQuota. APIError, Unreachable, TimeoutError."""
        request = review.read(body)
        async with asyncio.timeout(ANSWER_SECONDS):
            pods = await self._pods_of(reviews.asks_for_pods(request))
            async with self._one_at_a_time:
                problems = await self._decide(request, pods)
        return self._answer(QUOTAS.plural, request, problems)

    async def _decide(self, request: Request, pods: list[str]) -> list[str]:
        stored = await self._stored()
        books = self._under_way.books(stored, f"{request.namespace}/{request.name}")
        problems = reviews.of_quota(request, books, pods)
        if not problems and not request.dry_run:
            self._under_way.note(reviews.change(request))
        return problems

    async def pod(self, body: bytes) -> bytes:
        """The answer to a question about a pod: refused where its quota still is a parent. As `quota`."""
        request, problems = review.read(body), list[str]()
        parent = reviews.parent_of_pod(request, self.known.book())
        if parent is not None and await self._still_parent(parent):
            problems = reviews.of_pod(request, self.known.book())
        return self._answer(PODS.plural, request, problems)

    def _answer(self, resource: str, request: Request, problems: list[str]) -> bytes:
        self._reviewed(resource, "refused" if problems else "allowed")
        return reviews.answer(request, problems)

    async def _still_parent(self, parent: ElasticQuota) -> bool:
        """The watch may be late."""
        try:
            return quotas.quota(await self._api.get(QUOTAS, parent.namespace, parent.name)).is_parent
        except (NotFound, DecodeError):
            return False

    async def _stored(self) -> list[ElasticQuota]:
        found = []
        for raw in (await self._api.list_page(QUOTAS, limit=0)).items:
            try:
                found.append(quotas.quota(raw))
            except DecodeError:
                self._skipped(QUOTAS.plural)
        return found

    async def _pods_of(self, quota: ElasticQuota | None) -> list[str]:
        """Pods of the quota that have not ended. Where many namespaces are bound to it that takes long, and
        must keep no other question waiting.
        """
        if quota is None:
            return []
        book = Book()
        book.change(await self._stored())
        label = f"{keys.QUOTA_NAME_LABEL}={quota.name}"
        found = await self._pods(label=label) if len(quota.name) <= _LONGEST_LABEL else []
        for namespace in {quota.namespace, *quota.namespaces}:
            if book.quota_of((namespace, "")) == quota.key:
                found += await self._pods(namespace=namespace)
        wanted = (one for one in found if book.quota_of(_origin(one)) == quota.key)
        return list(dict.fromkeys(key_of(one) for one in wanted))

    async def _pods(self, *, namespace: str = "", label: str = "") -> list[FullMetadata]:
        found, token = list[FullMetadata](), ""
        while True:
            page = await self._api.list_page(
                PODS, continue_token=token, namespace=namespace, field_selector=_RUNNING, label_selector=label
            )
            found += [read(_POD, "Pod", raw).metadata for raw in page.items]
            token = page.continue_token
            if not token:
                return found


def _origin(pod: FullMetadata) -> tuple[str, str]:
    return pod.namespace, (pod.labels or {}).get(keys.QUOTA_NAME_LABEL, "")
