"""The quotas that a question is decided by: as a watch has them, and with what is under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from adapters.api import QUOTAS, ClusterAPI
from adapters.kubernetes import quotas
from adapters.kubernetes.decode import DecodeError
from adapters.kubernetes.reflector import Reflector
from manager.quotas.hooks import Parents, parents_in
from manager.quotas.reviews import Change
from qos.cluster.quota import ElasticQuota
from quota.book import Book

UNDER_WAY_SECONDS: Final = 2.0
"""For so long a change that was let through may not be stored yet. Others may still refuse it."""


class Known:
    """ElasticQuotas as a watch has them, for questions about pods."""

    def __init__(
        self,
        api: ClusterAPI,
        *,
        skipped: Callable[[str], None],
        stale_after: float,
        clock: Callable[[], float],
    ) -> None:
        self._skipped = skipped
        self._quotas: dict[str, ElasticQuota] = {}
        self._book: Book | None = None
        self._parents = Parents()
        self.watch = Reflector(api, QUOTAS, self._set, self._remove, stale_after=stale_after, clock=clock)

    def book(self) -> Book:
        """All of them; made anew after changes, not with each."""
        if self._book is None:
            self._book = Book()
            self._book.change(self._quotas.values())
            self._parents = parents_in(self._book)
        return self._book

    def parents(self) -> Parents:
        """Whose pods are asked about."""
        self.book()
        return self._parents

    def _set(self, raw: bytes) -> str:
        try:
            one = quotas.quota(raw)
        except DecodeError:
            self._skipped(QUOTAS.plural)
            raise
        self._quotas[one.key] = one
        self._book = None
        return one.key

    def _remove(self, key: str) -> None:
        self._quotas.pop(key, None)
        self._book = None


class UnderWay:
    """Changes that were let through and are not stored yet: of two at once none is let through as if it were
    alone.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changes: dict[str, tuple[Change, float]] = {}

    def note(self, change: Change) -> None:
        """It was let through."""
        self._changes[change.key] = change, self._clock() + UNDER_WAY_SECONDS

    def books(self, stored: Sequence[ElasticQuota], key: str) -> list[Book]:
        """The quotas as they may be now, for a change of the one of this key: as they are stored, and where
        changes of others are under way, with those.
        """
        plain, later = Book(), Book()
        plain.change(stored)
        now, versions = self._clock(), {one.key: one.resource_version for one in stored}
        self._changes = {
            name: (change, until)
            for name, (change, until) in self._changes.items()
            if until > now and versions.get(name, "") == change.before
        }
        others = [change for change, _ in self._changes.values() if change.key != key]
        if not others:
            return [plain]
        then = [change.quota for change in others if change.quota is not None]
        later.change([*stored, *then], [change.key for change in others if change.quota is None])
        return [plain, later]
