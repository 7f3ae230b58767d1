"""Keeps each policy's CapacityBuffer and PodTemplate as extender.buffering says. The leader writes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from adapters.api import (
    CAPACITY_BUFFERS,
    POD_TEMPLATES,
    APIError,
    ClusterAPI,
    Conflict,
    NotFound,
    Resource,
    Unreachable,
)
from adapters.kubernetes import buffers
from adapters.kubernetes.buffers import Seen
from adapters.kubernetes.conditions import Condition
from adapters.kubernetes.reflector import Reflector
from adapters.kubernetes.scale import has_kind
from adapters.kubernetes.wire import DecodeError
from adapters.pace import Pace
from extender.awaiting import Awaiting
from extender.buffering import (
    Account,
    Action,
    Kind,
    Step,
    There,
    Wanted,
    owner_of,
    provisioned,
    steps,
    waited_for,
    wanted_of,
)
from extender.metrics import Metrics
from ledger.decisions import DemandReport
from qos import keys
from qos.cluster.objects import Demand
from qos.cluster.policy import Policy

log = logging.getLogger(__name__)

PER_SECOND: Final = 5
OBJECT_SECONDS: Final = 2.0
"""Between two writes of one object: slots are filled and come free all the time."""
AGAIN_SECONDS: Final = 10.0
"""Between two tries of what was refused, and two looks whether CapacityBuffers are served by now."""
_AT_ONCE: Final = 50
"""Policies looked at before others may run: a millisecond, or five at a start."""
CHANGED_SECONDS: Final = 300.0
"""The same of what somebody changes on its way, an admission webhook say: we do not fight."""


class Buffers:
    """What is there of ours, what is wanted, and the calls between. `clock`: seconds, monotonic.

    changed: called when what autoscalers say may have changed. asking: False in mode Observe, which asks
    nobody for nodes: what is there is taken away. standing: whether placeholders keep a policy's holds.
    awaiting: where placeholders wait for a node, in place of a buffer.
    """

    def __init__(
        self,
        api: ClusterAPI,
        metrics: Metrics,
        *,
        asking: bool,
        standing: Callable[[Policy], bool] = lambda _policy: False,
        awaiting: Awaiting | None = None,
        changed: Callable[[], None],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._asking, self._standing, self._changed = asking, standing, changed
        self._awaiting = awaiting
        self._clock, self._sleep = clock, sleep
        self._pace = Pace(PER_SECOND, PER_SECOND, clock)
        self._resource: Resource | None = None
        self._listed: set[Kind] = set()
        self._seen: dict[Kind, dict[str, Seen]] = {kind: {} for kind in Kind}
        self._wanted: dict[str, Wanted] | None = None
        self._contents: dict[str, tuple[Demand, Mapping[str, Any] | None]] = {}
        self._reports: dict[str, DemandReport | None] = {}
        self._state, self._settled = 0, -1
        """How often what is wanted or there has changed, and when nothing was left to write."""
        self._not_before: dict[tuple[Kind, str], float] = {}
        self._refused: dict[tuple[Kind, str], str] = {}
        self._problem = "CapacityBuffers are not looked up yet"

    @property
    def heard(self) -> bool:
        """Whether CapacityBuffers are served, and what is there of them is known."""
        return self._resource is not None and len(self._listed) == len(Kind)

    async def follow(self, accounts: Sequence[Account]) -> None:
        """Take what all policies hold and lack now."""
        wanted: dict[str, Wanted] = {}
        reports: dict[str, DemandReport | None] = {}
        for done, one in enumerate(accounts):
            if done % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            reports[one.policy.key] = one.report
            waits = self._awaiting is not None and self._awaiting.waits(one)
            found = self._follow_one(one) if self._asking and not waits else None
            if found is not None:
                wanted[found.owner.key] = found
        self._reports = reports
        if self._wanted != wanted:
            self._wanted = wanted
            self._state += 1
        self._contents = {key: known for key, known in self._contents.items() if key in self._reports}
        self._refused = {at: why for at, why in self._refused.items() if at[1] in wanted}

    def _follow_one(self, one: Account) -> Wanted | None:
        if one.report is None and isinstance(one.resolved, Demand):  # the ledger is still about to place it
            return (self._wanted or {}).get(owner_of(one.policy).key)
        content_of = partial(self._content, one.policy.key)
        return wanted_of(one, content_of, standing=self._standing(one.policy))

    def _content(self, key: str, demand: Demand) -> Mapping[str, Any] | None:
        """What a slot looks like; made anew when the demand is another."""
        known = self._contents.get(key)
        if known is None or known[0] is not demand:
            known = self._contents[key] = demand, buffers.slot_content(demand)
        return known[1]

    def condition(self, policy: Policy) -> Condition:
        """What the policy's status says of its buffer."""
        if not self._asking:
            text = "the extender is in mode Observe: no autoscaler is asked for nodes"
            return Condition(keys.PROVISIONED, "Unknown", "ObserveMode", text)
        slots = None if self._awaiting is None else self._awaiting.slots.get(policy.key)
        if slots is not None:
            return waited_for(slots, self._reports.get(policy.key))
        if not self.heard:
            return Condition(keys.PROVISIONED, "Unknown", "NotServed", self._problem)
        if self._wanted is None:
            text = "what is held has not been gathered yet"
            return Condition(keys.PROVISIONED, "Unknown", "ToBeMade", text)
        key = owner_of(policy).key
        wanted, seen = self._wanted.get(key), self._seen[Kind.BUFFER].get(key)
        why = next((self._refused[at] for at in ((kind, key) for kind in Kind) if at in self._refused), "")
        return provisioned(wanted, seen, why, self._reports.get(policy.key))

    # --- what is there ---

    async def watch(self) -> None:
        """Follow what is there of ours while CapacityBuffers are served; again: look for them again."""
        resource = await self._find()
        gone = asyncio.Event()
        watched = {Kind.BUFFER: resource, Kind.TEMPLATE: POD_TEMPLATES}
        work = [self._watch(kind, one, gone) for kind, one in watched.items()]
        tasks = [asyncio.create_task(one) for one in [*work, gone.wait()]]
        self._resource = resource
        log.info("capacitybuffers are served version=%s", resource.version)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._resource = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._listed.clear()
            self._state += 1
            for seen in self._seen.values():
                seen.clear()

    async def _find(self) -> Resource:
        while True:
            found = await self.served()
            if found is not None:
                return found
            await self._sleep(AGAIN_SECONDS)

    async def served(self) -> Resource | None:
        """CapacityBuffers in the best version that is served; None: in none, or it cannot be said."""
        for resource in CAPACITY_BUFFERS:
            try:
                raw = await self._api.served(resource.group, resource.version)
                if has_kind(resource, raw):
                    return resource
            except NotFound:
                continue
            except (APIError, Unreachable, DecodeError) as error:
                self._problem = f"CapacityBuffers cannot be looked up: {error}"
                return None
        self._problem = (
            "no CapacityBuffer (autoscaling.x-k8s.io) is served: switch on your autoscaler's feature, which "
            "brings the definition; it is noticed within seconds"
        )
        return None

    async def _watch(self, kind: Kind, resource: Resource, gone: asyncio.Event) -> None:
        seen = self._seen[kind]
        read = buffers.seen_buffer if kind is Kind.BUFFER else buffers.seen_template

        def take(raw: bytes) -> str | None:
            one = read(raw)
            if one is None:
                return None
            seen[one.key] = one
            self._state += 1
            self._refused.pop((kind, one.key), None)
            self._changed()
            return one.key

        def refused(error: APIError) -> None:
            named = ".".join(part for part in (resource.plural, resource.group) if part)
            self._problem = f"the extender may not list {named}: {error} (docs/autoscaling.md has its rights)"
            if error.status == 404:
                gone.set()

        def drop(key: str) -> None:
            seen.pop(key, None)
            self._state += 1

        reflector = Reflector(
            self._api,
            resource,
            take,
            drop,
            on_listed=lambda _began: self._listed.add(kind),
            on_refused=refused,
            most_wait=AGAIN_SECONDS,
            clock=self._clock,
            sleep=self._sleep,
        )
        await reflector.run()

    # --- what is written ---

    async def run_once(self) -> None:
        """Take the steps that are due, as far as the rate allows; the rest waits for a later call."""
        state = self._state
        if self._wanted is None or not self.heard or state == self._settled:
            return
        left = False
        there = There(self._seen[Kind.TEMPLATE], self._seen[Kind.BUFFER])
        for step in deque(steps(self._wanted, there)):
            left = True
            if self._clock() < self._not_before.get((step.kind, step.key), 0.0):
                continue
            if not self._pace.take():
                return
            await self._take(step)
        self._forget()
        if not left:
            self._settled = state

    def _forget(self) -> None:
        now = self._clock()
        self._not_before = {key: until for key, until in self._not_before.items() if until > now}

    async def _take(self, step: Step) -> None:
        resource = POD_TEMPLATES if step.kind is Kind.TEMPLATE else self._resource
        if resource is None:
            return
        at, (namespace, _, name) = (step.kind, step.key), step.key.partition("/")
        wait = OBJECT_SECONDS
        try:
            if step.action is Action.DELETE and step.seen is not None:
                await self._api.delete(resource, namespace, name, uid=step.seen.uid)
                self._seen[step.kind].pop(step.key, None)
            elif step.wanted is not None:
                raw = await self._write(step, step.wanted, resource)
                wait = self._written(step, raw)
        except NotFound:
            self._seen[step.kind].pop(step.key, None)
            self._metrics.buffer_write("gone")
        except Conflict as error:
            self._metrics.buffer_write("conflict")
            if step.action is Action.CREATE:
                self._refused[at] = f"{step.kind.value} {name} is there, and is not the extender's"
                wait = AGAIN_SECONDS
            log.info("not written kind=%s object=%s error=%s", step.kind.value, step.key, error)
        except (APIError, Unreachable) as error:
            self._metrics.buffer_write("failed")
            self._refused[at] = f"{step.kind.value} {name}: {error}"
            log.warning("not written kind=%s object=%s error=%s", step.kind.value, step.key, error)
            wait = AGAIN_SECONDS
        else:
            self._refused.pop(at, None)
            self._metrics.buffer_write("deleted" if step.action is Action.DELETE else "written")
        self._not_before[at] = self._clock() + wait

    async def _write(self, step: Step, wanted: Wanted, resource: Resource) -> bytes:
        if step.kind is Kind.TEMPLATE:
            body = buffers.pod_template(wanted.owner, wanted.content)
        else:
            body = buffers.buffer(wanted.owner, resource, wanted.replicas)
        if step.seen is None:
            return await self._api.create(resource, wanted.owner.namespace, body)
        body["metadata"]["resourceVersion"] = step.seen.resource_version
        return await self._api.replace(resource, wanted.owner.namespace, wanted.owner.object_name, body)

    def _written(self, step: Step, raw: bytes) -> float:
        """Take the answer, before the watch shows it; seconds until the object may be written again."""
        read = buffers.seen_buffer if step.kind is Kind.BUFFER else buffers.seen_template
        try:
            one = read(raw)
        except DecodeError as error:
            log.warning("not readable kind=%s object=%s error=%s", step.kind.value, step.key, error)
            return AGAIN_SECONDS
        if one is None:
            return AGAIN_SECONDS
        self._seen[step.kind][one.key] = one
        assert step.wanted is not None
        said: Mapping[str, object] = step.wanted.content
        if step.kind is Kind.BUFFER:
            said = buffers.buffer_content(step.wanted.owner, step.wanted.replicas)
        if one.content == said:
            return OBJECT_SECONDS
        log.warning("somebody changes what is written kind=%s object=%s", step.kind.value, step.key)
        return CHANGED_SECONDS
