"""What a start waits for: every list, and for a time those that not every cluster serves or needs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from adapters.api import (
    AUTOSCALERS,
    BUDGETS,
    NAMESPACES,
    NODE_QOS,
    POD_GROUPS,
    QUOTAS,
    RESERVATIONS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
)
from adapters.kubernetes.reflector import Reflector
from extender.catalog import Catalog
from extender.scale_targets import ScaleTargets

log = logging.getLogger(__name__)

_PATIENCE: Final = 10.0
"""Seconds that a start waits for a list which may not be served, once all else is listed."""


class Hearing:
    """The lists by their plural, and what has been heard of them. `clock`: seconds, monotonic.

    `needed`: those without which the verbs do not answer. Not among them are the nodes' reports (without
    them all but Strict policies go on), budgets (who upgrades from a version without them needs the verbs
    meanwhile), what is watched once a policy asks for it, and Reservations, ElasticQuotas and PodGroups,
    which not every cluster defines.
    """

    def __init__(
        self,
        reflectors: Mapping[str, Reflector],
        catalog: Catalog,
        targets: ScaleTargets,
        *,
        clock: Callable[[], float],
    ) -> None:
        volumes = [reflectors[one.plural] for one in (VOLUME_CLAIMS, VOLUMES, STORAGE_CLASSES)]
        self._asked_for = dict.fromkeys(volumes, catalog.asks_for_volumes)  # most clusters have thousands
        self._asked_for[reflectors[AUTOSCALERS.plural]] = catalog.asks_for_autoscalers
        self._reports = reflectors[NODE_QOS.plural]
        self._budgeting = [reflectors[one.plural] for one in (BUDGETS, NAMESPACES)]
        self._reserving = reflectors.get(RESERVATIONS.plural)
        self._quoting = reflectors.get(QUOTAS.plural)
        self._grouping = reflectors.get(POD_GROUPS.plural)
        optional = [
            self._reports,
            self._reserving,
            self._quoting,
            self._grouping,
            *self._asked_for,
            *self._budgeting,
        ]
        self.needed = {name: one for name, one in reflectors.items() if one not in optional}
        self._names = {one: name for name, one in reflectors.items()}
        self._targets = targets
        self._clock = clock

    @property
    def last_report(self) -> float:
        """When the API server last answered about the nodes' reports."""
        return self._reports.last_answer

    @property
    def reports(self) -> bool:
        """Whether the nodes' reports are listed and watched."""
        return self._reports.synced.is_set() and not self._reports.stale(self._clock())

    @property
    def budgets(self) -> bool:
        """Whether budgets and Namespaces are listed."""
        return all(one.synced.is_set() for one in self._budgeting)

    @property
    def reservations(self) -> bool:
        """Whether Reservations are listed."""
        return self._reserving is not None and self._reserving.synced.is_set()

    @property
    def quotas(self) -> bool:
        """Whether ElasticQuotas are listed."""
        return self._quoting is not None and self._quoting.synced.is_set()

    def run_of(self, reflector: Reflector) -> Callable[[], Awaitable[None]]:
        """How it is watched: from now on, or once a policy asks for it."""
        asked = self._asked_for.get(reflector)
        return reflector.run if asked is None else partial(_once_asked, reflector, asked)

    async def all(self) -> None:
        """Wait for the lists that are not needed, as long as each is worth."""
        await self._hear_reports()
        await self._hear_budgets()
        await self._hear_reservations()
        await self._hear_quotas()
        await self._hear_scale_targets()
        await self._hear_what_policies_ask_for()

    async def _hear_reports(self) -> None:
        """Strict policies' holds are placed once, by what nodes say; but nobody else waits for that long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reports.answered.wait(), _PATIENCE)
        if not self._reports.synced.is_set():
            log.warning("nodeqoses not listed then=%r", "Strict policies find no node until they are")

    async def _hear_budgets(self) -> None:
        """What budgets do not give must not be held for a moment, unless there is nothing to read."""
        for one in self._budgeting:
            await one.answered.wait()
        if not self.budgets:
            log.warning(
                "reservationbudgets or namespaces not listed then=%r",
                "No budget limits policies until they are",
            )

    async def _hear_reservations(self) -> None:
        """What they reserve is held from the start, unless nobody serves them yet."""
        if self._reserving is None:
            return
        await self._reserving.answered.wait()
        if not self.reservations:
            log.warning(
                "reservations.scheduling.koordinator.sh not listed then=%r",
                "Reservations hold nothing until their definition is installed and may be read",
            )

    async def _hear_quotas(self) -> None:
        """No pod is bound beyond its quota right after a start, unless nobody serves them yet."""
        if self._quoting is None:
            return
        await self._quoting.answered.wait()
        if not self.quotas:
            log.warning(
                "elasticquotas.scheduling.sigs.k8s.io not listed then=%r",
                "No quota limits pods until their definition is installed and may be read",
            )

    async def _hear_scale_targets(self) -> None:
        """Slots of a workload of any kind are held from the start, where its replicas can be known."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._targets.heard(), _PATIENCE)

    async def _hear_what_policies_ask_for(self) -> None:
        """Slots lie where they belong from the start, where that can be known."""
        awaited = [one for one, asked in self._asked_for.items() if asked.is_set()]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(one.answered.wait() for one in awaited)), _PATIENCE)
        for one in awaited:
            if not one.synced.is_set():
                log.warning("%s not listed then=%r", self._names[one], "slots are held as if there were none")


async def _once_asked(reflector: Reflector, asked: asyncio.Event) -> None:
    await asked.wait()
    await reflector.run()
