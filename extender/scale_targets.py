"""Scale targets that are not watched from the start: Jobs, and whatever serves a scale subresource.

A kind is looked up, listed and watched once a policy names it, and while one does: one watch a kind. Replicas
are read from /scale where the spec of an object that a policy names has changed. Where that fails, the
policies' conditions say what to do, and it is tried again, after half a minute at the latest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from adapters.api import JOBS, APIError, ClusterAPI, Ended, NotFound, Resource, Unreachable
from adapters.kubernetes import scale
from adapters.kubernetes.reflector import Backoff, Reflector
from adapters.kubernetes.wire import DecodeError
from adapters.loops import forever
from extender.catalog import Catalog
from extender.owners import WorkloadKey
from qos import keys
from qos.cluster.policy import ScaleTarget
from qos.cluster.precedence import Problem

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 30.0
"""The longest between two tries of what was refused: a right, a CustomResourceDefinition may come later."""
LOOK_SECONDS: Final = 0.5
"""Between two looks for kinds and objects that policies name, and what of them has changed."""
LOOKUP_SECONDS: Final = 0.05
"""Between two kinds that are looked up. A kind is a tenant's word; only one that exists costs a watch."""
OWN_KINDS: Final = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})
"""Watched from the start (extender.ingest)."""


class ScaleTargets:
    """Followers of the kinds that policies name; `clock` in seconds, monotonic."""

    def __init__(
        self,
        api: ClusterAPI,
        catalog: Catalog,
        *,
        failed: Callable[[str], None],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._catalog = catalog
        self._failed = failed
        self._clock, self._sleep = clock, sleep
        self._kinds: dict[tuple[str, str], tuple[_Kind, asyncio.Task[None]]] = {}
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                self._follow()
                await self._sleep(LOOK_SECONDS)
        finally:
            tasks = [task for _, task in self._kinds.values()]
            self._kinds.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def heard(self) -> None:
        """Wait until of each kind that policies name by now it is known what there is, or why not."""
        self._follow()
        for kind, _ in [*self._kinds.values()]:
            await kind.answered.wait()

    def _follow(self) -> None:
        wanted = {
            (target.api_version, target.kind): target
            for target in self._catalog.target_kinds()
            if target.full_kind not in OWN_KINDS
        }
        still = {target.full_kind for target in wanted.values()}
        for key in self._kinds.keys() - wanted.keys():
            kind, task = self._kinds.pop(key)
            task.cancel()
            if kind.full_kind not in still:  # else another version's objects are the same ones
                kind.forget()
        for key, target in wanted.items():
            if key in self._kinds:
                continue
            kind = _Kind(
                self._api, self._catalog, target, turn=self._turn, clock=self._clock, sleep=self._sleep
            )
            name = f"scale target {target.full_kind}"
            work = forever(name, AGAIN_SECONDS, kind.run, self._failed, sleep=self._sleep)
            self._kinds[key] = kind, asyncio.create_task(work, name=name)


class _Kind:
    """One kind. `answered` is set once its policies can be told something. `turn`: to look up a kind."""

    def __init__(
        self,
        api: ClusterAPI,
        catalog: Catalog,
        target: ScaleTarget,
        *,
        turn: asyncio.Lock,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.answered = asyncio.Event()
        self._api = api
        self._catalog = catalog
        self._target = target
        self._turn = turn
        self._clock, self._sleep = clock, sleep
        self._resource = JOBS
        self._objects: dict[WorkloadKey, scale.Scaled] = {}
        self._read: dict[WorkloadKey, scale.Scaled] = {}
        self._later: dict[WorkloadKey, tuple[float, Backoff]] = {}
        self._looking = _backoff()
        self._listed = False

    async def run(self) -> None:
        """Find the kind, then follow its objects until cancelled."""
        if self._target.full_kind == JOBS.kind:
            await self._watch(self._set_job)
            return
        self._resource = await self._find()
        watching = asyncio.create_task(self._watch(self._set))
        try:
            while not watching.done():
                await self._read_changed()
                await self._sleep(LOOK_SECONDS)
            await watching
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def forget(self) -> None:
        """No policy names it any more."""
        for key in [*self._objects]:
            self._remove(key)
        self._catalog.set_obstacle(self._all, None)

    @property
    def full_kind(self) -> str:
        """As workloads of the kind have it."""
        return self._target.full_kind

    @property
    def _all(self) -> WorkloadKey:
        return "", self._target.full_kind, ""

    @property
    def _named(self) -> str:
        return f"{self._target.kind} ({self._target.api_version})"

    async def _find(self) -> Resource:
        """The kind's resource, once it is served and can be scaled."""
        while True:
            try:
                async with self._turn:
                    await self._sleep(LOOKUP_SECONDS)
                    raw = await self._api.served(self._target.group, self._target.version)
                found, scales = scale.resource_of(self._target, raw)
            except NotFound:
                found, scales = None, False
            except (APIError, Unreachable, DecodeError) as error:
                log.warning("kind not looked up kind=%s error=%s", self._target.full_kind, error)
                await self._sleep(self._looking.pause(0.5))
                continue
            if found is not None and found.namespaced and scales:
                return found
            self._tell(self._all, self._missing(found, scales=scales))
            await self._sleep(self._looking.pause(0.5))

    def _missing(self, found: Resource | None, *, scales: bool) -> Problem:
        if found is None:
            text = (
                f"{self._named} is not served: install its CustomResourceDefinition, or correct "
                "slots.scaleTargetRef"
            )
            return Problem("ScaleTargetNotServed", text)
        lacks = "no scale subresource" if not scales else "no namespace"
        return Problem("ScaleTargetCannotScale", f"{self._named} has {lacks}: use slots.count")

    async def _watch(self, take: Callable[[bytes], str]) -> None:
        reflector = Reflector(
            self._api,
            self._resource,
            take,
            self._remove_named,
            on_listed=self._all_listed,
            on_refused=self._refused,
            most_wait=AGAIN_SECONDS,
            clock=self._clock,
            sleep=self._sleep,
        )
        await reflector.run()

    def _set_job(self, raw: bytes) -> str:
        job = scale.job(raw)
        self._catalog.set_workload(job)
        key = job.namespace, job.kind, job.name
        self._objects[key] = scale.Scaled("", job)
        return f"{job.namespace}/{job.name}"

    def _set(self, raw: bytes) -> str:
        one = scale.scaled(self._target, raw)
        key = one.workload.namespace, one.workload.kind, one.workload.name
        if self._objects.get(key) != one:
            self._objects[key] = one
            self._later.pop(key, None)
        return f"{one.workload.namespace}/{one.workload.name}"

    def _remove_named(self, name: str) -> None:
        namespace, _, name = name.partition("/")
        self._remove((namespace, self._target.full_kind, name))

    def _remove(self, key: WorkloadKey) -> None:
        for known in (self._objects, self._read, self._later):
            known.pop(key, None)
        self._catalog.set_obstacle(key, None)
        self._catalog.remove_workload(*key)

    def _all_listed(self, _began: float) -> None:
        self._listed = True
        self._catalog.set_obstacle(self._all, None)
        if self._resource is JOBS:
            self.answered.set()

    def _refused(self, error: APIError) -> None:
        missing = self._missing(None, scales=False)
        self._tell(self._all, missing if error.status == 404 else self._forbidden("list and watch", ""))

    def _forbidden(self, verbs: str, subresource: str) -> Problem:
        plural = self._resource.plural
        named = f"{plural}.{self._resource.group}{subresource}"
        text = (
            f"the extender may not {verbs} {named}: give it get, list and watch of {plural} and get of "
            f"{plural}/scale by a ClusterRole labelled {keys.SCALE_TARGETS_LABEL}=true"
        )
        return Problem("ScaleTargetForbidden", text)

    def _tell(self, key: WorkloadKey, problem: Problem) -> None:
        self._catalog.set_obstacle(key, problem)
        self.answered.set()

    async def _read_changed(self) -> None:
        """Read the scale of objects that policies name, where the spec is another than when it was read."""
        followed = self._catalog.followed(self._target.full_kind)
        for key in self._read.keys() - followed:
            del self._read[key]
        for key in followed:
            known = self._objects.get(key)
            due, backoff = self._later.get(key) or (0.0, _backoff())
            if known is None or self._read.get(key) == known or due > self._clock():
                continue
            problem, again = await self._read_one(key, known)
            if again:
                self._later[key] = self._clock() + backoff.pause(0.5), backoff
            self._catalog.set_obstacle(key, problem)
        if self._listed:
            self.answered.set()

    async def _read_one(self, key: WorkloadKey, known: scale.Scaled) -> tuple[Problem | None, bool]:
        """Read a scale; what its policies are to be told, and whether it is to be tried again."""
        namespace, _, name = key
        try:
            raw = await self._api.get(self._resource, namespace, name, subresource="scale")
            workload = scale.with_scale(known.workload, raw)
        except APIError as error:
            if error.status == 403:
                return self._forbidden("get", "/scale"), True
            return self._unread(namespace, name, error), True
        except (Unreachable, DecodeError) as error:
            passing = isinstance(error, Unreachable) and not isinstance(error, Ended) and key in self._read
            return (None if passing else self._unread(namespace, name, error)), True
        if key in self._objects:  # it may have gone meanwhile
            self._read[key] = known
            self._catalog.set_workload(workload)
        return None, False

    def _unread(self, namespace: str, name: str, error: Exception) -> Problem:
        text = f"the scale of {self._target.kind} {namespace}/{name} cannot be read: {error}"
        return Problem("ScaleTargetUnread", text)


def _backoff() -> Backoff:
    return Backoff(first=1.0, most=AGAIN_SECONDS)
