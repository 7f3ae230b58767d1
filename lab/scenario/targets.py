"""Where a run takes place: a fresh lab cluster, or the user's own KWOK cluster."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from adapters.api import BUDGETS, NODES, PRIORITY_CLASSES, PROFILES, VOLUMES, NotFound, Resource
from adapters.kubernetes import decode
from adapters.kubernetes.client import KubernetesAPI, Timeouts
from lab import (
    binaries,
    extender_process,
    gangs,
    karpenter,
    late_answers,
    placeholders,
    requests,
    scheduler_config,
    tenant,
)
from lab import cluster as lab_cluster
from lab.binaries import Binaries
from lab.cluster import Cluster
from lab.extender_process import ExtenderProcess
from lab.late_answers import LateAnswers
from lab.scenario.models import Autoscaler, Extender, Run, Scenario
from lab.scenario.objects import NAMESPACES, Scope
from qos.keys import SCENARIO_LABEL

_STANDBY = "j10ce-standby"
_READY_SECONDS = 60.0
_PATIENT = Timeouts(request=60.0)
"""Setting up floods an API server on purpose."""


class Keeper(Enum):
    """What makes kube-scheduler respect the holds."""

    EXTENDER = "extender"
    PLACEHOLDERS = "placeholders"


class TargetError(Exception):
    """The scenario cannot run there; the message says why and what to do."""


class Target(Protocol):
    """One cluster for one run."""

    api: KubernetesAPI
    scope: Scope
    unguarded: list[tuple[float, float]]

    async def kill(self, component: str, sig: signal.Signals) -> None:
        """Send a signal to a component and wait until it is gone."""
        ...

    async def start(self, component: str) -> None:
        """Start it again and wait until it is ready."""
        ...

    async def holds(self) -> Mapping[str, Mapping[str, int]]:
        """Policy -> node -> slots, as the extender says; empty where it cannot be asked."""
        ...

    def delay_answers(self, seconds: float) -> None:
        """From now on the API server's answers to the extender are so late."""
        ...

    async def create_as_tenant(self, body: Mapping[str, Any], refusal: str) -> str:
        """Create an object as a tenant: "", or why it was refused. refusal: text that is expected in it."""
        ...


@dataclass(slots=True)
class LabTarget:
    """A lab cluster with its extender."""

    api: KubernetesAPI
    scope: Scope
    cluster: Cluster
    extender: ExtenderProcess | None
    standby: ExtenderProcess | None
    lapses: bool
    """Whether floors may break while the extender is away."""
    late: LateAnswers | None = None
    unguarded: list[tuple[float, float]] = field(default_factory=list)
    _tenant_admitted: bool = False

    async def kill(self, component: str, sig: signal.Signals) -> None:
        """Send a signal to a component and wait until it is gone."""
        if component == "extender" and self.lapses:
            self.unguarded.append((time.time(), float("inf")))
        if component == "kube-scheduler":
            await asyncio.to_thread(self.cluster.kill, component, sig)
        else:
            await asyncio.to_thread(self._process(component).kill, sig)

    async def start(self, component: str) -> None:
        """Start it again and wait until it is ready."""
        if component == "kube-scheduler":
            await asyncio.to_thread(self.cluster.start, component)
            return
        process = self._process(component)
        await asyncio.to_thread(process.restart)
        await asyncio.to_thread(process.wait_ready, _READY_SECONDS)
        if component == "extender" and self.unguarded:
            self.unguarded[-1] = (self.unguarded[-1][0], time.time())

    def delay_answers(self, seconds: float) -> None:
        """From now on the API server's answers to the extender are so late."""
        if self.late is None:
            raise TargetError(
                "there is no extender whose answers could be late: enable it under cluster.extender"
            )
        self.late.delay(seconds)

    async def create_as_tenant(self, body: Mapping[str, Any], refusal: str) -> str:
        """Create an object as a tenant: "", or why it was refused. refusal: text that is expected in it."""
        return await asyncio.to_thread(self._create_as_tenant, body, refusal)

    def _create_as_tenant(self, body: Mapping[str, Any], refusal: str) -> str:
        if not self._tenant_admitted:
            tenant.install(self.cluster)
            tenant.admit(self.cluster, self.scope.namespace)
            self._tenant_admitted = True
        return tenant.wait_for_answer(self.cluster, body, refusal) or tenant.create(self.cluster, body)

    def _process(self, component: str) -> ExtenderProcess:
        found = self.extender if component == "extender" else self.standby
        if found is None:
            raise TargetError(f"there is no {component}: enable it under cluster.extender")
        return found

    async def holds(self) -> Mapping[str, Mapping[str, int]]:
        """Policy -> node -> slots, as the extender says; empty where there is none."""
        if self.extender is None:
            return {}
        timeout = aiohttp.ClientTimeout(total=10)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{self.extender.url}/holds") as answer,
        ):
            answer.raise_for_status()
            return holds_of(await answer.json())


