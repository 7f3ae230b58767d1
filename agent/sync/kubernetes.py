"""Pods of one node, policies, profiles and PriorityClasses from the API server."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from adapters.api import NAMESPACES, PODS, POLICIES, PRIORITY_CLASSES, PROFILES, ClusterAPI, Resource
from adapters.kubernetes import policies
from adapters.kubernetes.reflector import Reflector
from adapters.kubernetes.wire import Object, read
from agent.counted import Counted
from agent.state import Known
from agent.sync.followed import Followed, Keyed, OptOuts, Pods
from agent.sync.source import Changed
from qos.cluster.policy import Policy, Profile
from qos.cluster.precedence import PriorityClass
from qos.keys import OPT_OUT_LABEL

_LABELLED: Final = msgspec.json.Decoder(Object)

log = logging.getLogger(__name__)

_MOST_WAIT: Final = 30.0
"""Seconds between two tries: an API server that comes back meets the agents of all its nodes at once."""


class KubernetesSource:
    """Follows the API server; a Source (agent.sync.source).

    What is in `known` already, from the cache, stays until the server's first complete list of its kind, and
    goes then if it is not in it. Pods that are provisional are left alone until the server reports them.
    runs: whether the runtime runs the pod of this uid. clock, sleep, jitter: as
    adapters.kubernetes.reflector.Reflector has them.
    """

    def __init__(
        self,
        api: ClusterAPI,
        node: str,
        known: Known,
        changed: Changed,
        runs: Callable[[str], bool] = lambda _: False,
        *,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.spoken = asyncio.Event()
        self._clock = clock
        reflector = partial(
            Reflector, api, page_size=0, most_wait=_MOST_WAIT, clock=clock, sleep=sleep, jitter=jitter
        )
        kept: tuple[tuple[Resource, Followed, str], ...] = (
            (PODS, Pods(node, known.pods, changed, runs), f"spec.nodeName={node}"),
            (POLICIES, Keyed(known.policies, _policy, changed), ""),
            (PROFILES, Keyed(known.profiles, _profile, changed), ""),
            (PRIORITY_CLASSES, Keyed(known.priority_classes, _priority_class, changed), ""),
            (NAMESPACES, OptOuts(known.opt_outs, _opt_out, changed), ""),
        )
        self._kinds = [
            (what, reflector(resource, what.set, what.remove, field_selector=selector))
            for resource, what, selector in kept
        ]
        if registry is not None:
            self._measure(registry)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for what, reflector in self._kinds:
                group.create_task(reflector.run())
                group.create_task(self._settle(what, reflector))

    def problem(self) -> str:
        """What the server has not listed yet, or since when it is silent."""
        missing = [one.resource.plural for _, one in self._needed() if not one.synced.is_set()]
        if missing:
            return f"the API server has not listed {', '.join(missing)} yet"
        now = self._clock()
        stale = [one for _, one in self._kinds if one.stale(now)]
        if not stale:
            return ""
        silent = now - min(one.last_contact for one in stale)
        return f"the API server has said nothing of {stale[0].resource.plural} for {silent:.0f} s"

    def _needed(self) -> list[tuple[Followed, Reflector]]:
        """Without namespaces that we may not list: an older installation's rights must stop no floors."""
        return [
            (what, one)
            for what, one in self._kinds
            if not (one.resource is NAMESPACES and one.answered.is_set() and not one.synced.is_set())
        ]

    async def _settle(self, what: Followed, reflector: Reflector) -> None:
        if reflector.resource is NAMESPACES:
            await reflector.answered.wait()
            self._complete()
        await reflector.synced.wait()
        what.settle()
        self._complete()

    def _complete(self) -> None:
        if not self.spoken.is_set() and all(one.synced.is_set() for _, one in self._needed()):
            self.spoken.set()
            log.info("the API server has spoken")

    def _measure(self, registry: CollectorRegistry) -> None:
        silent = Gauge(
            "j10ce_agent_sync_silent_seconds",
            "Seconds since the API server last said anything, by resource.",
            ["resource"],
            registry=registry,
        )
        Counted(
            "j10ce_agent_sync_rejected_objects",
            "Objects that could not be read since the start, by resource; each has a log line.",
            lambda: {one.resource.plural: _rejected(what, one) for what, one in self._kinds},
            label="resource",
            registry=registry,
        )
        for _, one in self._kinds:
            silent.labels(one.resource.plural).set_function(partial(_silence, one, self._clock))


def _silence(reflector: Reflector, clock: Callable[[], float]) -> float:
    return clock() - reflector.last_contact


def _rejected(what: Followed, reflector: Reflector) -> float:
    return what.unread + reflector.rejected


def _policy(raw: bytes) -> tuple[str, Policy]:
    # Without what changes all the time and means nothing to a node.
    policy = replace(policies.policy(raw), status={}, resource_version="")
    return policy.key, policy


def _profile(raw: bytes) -> tuple[str, Profile]:
    profile = policies.profile(raw)
    return profile.name, profile


def _opt_out(raw: bytes) -> tuple[str, str]:
    meta = read(_LABELLED, "Namespace", raw).metadata
    return meta.name, (meta.labels or {}).get(OPT_OUT_LABEL, "")


def _priority_class(raw: bytes) -> tuple[str, PriorityClass]:
    name, value, is_default = policies.priority_class(raw)
    return name, PriorityClass(value, is_default)
