"""Takes away what an extender asked autoscalers for: this one is not configured to ask. The leader does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from adapters.api import (
    CAPACITY_BUFFERS,
    POD_TEMPLATES,
    APIError,
    ClusterAPI,
    NotFound,
    Resource,
    Unreachable,
)
from adapters.kubernetes import buffers
from adapters.kubernetes.buffers import Seen
from adapters.kubernetes.scale import has_kind
from adapters.kubernetes.wire import DecodeError

log = logging.getLogger(__name__)

SECONDS: Final = 2.0
"""Between two looks whether this extender may, or the API server answers by now."""
_PAGE: Final = 500


class Unasking:
    """Deletes our CapacityBuffers and PodTemplates. `done`: nothing is left that it may delete."""

    def __init__(self, api: ClusterAPI, *, count: Callable[[str], None]) -> None:
        self.done = False
        self._api = api
        self._count = count

    async def run_once(self) -> None:
        """Look for them and delete them; where the API server does not answer, a later call goes on."""
        if self.done:
            return
        try:
            for resource in CAPACITY_BUFFERS:  # each version shows all objects
                if await self._served(resource):
                    await self._clear(resource, buffers.seen_buffer)
                    await self._clear(POD_TEMPLATES, buffers.seen_template)
                    break
        except (APIError, DecodeError) as error:
            # Who was never configured to ask has no right to look, and nothing there.
            log.info("capacitybuffers not looked through error=%s", error)
        except Unreachable:
            return
        self.done = True

    async def until_done(self, once: Callable[[], Awaitable[object]], failed: Callable[[str], None]) -> None:
        """Call `once`, which is run_once while this extender may, until all is done."""
        while not self.done:
            try:
                await once()
            except Exception:
                failed("buffers")
                log.exception("loop failed loop=buffers")
            await asyncio.sleep(SECONDS)

    async def _served(self, resource: Resource) -> bool:
        try:
            return has_kind(resource, await self._api.served(resource.group, resource.version))
        except NotFound:
            return False

    async def _clear(self, resource: Resource, read: Callable[[bytes], Seen | None]) -> None:
        token = ""
        while True:
            page = await self._api.list_page(resource, limit=_PAGE, continue_token=token)
            for raw in page.items:
                await self._delete(resource, raw, read)
            token = page.continue_token
            if not token:
                return

    async def _delete(self, resource: Resource, raw: bytes, read: Callable[[bytes], Seen | None]) -> None:
        try:
            one = read(raw)
        except DecodeError as error:
            log.warning("not readable resource=%s error=%s", resource.plural, error)
            return
        if one is None:
            return
        namespace, _, name = one.key.partition("/")
        try:
            await self._api.delete(resource, namespace, name, uid=one.uid)
        except NotFound:
            return
        self._count("deleted")
        log.info("deleted resource=%s object=%s", resource.plural, one.key)