def holds_of(body: Any) -> dict[str, dict[str, int]]:
    """GET /holds as policy -> node -> slots."""
    return {
        policy["policy"]: {hold["nodeName"]: hold["slots"] for hold in policy["holds"]}
        for policy in body["policies"]
    }


@asynccontextmanager
async def lab_target(
    scenario: Scenario,
    run: Run,
    file: Path,
    programs: Binaries,
    *,
    keeper: Keeper = Keeper.EXTENDER,
    keep: bool = False,
) -> AsyncIterator[LabTarget]:
    """A fresh control plane, with the extender ready before the scenario begins. With placeholders as keeper
    kube-scheduler's configuration names no extender.
    """
    wanted = run.extender or scenario.cluster.extender
    name = f"scenario-{secrets.token_hex(3)}"
    document = scheduler_config.load(file.parent / scenario.cluster.scheduler_config)
    if not wanted.enabled or keeper is Keeper.PLACEHOLDERS:
        document.pop("extenders", None)
    elif not wanted.binds:
        document = scheduler_config.without_bind(document)
    cluster = await asyncio.to_thread(
        lambda: lab_cluster.up(
            name,
            binaries=programs,
            scheduler_config=document,
            keep=keep,
        )
    )
    try:
        if scenario.cluster.raises_requests:
            await asyncio.to_thread(requests.install, cluster)
        if scenario.cluster.gates_gangs:
            await asyncio.to_thread(gangs.install, cluster)
        if scenario.cluster.autoscaler is not None:
            await asyncio.to_thread(_autoscale, cluster, scenario.cluster.autoscaler)
        late = None
        if wanted.enabled and any(step.delay_answers is not None for step in scenario.steps):
            late = await asyncio.to_thread(late_answers.start, cluster)
        kubeconfig = late.kubeconfig if late else None
        if keeper is Keeper.PLACEHOLDERS and wanted.enabled:
            wanted = await asyncio.to_thread(_with_placeholders, cluster, wanted)
        schedulers = schedulers_of(document)
        extender, standby = await asyncio.to_thread(_extenders, cluster, wanted, schedulers, kubeconfig)
        async with KubernetesAPI.from_kubeconfig(cluster.kubeconfig, timeouts=_PATIENT) as api:
            scope = Scope("scenario", scenario.name)
            away = wanted.mode != "Strict" and keeper is Keeper.EXTENDER
            yield LabTarget(api, scope, cluster, extender, standby, away, late)
    finally:
        if not keep:
            await asyncio.to_thread(lab_cluster.down, name)


def _with_placeholders(cluster: Cluster, wanted: Extender) -> Extender:
    placeholders.install(cluster)
    return wanted.model_copy(update={"config": {**placeholders.config(cluster), **wanted.config}})


def schedulers_of(document: Mapping[str, Any]) -> frozenset[str]:
    """Names under which pods are scheduled by a KubeSchedulerConfiguration."""
    profiles = document.get("profiles") or [{}]
    return frozenset(profile.get("schedulerName", "default-scheduler") for profile in profiles)


def _extenders(
    cluster: Cluster, wanted: Extender, schedulers: frozenset[str], kubeconfig: Path | None
) -> tuple[ExtenderProcess | None, ExtenderProcess | None]:
    if not wanted.enabled:
        return None, None
    config = {"schedulerNames": sorted(schedulers), "binds": wanted.binds, **wanted.config}
    cap = f"--cap-percent={wanted.cap_percent}"
    start = functools.partial(extender_process.start, cluster, mode=wanted.mode, config=config)
    first = start(extra=[cap, "--identity=extender"], kubeconfig=kubeconfig)
    first.wait_ready(_READY_SECONDS)
    if not wanted.standby:
        return first, None
    second = start(extra=[cap, "--identity=standby"], name=_STANDBY, config=placeholders.of_standby(config))
    second.wait_ready(_READY_SECONDS)
    return first, second


