"""What each step does to the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import stamina

from adapters.api import (
    BUDGETS,
    NODES,
    POD_GROUPS,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    PROFILES,
    QUOTAS,
    RESERVATIONS,
    VOLUME_CLAIMS,
    VOLUMES,
    Conflict,
    NotFound,
    Resource,
    Unreachable,
)
from lab.scenario import objects
from lab.scenario.models import Policy, Scenario
from lab.scenario.observation import Observation, PodRecord
from lab.scenario.steps import (
    Bind,
    Churn,
    Delete,
    Fail,
    NodeGroup,
    Nodes,
    Patch,
    Scale,
    Signal,
    Start,
    TaintNodes,
    TenantApplies,
    Workload,
)
from lab.scenario.targets import Target
from qos.cluster.objects import Node

_AT_ONCE = 32
_TRIES = 6
_RUNNING_SECONDS = 60.0
_LOOK_SECONDS = 0.02
_NOT_READY = "node.kubernetes.io/not-ready"
_DEPLOYED = ("Deployment", "StatefulSet")


def _usable(node: Node) -> bool:
    return node.ready and not any(taint.key == _NOT_READY for taint in node.taints)


class StepError(Exception):
    """A step could not be done; the message says why."""


@dataclass(slots=True)
class Actions:
    """The steps' doing, on one target. Background work is awaited by finish()."""

    scenario: Scenario
    target: Target
    observation: Observation
    background: list[asyncio.Task[None]] = field(default_factory=list)
    _workloads: dict[str, Workload] = field(default_factory=dict)
    _numbers: dict[str, Iterator[int]] = field(default_factory=dict)
    _node_numbers: dict[str, Iterator[int]] = field(default_factory=dict)
    _groups: dict[str, list[str]] = field(default_factory=dict)
    _deleted: set[str] = field(default_factory=set)
    """UIDs of pods that a step deleted: no later step takes them for alive, however late the lab sees it."""

    async def finish(self) -> None:
        """Wait for what runs in the background; its errors come out here."""
        await asyncio.gather(*self.background)
        self.background.clear()

    async def cancel(self) -> None:
        """End what runs in the background."""
        for task in self.background:
            task.cancel()
        await asyncio.gather(*self.background, return_exceptions=True)

    async def set_up(self, policies: Iterable[Policy]) -> None:
        """Create everything that is there before the first step."""
        api, scope, scenario = self.target.api, self.target.scope, self.scenario
        await api.create(objects.NAMESPACES, "", objects.namespace(scope))
        classes = [objects.priority_class(wanted, scope) for wanted in scenario.priority_classes]
        await self._create_all(PRIORITY_CLASSES, "", classes)
        await self._create_all(PROFILES, "", [objects.profile(wanted, scope) for wanted in scenario.profiles])
        await self._create_all(BUDGETS, "", [objects.budget(wanted, scope) for wanted in scenario.budgets])
        for group in scenario.nodes:
            await self.add_nodes(group)
        made = [objects.reservation(wanted, scope) for wanted in scenario.reservations]
        await self._create_all(RESERVATIONS, "", made)
        quotas = [objects.quota(wanted, scope) for wanted in scenario.quotas]
        await self._create_all(QUOTAS, scope.namespace, quotas)
        groups = [objects.pod_group(wanted, scope) for wanted in scenario.pod_groups]
        await self._create_all(POD_GROUPS, scope.namespace, groups)
        await self.apply_policies(policies)

    async def define(self) -> None:
        """Make the definitions of Reservations, ElasticQuotas and PodGroups; wait until they are served."""
        if self.scenario.reservations:
            await self._define(RESERVATIONS)
        if self.scenario.quotas:
            await self._define(QUOTAS)
        if self.scenario.pod_groups:
            await self._define(POD_GROUPS)

    async def _define(self, resource: Resource) -> None:
        api, deadline = self.target.api, time.monotonic() + _RUNNING_SECONDS
        with contextlib.suppress(Conflict):
            await api.create(objects.DEFINITIONS, "", objects.definition(resource.plural))
        while True:
            try:
                await api.list_page(resource, limit=1)
            except NotFound:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return

    async def apply_policies(self, policies: Iterable[Policy]) -> None:
        """Create policies, one after the other, so that their age is their order."""
        scope = self.target.scope
        for wanted in policies:
            await self._create_all(POLICIES, scope.namespace, [objects.policy(wanted, scope)])

    async def tenant_applies(self, applies: TenantApplies) -> None:
        """Create policies as a tenant, who is refused as the step says, or not at all."""
        for wanted in (p for p in self.scenario.policies if p.called in applies.policies):
            body = objects.policy(wanted, self.target.scope)
            told = await self.target.create_as_tenant(body, applies.refused or "")
            if applies.refused is None and told:
                raise StepError(f"the tenant may not create policy {wanted.called}: {told}")
            if applies.refused is not None and applies.refused not in told:
                told = f"the refusal says: {told}" if told else "it was accepted"
                raise StepError(f"policy {wanted.called} of the tenant is not refused as expected; {told}")

    def ready(self) -> bool:
        """Whether all nodes that were created are Ready, and their taint of the beginning is gone."""
        names = [name for group in self._groups.values() for name in group]
        nodes = self.observation.nodes
        return all(name in nodes and _usable(nodes[name]) for name in names)

    async def add_nodes(self, group: NodeGroup) -> None:
        """Create nodes; their numbers go on where the group's last ones ended."""
        known = self._groups.setdefault(group.name, [])
        numbers = self._node_numbers.setdefault(group.name, itertools.count())
        names = [f"{group.name}-{next(numbers)}" for _ in range(group.count)]
        bodies = [objects.node(group, name, self.target.scope) for name in names]
        await self._create_all(NODES, "", bodies)
        known += names

    async def create(self, wanted: Workload) -> None:
        """Create a workload's pods, or the controller that makes them."""
        self._workloads[wanted.name] = wanted
        scope = self.target.scope
        if wanted.kind != "Pods":
            for volume, claim in objects.volumes(wanted, scope):
                await self._create_one(VOLUMES, "", volume)
                await self._create_one(VOLUME_CLAIMS, scope.namespace, claim)
            resource = objects.WORKLOAD_RESOURCES[wanted.kind]
            await self.target.api.create(resource, scope.namespace, objects.controller(wanted, scope))
            return
        numbers = self._numbers[wanted.name] = itertools.count()
        await self._add_pods(wanted, [next(numbers) for _ in range(wanted.count)])

    async def _add_pods(self, wanted: Workload, numbers: Iterable[int]) -> None:
        nodes = self._nodes_named(wanted.node_names) if wanted.node_names else [""]
        bodies = [
            objects.pod(wanted, number, self.target.scope, node_name=nodes[number % len(nodes)])
            for number in numbers
        ]
        namespace = self.target.scope.namespace
        if wanted.rate is None:
            await self._create_all(PODS, namespace, bodies)
        else:
            limit = asyncio.Semaphore(_AT_ONCE)
            acts = [functools.partial(self._arrive, namespace, body, limit) for body in bodies]
            arrivals = self._paced(acts, wanted.rate)
            await self._run(arrivals, background=wanted.background)

    async def _arrive(self, namespace: str, body: dict[str, Any], limit: asyncio.Semaphore) -> None:
        async with limit:
            await self._create_one(PODS, namespace, body)

    async def scale(self, scale: Scale) -> None:
        """Change replicas; a workload of bare pods gets more of them, or loses its newest."""
        wanted = self._workloads[scale.workload]
        if wanted.kind in _DEPLOYED:
            resource = objects.WORKLOAD_RESOURCES[wanted.kind]
            namespace, patch = self.target.scope.namespace, {"spec": {"replicas": scale.count}}
            await self.target.api.patch(resource, namespace, wanted.name, patch)
            return
        if wanted.kind != "Pods":
            raise StepError(f"scale: {wanted.name} is a {wanted.kind}, which has no replicas")
        alive = self._alive(wanted.name)
        if len(alive) < scale.count:
            numbers = self._numbers[wanted.name]
            await self._add_pods(wanted, [next(numbers) for _ in range(scale.count - len(alive))])
        else:
            await self._delete_pods(alive[scale.count :])

    async def delete(self, delete: Delete) -> None:
        """Delete pods of a workload, or all of it."""
        wanted = self._workloads[delete.workload]
        records = self._alive(wanted.name)
        if delete.bound is not None:
            records = [r for r in records if bool(r.pod.node_name) == delete.bound]
        if delete.count is None and delete.bound is None and wanted.kind != "Pods":
            resource = objects.WORKLOAD_RESOURCES[wanted.kind]
            await self.target.api.delete(resource, self.target.scope.namespace, wanted.name)
            return
        await self._delete_pods(records[: delete.count])

    async def churn(self, churn: Churn) -> None:
        """Replace pods of a workload one by one, at a rate."""
        await self._run(self._churn(churn), background=churn.background)

    async def _churn(self, churn: Churn) -> None:
        wanted = self._workloads[churn.workload]
        numbers = self._numbers.setdefault(wanted.name, itertools.count())

        async def replace_one() -> None:
            record = await self._next_running(wanted.name)
            await self._delete_pods([record])
            if wanted.kind == "Pods":
                await self._create_all(
                    PODS, self.target.scope.namespace, [objects.pod(wanted, next(numbers), self.target.scope)]
                )

        await self._paced([replace_one] * int(churn.rate * churn.seconds), churn.rate, one_by_one=True)

    async def _next_running(self, workload: str) -> PodRecord:
        """The oldest that runs, waited for."""
        deadline = time.monotonic() + _RUNNING_SECONDS
        while time.monotonic() < deadline:
            for record in self._alive(workload):
                if record.runs:
                    return record
            await asyncio.sleep(_LOOK_SECONDS)
        raise StepError(f"churn: no pod of {workload} came to run within {_RUNNING_SECONDS:g} s")

    async def kill(self, kill: Signal) -> None:
        """Send a signal to a component."""
        await self.target.kill(kill.component, signal.Signals[f"SIG{kill.signal}"])

    async def start(self, start: Start) -> None:
        """Start a component again."""
        await self.target.start(start.component)

    async def remove_nodes(self, nodes: Nodes) -> None:
        """Delete nodes, and their pods at once, as the pod garbage collector would do later."""
        names = self._choose(nodes)
        await self._each(names, lambda name: self.target.api.delete(NODES, "", name))
        self._groups[nodes.group] = [name for name in self._groups[nodes.group] if name not in names]
        await self._delete_pods(
            [r for r in self.observation.pods.values() if r.runs and r.pod.node_name in names]
        )

    async def cordon(self, nodes: Nodes) -> None:
        """Make nodes unschedulable."""
        await self._patch_nodes(self._choose(nodes), {"spec": {"unschedulable": True}})

    async def uncordon(self, nodes: Nodes) -> None:
        """Make nodes schedulable again."""
        await self._patch_nodes(self._choose(nodes), {"spec": {"unschedulable": None}})

    async def taint(self, nodes: TaintNodes) -> None:
        """Give nodes a taint, in place of those they had."""
        await self._patch_nodes(self._choose(nodes), {"spec": {"taints": [objects.taint(nodes.taint)]}})

    async def patch(self, patch: Patch) -> None:
        """Merge-patch an object."""
        resource = objects.RESOURCES[patch.kind]
        namespace = self.target.scope.namespace if resource.namespaced else ""
        await self.target.api.patch(resource, namespace, patch.name, patch.patch)

    async def fail(self, fail: Fail) -> None:
        """Report running pods as Failed."""
        running = [r for r in self._alive(fail.workload) if r.runs][: fail.count]
        if len(running) < fail.count:
            raise StepError(f"fail: only {len(running)} pods of {fail.workload} run, not {fail.count}")
        status = {"status": {"phase": "Failed", "reason": "Error", "message": "the container exited with 1"}}
        api, namespace = self.target.api, self.target.scope.namespace
        await self._each(
            [r.pod.name for r in running],
            lambda name: api.patch(PODS, namespace, name, status, subresource="status"),
        )

    async def bind(self, bind: Bind) -> None:
        """Bind waiting pods as another scheduler does."""
        nodes = itertools.cycle(self._nodes_named(bind.nodes))
        for record in self._alive(bind.workload):
            if not record.pod.node_name:
                pod = record.pod
                await self.target.api.bind(pod.namespace, pod.name, pod.uid, next(nodes), {})

    def _alive(self, workload: str) -> list[PodRecord]:
        seen = self.observation.workload(workload)
        return [r for r in seen if (r.runs or r.waits) and r.pod.uid not in self._deleted]

    def _nodes_named(self, prefix: str) -> list[str]:
        names = sorted(name for name in self.observation.nodes if name.startswith(prefix))
        if not names:
            raise StepError(f"no node's name begins with {prefix!r}")
        return names

    def _choose(self, nodes: Nodes) -> list[str]:
        names = self._groups.get(nodes.group, [])[::-1]
        if nodes.held:
            held = {h["nodeName"] for s in self.observation.policies.values() for h in s.get("holds") or ()}
            names = [name for name in names if name in held]
        count = nodes.count or len(names)
        if not names or len(names) < count:
            raise StepError(
                f"there are {len(names)} such nodes in group {nodes.group}, not {nodes.count or 'any'}"
            )
        return names[:count]

    async def _patch_nodes(self, names: list[str], patch: dict[str, Any]) -> None:
        await self._each(names, lambda name: self.target.api.patch(NODES, "", name, patch))

    async def _delete_pods(self, records: list[PodRecord]) -> None:
        api, namespace = self.target.api, self.target.scope.namespace

        async def delete(name: str) -> None:
            with contextlib.suppress(NotFound):  # its controller was faster
                await api.delete(PODS, namespace, name)

        self._deleted.update(r.pod.uid for r in records)
        await self._each([r.pod.name for r in records], delete)

    async def _create_all(self, resource: Resource, namespace: str, bodies: list[dict[str, Any]]) -> None:
        await self._each(bodies, lambda body: self._create_one(resource, namespace, body))

    async def _create_one(self, resource: Resource, namespace: str, body: dict[str, Any]) -> None:
        """Create an object; an API server that is busy with the flood is asked again."""
        async for attempt in stamina.retry_context(
            on=Unreachable, attempts=_TRIES, timeout=120.0, wait_initial=0.5
        ):
            with attempt:
                try:
                    await self.target.api.create(resource, namespace, body)
                except Conflict as error:
                    if attempt.num == 1:
                        text = f"{resource.kind} {body['metadata']['name']}: {error.message}"
                        raise StepError(text) from error

    async def _each(self, things: Iterable[Any], act: Callable[[Any], Awaitable[object]]) -> None:
        """Act on all of them, some at a time."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(thing: Any) -> None:
            async with limit:
                await act(thing)

        await asyncio.gather(*(one(thing) for thing in things))

    async def _run(self, work: Awaitable[None], *, background: bool) -> None:
        if background:
            self.background.append(asyncio.ensure_future(work))
        else:
            await work

    async def _paced(
        self, acts: Sequence[Callable[[], Awaitable[object]]], rate: float, *, one_by_one: bool = False
    ) -> None:
        """Begin each act at its time, at a rate a second; `one_by_one`: never two at a time."""
        began, tasks = time.monotonic(), []
        for number, act in enumerate(acts):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            if one_by_one:
                await act()
            else:
                tasks.append(asyncio.ensure_future(act()))
        await asyncio.gather(*tasks)
