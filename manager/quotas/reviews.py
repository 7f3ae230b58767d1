"""What an AdmissionReview of an ElasticQuota or a pod is answered. Pure: no clock, no API server.

The rules are quota.checks'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from adapters.kubernetes import decode, quotas
from adapters.kubernetes.decode import DecodeError
from adapters.webhooks import review
from adapters.webhooks.review import Request
from qos.cluster.objects import Pod
from qos.cluster.quota import BUILT_IN, ElasticQuota
from quota import checks
from quota.account import origin_of
from quota.book import Book

CREATE: Final = "CREATE"
DELETE: Final = "DELETE"


class Change(NamedTuple):
    """A quota's key, its resourceVersion before ("": it was not there), and what it becomes; None: gone."""

    key: str
    before: str
    quota: ElasticQuota | None


def asks_for_pods(request: Request) -> ElasticQuota | None:
    """The quota, where the answer depends on the pods that it has; None: it does not."""
    old = _old(request)
    if old is None or old.name in BUILT_IN:
        return None
    if request.operation == DELETE:
        return old
    try:
        new = quotas.quota(bytes(request.object))
    except DecodeError:
        return None
    return old if new.is_parent and not old.is_parent else None


def of_quota(request: Request, books: Sequence[Book], pods: Sequence[str] = ()) -> list[str]:
    """Why it is refused; nothing: it is not. books: the quotas as they may be now, each before this change;
    what any of them forbids is refused, and told once. pods: those that asks_for_pods wants, namespace/name.
    """
    try:
        found = [one for book in books for one in _found(request, book, pods)]
    except DecodeError as error:
        return [str(error)]
    return list(dict.fromkeys(found))


def _found(request: Request, book: Book, pods: Sequence[str]) -> list[str]:
    old = _old(request)
    if request.operation == DELETE:
        return [] if old is None else checks.of_deletion(book, old, pods)
    return checks.of_change(book, quotas.quota(bytes(request.object)), old, pods)


def change(request: Request) -> Change:
    """What it does. DecodeError."""
    old = _old(request)
    before = "" if old is None else old.resource_version
    if request.operation == DELETE:
        return Change("" if old is None else old.key, before, None)
    new = quotas.quota(bytes(request.object))
    return Change(new.key, before, new)


def _old(request: Request) -> ElasticQuota | None:
    """What it was; of one that cannot be read, its name."""
    if request.operation == CREATE:
        return None
    try:
        return quotas.quota(bytes(request.old_object))
    except DecodeError:
        return ElasticQuota(request.namespace, request.name)


def parent_of_pod(request: Request, book: Book) -> ElasticQuota | None:
    """The quota that a pod would be of, where that one is a parent, as far as is known. DecodeError."""
    namespace, name = origin_of(_pod(request))
    quota = book.get(book.quota_of((namespace, name)))
    return quota if quota is not None and quota.is_parent and quota.name not in BUILT_IN else None


def of_pod(request: Request, book: Book) -> list[str]:
    """Why a pod is refused. DecodeError."""
    return checks.of_pod(book, _pod(request))


def _pod(request: Request) -> Pod:
    return replace(decode.pod(bytes(request.object)), namespace=request.namespace)


def answer(request: Request, problems: Sequence[str]) -> bytes:
    """The AdmissionReview that refuses for these reasons, or lets it pass where there are none."""
    return review.refused(request, "; ".join(problems)) if problems else review.allowed(request)
