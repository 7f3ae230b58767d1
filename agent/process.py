"""The process: it serves from its first second, and keeps floors once no other agent of the node does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, disable_created_metrics

from adapters.api import APIError, ClusterAPI, Unreachable
from adapters.atomic_file import make_folder
from adapters.kubernetes.reflector import Backoff
from adapters.kubernetes.reviews import Reviews
from adapters.kubernetes.wire import DecodeError
from adapters.own_certificate import server_context
from agent.config import AGENT_LOCK, AgentConfig
from agent.network.publishing import withdraw
from agent.nri.instance import only_instance
from agent.program import Agent
from agent.reporting import Identity
from agent.restoring import leave_as_found
from agent.serving import METRICS, Refresh, serving, serving_metrics
from kernel import facts

log = logging.getLogger(__name__)


async def keep(config: AgentConfig, api: ClusterAPI | None, identity: Identity, stop: asyncio.Event) -> None:
    """Keep this node's floors until `stop` is set, once no other agent does.

    OSError when an address, a folder or a lock cannot be had; kernel.refused.Refused: there are no cgroups.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a _created series helps nobody
    registry = CollectorRegistry()
    at_work: list[Agent] = []

    def not_ready() -> str:
        return at_work[0].not_ready() if at_work else "another agent keeps this node: this one stands by"

    async def refresh() -> None:
        if at_work:
            await at_work[0].refresh()

    make_folder(config.run)
    make_folder(config.state)
    async with (
        serving(config.address, registry, lambda: "", not_ready, refresh) as (host, port),
        _metrics_for_others(config, api, registry, refresh),
    ):
        log.info("serving address=%s:%d node=%s", host, port, config.node or "standalone")
        async with _alone(config.run / AGENT_LOCK, stop):
            if not stop.is_set():
                at_work.append(Agent(config, api, identity, registry))
                await at_work[0].run(stop)


@contextlib.asynccontextmanager
async def _metrics_for_others(
    config: AgentConfig, api: ClusterAPI | None, registry: CollectorRegistry, refresh: Refresh
) -> AsyncIterator[None]:
    """/metrics by HTTPS, where that is wanted."""
    if config.metrics_address is None or api is None:
        yield
        return
    tls = server_context(config.node, config.metrics_address[0], config.run)
    asks = Reviews(api, METRICS).access
    async with serving_metrics(config.metrics_address, registry, tls, asks, refresh) as (host, port):
        log.info("serving metrics address=%s:%d by=https", host, port)
        yield


async def restore_and_stay(config: AgentConfig, api: ClusterAPI | None, stop: asyncio.Event) -> None:
    """Leave the node as it was found, once no agent keeps it, and say so at /readyz until `stop` is set.

    What an agent published in the Node is taken out of it, for which the API server is waited for; None:
    there is none. OSError when an address, a folder or a lock cannot be had.
    """
    problem = "another agent keeps this node: nothing is put back yet"
    make_folder(config.run)
    async with (
        serving(config.address, CollectorRegistry(), lambda: "", lambda: problem),
        _alone(config.run / AGENT_LOCK, stop),
    ):
        if not stop.is_set():
            mounts = facts.mounts(config.proc)
            done = await asyncio.to_thread(
                leave_as_found, mounts, config.run, config.state, config.nri_socket, config.proc
            )
            for one in done.left:
                log.error("not put back %s", one)
            log.info("put back files=%d left=%d", done.files, len(done.left))
            left = f"not put back: {'; '.join(done.left)}" if done.left else ""
            async for why in _withdrawing(api, config.node):
                problem = "; ".join(filter(None, (left, why)))
            await stop.wait()


async def _withdrawing(
    api: ClusterAPI | None, node: str, jitter: Callable[[], float] = random.random
) -> AsyncIterator[str]:
    """Why the Node still offers what an agent published in it, as long as it does; then ""."""
    backoff = Backoff(first=1.0, most=30.0)
    while api is not None:
        try:
            await withdraw(api, node)
        except (APIError, Unreachable, DecodeError) as error:
            why = f"the bandwidth in the status of node {node} is still there: {error}"
            log.warning(why)
            yield why
            await asyncio.sleep(backoff.pause(jitter()))
        else:
            break
    yield ""


@contextlib.asynccontextmanager
async def _alone(lock: Path, stop: asyncio.Event) -> AsyncIterator[None]:
    """One agent a node: another one, during an upgrade, waits until this one is gone, or until `stop`."""
    waiting = partial(log.warning, "another agent keeps this node: standing by lock=%s", lock)
    async with contextlib.AsyncExitStack() as stack:
        taking = asyncio.ensure_future(stack.enter_async_context(only_instance(lock, waiting=waiting)))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([taking, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not taking.done():
            taking.cancel()
        else:
            taking.result()
        yield
