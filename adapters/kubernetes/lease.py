"""Leader election on a coordination.k8s.io Lease.

Expiry is judged as client-go does, by how long the lease has been seen unchanged on our own monotonic clock,
so that clocks of different machines need not agree; wall-clock time is only written, for people and for
`vacant_seconds`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from adapters.api import LEASES, APIError, ClusterAPI, NotFound, Unreachable

logger = logging.getLogger(__name__)


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Lease(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


_LEASE = msgspec.json.Decoder(_Lease)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. Others wait `duration` after a renewal; the leader gives up `renew_deadline` after it."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew_deadline < self.duration:
            raise ValueError(
                f"lease: need 0 < retry ({self.retry}) < renew_deadline ({self.renew_deadline})"
                f" < duration ({self.duration})"
            )


class LeaseElector:
    """One candidate. run() takes part until it is cancelled, and then gives the lease back.

    `is_leader` is true only while a renewal is younger than `renew_deadline`, whatever run() is doing: a
    process that was stopped and goes on sees at once that it may have been replaced.
    `vacant_seconds`: at the last acquisition, the time since the previous holder's last renewal or release
    (0.0 when there was none): for how long nobody led.
    """

    def __init__(
        self,
        api: ClusterAPI,
        namespace: str,
        name: str,
        identity: str,
        *,
        timing: Timing | None = None,
        on_started: Callable[[], None] | None = None,
        on_stopped: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.identity = identity
        self.holder = ""
        self.vacant_seconds = 0.0
        self._api = api
        self._namespace = namespace
        self._name = name
        self._timing = timing or Timing()
        self._on_started = on_started or _nothing
        self._on_stopped = on_stopped or _nothing
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._jitter = jitter
        self._leading = False
        self._renewed = float("-inf")
        self._seen: _Spec | None = None
        self._seen_at = clock()

    @property
    def is_leader(self) -> bool:
        """Whether this candidate may act as the leader now."""
        return self._leading and self._clock() - self._renewed < self._timing.renew_deadline

    async def run(self) -> None:
        """Acquire, renew, step down, again, until cancelled."""
        try:
            while True:
                await self._attempt()
                if self._leading and not self.is_leader:
                    self._step_down("not renewed in time")
                await self._sleep(self._timing.retry * (1.0 if self._leading else 1.0 + 0.2 * self._jitter()))
        finally:
            if self._leading:
                await self._release()

    async def _attempt(self) -> None:
        """One try to acquire or renew; every failure leaves things as they are, for the next try."""
        began = self._clock()
        try:
            async with asyncio.timeout(self._timing.renew_deadline):
                lease = await self._read()
                self._observe(lease.spec if lease else None)
                if lease is None:
                    await self._create()
                elif self._may_write(lease.spec):
                    await self._write(lease)
                else:
                    self._lost_to(lease.spec)
                    return
        except (APIError, Unreachable, TimeoutError, msgspec.MsgspecError) as error:
            logger.warning(
                "lease=%s/%s identity=%s error=%r", self._namespace, self._name, self.identity, str(error)
            )
            return
        # Counted from before the calls: what others see cannot be older than that.
        self._renewed = began
        if not self._leading:
            self._start()

    async def _read(self) -> _Lease | None:
        try:
            return _LEASE.decode(await self._api.get(LEASES, self._namespace, self._name))
        except NotFound:
            return None

    def _observe(self, spec: _Spec | None) -> None:
        self.holder = (spec.holder_identity or "") if spec else ""
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._clock()

    def _may_write(self, spec: _Spec) -> bool:
        if not spec.holder_identity or spec.holder_identity == self.identity:
            return True
        duration = spec.lease_duration_seconds or self._timing.duration
        return self._clock() - self._seen_at > duration

    async def _create(self) -> None:
        body = self._body(self._spec(None))
        self.vacant_seconds = 0.0
        self._observe(_LEASE.decode(await self._api.create(LEASES, self._namespace, body)).spec)

    async def _write(self, lease: _Lease) -> None:
        body = self._body(self._spec(lease.spec), lease.metadata.resource_version)
        raw = await self._api.replace(LEASES, self._namespace, self._name, body)
        if not self._leading:
            renewed = _seconds(lease.spec.renew_time)
            self.vacant_seconds = max(0.0, self._wall() - renewed) if renewed else 0.0
        self._observe(_LEASE.decode(raw).spec)

    def _body(self, spec: Mapping[str, Any], resource_version: str = "") -> dict[str, Any]:
        metadata = {"name": self._name, "namespace": self._namespace}
        if resource_version:
            metadata["resourceVersion"] = resource_version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": dict(spec),
        }

    def _spec(self, before: _Spec | None) -> dict[str, Any]:
        now = _micro_time(self._wall())
        mine = before is not None and before.holder_identity == self.identity
        transitions = (before.lease_transitions or 0) if before else 0
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": round(self._timing.duration),
            "acquireTime": (before.acquire_time if before and mine else None) or now,
            "renewTime": now,
            "leaseTransitions": transitions if mine or before is None else transitions + 1,
        }

    def _start(self) -> None:
        self._leading = True
        logger.info(
            "lease=%s/%s identity=%s leader=true vacant_seconds=%.1f",
            self._namespace,
            self._name,
            self.identity,
            self.vacant_seconds,
        )
        self._on_started()

    def _lost_to(self, spec: _Spec) -> None:
        if self._leading:
            self._step_down(f"held by {spec.holder_identity}")

    def _step_down(self, why: str) -> None:
        self._leading = False
        logger.warning(
            "lease=%s/%s identity=%s leader=false why=%r", self._namespace, self._name, self.identity, why
        )
        self._on_stopped()

    async def _release(self) -> None:
        """Give the lease back, so that another need not wait; losing that race is all right."""
        self._step_down("stopping")
        try:
            async with asyncio.timeout(self._timing.retry):
                lease = await self._read()
                if lease is None or lease.spec.holder_identity != self.identity:
                    return
                spec = self._spec(lease.spec) | {"holderIdentity": "", "leaseDurationSeconds": 1}
                body = self._body(spec, lease.metadata.resource_version)
                await self._api.replace(LEASES, self._namespace, self._name, body)
        except (APIError, Unreachable, TimeoutError, msgspec.MsgspecError) as error:
            logger.warning(
                "lease=%s/%s identity=%s release_error=%r",
                self._namespace,
                self._name,
                self.identity,
                str(error),
            )


def _nothing() -> None:
    """The default of callbacks: does nothing."""


def _micro_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _seconds(text: str | None) -> float:
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except ValueError:
        return 0.0
