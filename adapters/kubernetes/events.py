"""Events (events.k8s.io/v1): what users must know, written once and not too often."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from adapters.api import EVENTS, APIError, ClusterAPI, Unreachable
from adapters.pace import Pace

log = logging.getLogger(__name__)

REPEAT_SECONDS: Final = 600.0
"""Seconds within which the same words about the same object are not written again."""
MOST_QUEUED: Final = 500
LONGEST_NOTE: Final = 1024


class Regarding(NamedTuple):
    """The object an event is about; `namespace` is empty for cluster-scoped ones."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Said(NamedTuple):
    """One event to write; `at`: seconds since the epoch."""

    regarding: Regarding
    type: str
    reason: str
    note: str
    at: float


class EventWriter:
    """A bounded queue that is written at 5 a second, 25 at once; `wall` is what an Event says of its time.

    count(outcome) hears of each: written, dropped or failed. `controller`: the program that speaks.
    """

    def __init__(
        self,
        api: ClusterAPI,
        count: Callable[[str], None],
        *,
        controller: str = "j10ce.io/extender",
        identity: str,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._api = api
        self._count = count
        self._controller = controller
        self._identity = identity
        self._clock, self._wall = clock, wall
        self._pace = Pace(5, 25, clock)
        self._queue: deque[Said] = deque()
        self._recent: dict[tuple[Regarding, str, str], float] = {}
        self._serial = itertools.count()

    def say(self, regarding: Regarding, kind: str, reason: str, note: str) -> None:
        """Queue an event, unless it was said a short while ago or too much waits."""
        now = self._clock()
        key = regarding, reason, note
        if now - self._recent.get(key, float("-inf")) < REPEAT_SECONDS:
            return
        if len(self._queue) >= MOST_QUEUED:
            self._count("dropped")
            return
        self._forget_old(now)
        self._recent[key] = now
        self._queue.append(Said(regarding, kind, reason, note, self._wall()))

    def _forget_old(self, now: float) -> None:
        if len(self._recent) >= 2 * MOST_QUEUED:
            self._recent = {key: at for key, at in self._recent.items() if now - at < REPEAT_SECONDS}

    def leave_to_another(self) -> None:
        """Another replica leads and says the same: forget what waits, and say it again when leading."""
        self._queue.clear()
        self._recent.clear()

    async def run_once(self) -> None:
        """Write what the rate allows now."""
        while self._queue and self._pace.take():
            await self._write(self._queue.popleft())

    async def _write(self, said: Said) -> None:
        namespace = said.regarding.namespace or "default"
        try:
            await self._api.create(EVENTS, namespace, self.body(said))
        except (APIError, Unreachable) as error:
            # An event is a courtesy: the condition says the same, and lasts.
            self._count("failed")
            log.warning(
                "event not written reason=%s object=%s error=%s", said.reason, said.regarding.name, error
            )
            return
        self._count("written")

    def body(self, said: Said) -> dict[str, Any]:
        """The Event object."""
        about = said.regarding
        stamp = datetime.fromtimestamp(said.at, UTC)
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.name[:220]}.{int(said.at * 1e6):x}{next(self._serial):x}",
                "namespace": about.namespace or "default",
            },
            "eventTime": stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._controller,
            "reportingInstance": self._identity[:128],
            "action": "Reserve",
            "reason": said.reason,
            "type": said.type,
            "note": said.note[:LONGEST_NOTE],
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
        }