def _autoscale(cluster: Cluster, wanted: Autoscaler) -> None:
    karpenter.start(cluster, karpenter.programs(os.environ, binaries.silent), idle=wanted.idle)


@dataclass(slots=True)
class OwnTarget:
    """The user's own KWOK cluster: an extender must be configured there, and is left alone."""

    api: KubernetesAPI
    scope: Scope
    unguarded: list[tuple[float, float]] = field(default_factory=list)

    async def kill(self, component: str, sig: signal.Signals) -> None:
        """Refused: components of somebody's cluster are not ours to kill."""
        raise TargetError(
            f"cannot send {sig.name} to {component} in a cluster of yours: run it without --kubeconfig"
        )

    async def start(self, component: str) -> None:
        """Refused likewise."""
        raise TargetError(f"cannot start {component} in a cluster of yours: run it without --kubeconfig")

    async def holds(self) -> Mapping[str, Mapping[str, int]]:
        """Not known: the extender's address is not."""
        return {}

    def delay_answers(self, seconds: float) -> None:
        """Refused likewise."""
        raise TargetError(f"cannot delay answers by {seconds:g} s in a cluster of yours")

    async def create_as_tenant(self, body: Mapping[str, Any], refusal: str) -> str:
        """Refused likewise: rights and rules of admission there are not ours to make."""
        asked = f"whether a tenant's {body['metadata']['name']} is refused by {refusal!r}"
        raise TargetError(f"cannot try {asked} in a cluster of yours")


@asynccontextmanager
async def own_target(scenario: Scenario, run: Run, kubeconfig: Path | None) -> AsyncIterator[OwnTarget]:
    """The cluster of a kubeconfig; what the run created there is deleted afterwards, and nothing else."""
    refuse_own(scenario, run)
    unique = f"{scenario.name}-{secrets.token_hex(3)}"
    async with KubernetesAPI.from_kubeconfig(kubeconfig or _default_kubeconfig(), timeouts=_PATIENT) as api:
        target = OwnTarget(api, Scope(f"j10ce-{unique}", unique, own_nodes_only=True))
        try:
            yield target
        finally:
            await clean_up(api, target.scope)


def refuse_own(scenario: Scenario, run: Run) -> None:
    """TargetError when a scenario needs what only a lab cluster has."""
    asks_too_much = {
        "kills components": any(step.kill or step.start for step in scenario.steps),
        "delays the API server's answers": any(s.delay_answers is not None for s in scenario.steps),
        "has requests raised": scenario.cluster.raises_requests,
        "has pods of gangs gated": scenario.cluster.gates_gangs,
        "has an autoscaler": scenario.cluster.autoscaler is not None,
        "acts as a tenant": any(step.tenant_applies for step in scenario.steps),
    }
    for what, asked in asks_too_much.items():
        if asked:
            raise TargetError(f"{scenario.name} {what}: it needs a lab cluster, run it without --kubeconfig")
    if run.extender is not None and not run.extender.enabled:
        raise TargetError(f"{scenario.name} runs without an extender: run it without --kubeconfig")


def _default_kubeconfig() -> Path | None:
    value = os.environ.get("KUBECONFIG")
    return Path(value) if value else None


async def clean_up(api: KubernetesAPI, scope: Scope) -> None:
    """Delete everything that carries the run's label, and its namespace."""
    with contextlib.suppress(NotFound):
        await api.delete(NAMESPACES, "", scope.namespace)
    for resource in (NODES, PRIORITY_CLASSES, PROFILES, BUDGETS, VOLUMES):
        for name in await _labelled(api, resource, scope):
            await api.delete(resource, "", name)


async def _labelled(api: KubernetesAPI, resource: Resource, scope: Scope) -> list[str]:
    names, token = [], ""
    while True:
        page = await api.list_page(resource, continue_token=token)
        metas = [decode.metadata(raw) for raw in page.items]
        names += [m.name for m in metas if (m.labels or {}).get(SCENARIO_LABEL) == scope.label]
        token = page.continue_token
        if not token:
            return names
