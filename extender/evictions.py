"""Pods that kube-scheduler evicted for owners whose slots placeholders hold: counted, and told in Events.

Nobody is evicted while owners are handed over to. They preempt while nobody is there who would, or when no
place came for them. kube-scheduler's Events (Preempted) are what is left of it, for an hour.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from adapters.api import EVENTS, APIError, ClusterAPI, Conflict, Unreachable
from adapters.kubernetes.events import EventWriter, Regarding, Said
from extender.metrics import Metrics
from ledger.ledger import Ledger
from qos import keys
from qos.cluster.policy import Policy

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
_SELECTOR: Final = "reason=Preempted"
_NOTE: Final = re.compile(r"Preempted by pod (\S+) on node (\S+)")


class _Metadata(msgspec.Struct):
    uid: str


class _Victim(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _Event(msgspec.Struct):
    metadata: _Metadata
    note: str = ""
    regarding: _Victim = msgspec.field(default_factory=_Victim)


_EVENT = msgspec.json.Decoder(_Event)


class Evictions:
    """Looks for new ones. `policies`: a policy that placeholders keep, by key, or None; `scheduler`: whose
    owners get places; `wall`: time of day.

    Our Event has a name that follows from kube-scheduler's: so each is counted once, whatever restarts.
    """

    def __init__(
        self,
        api: ClusterAPI,
        ledger: Ledger,
        metrics: Metrics,
        events: EventWriter,
        policies: Callable[[str], Policy | None],
        *,
        scheduler: str,
        wall: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._api = api
        self._ledger = ledger
        self._metrics = metrics
        self._events = events
        self._policies = policies
        self._wall = wall
        self._told: set[str] = set()

    async def run_once(self) -> None:
        """Count those that are not counted yet."""
        there = set[str]()
        try:
            async for found in self._preemptions():
                there.add(found.metadata.uid)
                if found.metadata.uid not in self._told and await self._tell(found):
                    self._told.add(found.metadata.uid)
        except (APIError, Unreachable) as error:
            log.warning("evictions for owners not looked for error=%s", error)
            return
        self._told &= there

    async def _preemptions(self) -> AsyncIterator[_Event]:
        token = ""
        while True:
            page = await self._api.list_page(EVENTS, continue_token=token, field_selector=_SELECTOR)
            for raw in page.items:
                yield _EVENT.decode(raw)
            token = page.continue_token
            if not token:
                return

    async def _tell(self, found: _Event) -> bool:
        """True when there is no more to say of it."""
        match = _NOTE.match(found.note)
        if match is None:
            return True
        owner = self._ledger.known(match[1])
        if owner is None:
            return self._ledger.gone(match[1])
        policy = self._policies(self._ledger.policy_of(owner))
        if policy is None:
            return True
        about = Regarding(
            keys.API_VERSION, "MinimalReservationPolicy", policy.namespace, policy.name, policy.uid
        )
        victim = f"{found.regarding.namespace}/{found.regarding.name}"
        why = "no place was handed over to it"
        if owner.scheduler_name != self._scheduler:
            why = (
                f"it is of {owner.scheduler_name}, and places are kept for owners of {self._scheduler} alone"
            )
        note = f"pod {victim} was evicted from node {match[2]} for {owner.key}: {why}"
        body = self._events.body(Said(about, "Warning", "EvictedForOwner", note, self._wall()))
        body["metadata"]["name"] = f"{policy.name[:200]}.{found.metadata.uid}"
        try:
            await self._api.create(EVENTS, policy.namespace, body)
        except Conflict:
            return True
        self._metrics.evicted(policy.key)
        return True
