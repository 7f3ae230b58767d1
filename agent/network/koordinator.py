"""Koordinator's slo-controller-config, followed where it is: one ConfigMap, by its name.

No pod can mount a ConfigMap of another namespace, and Koordinator's users have theirs in Koordinator's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from adapters.api import CONFIG_MAPS, ClusterAPI
from adapters.kubernetes.config_map import config_map
from adapters.kubernetes.reflector import Reflector

DEFAULT: Final = "koordinator-system/slo-controller-config"
KEYS: Final = ("system-config", "resource-qos-config")
"""Those of its keys that say something of a node's network."""
_MOST_WAIT: Final = 60.0

log = logging.getLogger(__name__)


class SloControllerConfig:
    """key: namespace/name. kept: what was known last, by key; changed in place, then `changed` is called.

    What cannot be read stays as it was, also while the server is away or lets nobody look.
    Needs: list and watch of configmaps of that name.
    """

    def __init__(
        self,
        api: ClusterAPI,
        key: str,
        kept: dict[str, str],
        changed: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._key, self._kept, self._changed = key, kept, changed
        self._there = False
        namespace, _, name = key.partition("/")
        self._reflector = Reflector(
            api,
            CONFIG_MAPS,
            self._heard,
            self._gone,
            on_listed=self._listed,
            # RBAC goes by the name that a selector asks for (resourceNames).
            field_selector=f"metadata.namespace={namespace},metadata.name={name}",
            page_size=0,
            most_wait=_MOST_WAIT,
            clock=clock,
            sleep=sleep,
            jitter=jitter,
        )

    async def run(self) -> None:
        """Follow it until cancelled."""
        await self._reflector.run()

    def _heard(self, raw: bytes) -> str | None:
        found = config_map(raw)
        if found.key != self._key:
            return None
        self._there = True
        said, unread = readable(found.data, self._kept)
        for problem in unread:
            log.warning("network configuration not heeded configmap=%s why=%r", self._key, problem)
        self._take(said)
        return found.key

    def _gone(self, _: str) -> None:
        self._there = False
        self._take({})

    def _listed(self, _: float) -> None:
        if not self._there:
            self._take({})

    def _take(self, said: Mapping[str, str]) -> None:
        if said != self._kept:
            self._kept.clear()
            self._kept.update(said)
            self._changed()


def readable(data: Mapping[str, str], before: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What of it counts now, and what cannot be read; of that counts what was there before. Pure."""
    said: dict[str, str] = {}
    unread = []
    for key in KEYS:
        text = data.get(key, "")
        try:
            if text:
                json.loads(text)
        except (ValueError, RecursionError) as error:
            unread.append(f"{key}: {error}; what it said before counts")
            text = before.get(key, "")
        if text:
            said[key] = text
    return said, unread
