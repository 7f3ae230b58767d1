"""Whether floors are kept: judged by when each part that keeps them last finished its round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

LASTING_SECONDS: Final = 30.0
"""Seconds; a problem that is over sooner is not reported: a restart, one pass that failed."""
LATE_PASS_SECONDS: Final = 420.0
"""A pass is made every 300 s, whatever happens."""
LATE_CHECKS: Final = 3.0
"""The number of intervals after which a full check is late."""


class Passes(Protocol):
    """The reconciler."""

    passes: int

    def problem(self) -> str:
        """The problem with its last pass, "" for none."""
        ...


class Checks(Protocol):
    """The watch for drift. checked_at: the end of its last full check, on our clock."""

    checked_at: float


class Readiness:
    """Asked every few seconds. clock: monotonic; check_seconds: between two full checks."""

    def __init__(
        self, passes: Passes, checks: Checks, check_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._passes, self._checks, self._clock = passes, checks, clock
        self._late_check = max(LATE_CHECKS * check_seconds, LASTING_SECONDS)
        self._started = self._passed_at = self._well_at = clock()
        self._seen = passes.passes

    def problem(self) -> str:
        """Why floors may not be kept now, "" when they are. That the API server is away is no reason."""
        why = self._problem(self._clock())
        if not why:
            self._well_at = self._clock()
        return why

    def lasting(self) -> str:
        """The problem, if there has been one for a while."""
        why = self.problem()
        return why if self._clock() - self._well_at >= LASTING_SECONDS else ""

    def _problem(self, now: float) -> str:
        if self._passes.passes != self._seen:
            self._seen, self._passed_at = self._passes.passes, now
        if not self._seen:
            return self._passes.problem() or "the first pass over the pods is not done yet"
        if why := self._passes.problem():
            return why
        if (late := now - self._passed_at) > LATE_PASS_SECONDS:
            return f"no pass over the pods has come to its end for {late:.0f} s"
        if (late := now - max(self._checks.checked_at, self._started)) > self._late_check:
            return f"no full check of the kernel's files has come to its end for {late:.0f} s"
        return ""
