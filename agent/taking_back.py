"""Has the container runtime say of running containers what others want again, once no agent is there."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from agent.config import NRI_LOCK
from agent.nri.adjustment import adjustment_of
from agent.nri.plugin import NriPlugin
from agent.nri.records import Adjustment, LinuxResources, NriContainer, NriPod, State
from agent.nri.rpc import NriError
from agent.told import NAME, Told
from qos.plan.layout import runtime_path

CONNECT_SECONDS: Final = 20.0
"""Until a runtime has said what it has; it may be just starting."""
ALL_SECONDS: Final = 120.0
"""For all containers; the runtime needs some 20 ms for each."""


def take_back(socket: Path | None, run: Path) -> tuple[str, ...]:
    """What remains told, and why; () where nothing was told, or nothing of it is said any more.

    socket: the runtime's for NRI; None: nobody can be told. Raises nothing but OSError for our own files.
    """
    told = Told(run)
    bad = tuple(_unread(run))
    if not told.paths():
        return bad
    if socket is None or not socket.is_socket():
        return (*bad, *_untold(told.paths(), "there is no NRI socket " + str(socket or "named")))
    return (*bad, *asyncio.run(_by_nri(socket, run, told)))


def _unread(run: Path) -> Iterator[str]:
    if os.path.lexists(bad := run / f"{NAME}.bad"):
        yield (
            f"{bad} could not be read: what specs of containers say of ours is not known until they end or "
            "the node boots; remove it then"
        )


async def _by_nri(socket: Path, run: Path, told: Told) -> list[str]:
    listener = _Listener()
    plugin = NriPlugin(socket, listener, lock=run / NRI_LOCK, registry=CollectorRegistry())
    working = asyncio.create_task(plugin.run())
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            containers = await listener.containers
            await plugin.ready.wait()
        return [one async for one in _taken_back(plugin, told, containers)]
    except TimeoutError:
        return list(_untold(told.paths(), f"no container runtime answers at {socket}"))
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _taken_back(plugin: NriPlugin, told: Told, containers: list[NriContainer]) -> AsyncIterator[str]:
    """One at a time: one that is refused is named, and costs the others nothing."""
    there = {runtime_path(one.cgroups_path): one for one in containers if one.state is not State.STOPPED}
    last = time.monotonic() + ALL_SECONDS
    for path in sorted(told.paths()):
        container = there.get(path)
        back = told.to_take_back(path, container.resources) if container else {}
        texts = {file: text for file, text in back.items() if text is not None}
        try:
            if container and texts and time.monotonic() > last:
                raise NriError("the runtime took too long with others")
            if container and texts:
                await plugin.update({container.id: adjustment_of(texts)})
        except NriError as error:
            yield _left(path, str(error))
            continue
        told.ended(path)
        if lost := sorted(back.keys() - texts):
            yield _left(path, f"no update takes {', '.join(lost)} out of a spec")


def _untold(paths: Collection[str], why: str) -> Iterator[str]:
    return (_left(path, why) for path in sorted(paths))


def _left(path: str, why: str) -> str:
    return f"{path}: until it ends its runtime, and so systemd, may write what we had it say: {why}"


class _Listener:
    """NRI's handler: hears what there is, and has no wish of its own."""

    def __init__(self) -> None:
        self.containers: asyncio.Future[list[NriContainer]] = asyncio.get_running_loop().create_future()

    async def synchronize(self, _: list[NriPod], containers: list[NriContainer]) -> Mapping[str, Adjustment]:
        if not self.containers.done():
            self.containers.set_result(containers)
        return {}

    async def create(self, _: NriPod, __: NriContainer) -> Adjustment | None:
        return None

    async def update(self, _: NriPod, __: NriContainer, ___: LinuxResources) -> Adjustment | None:
        return None

    async def _pod(self, _: NriPod) -> None:
        pass

    async def _container(self, _: NriPod, __: NriContainer) -> None:
        pass

    pod_started = pod_updated = pod_gone = _pod
    starting = updated = stopped = removed = _container
