"""PriorityClasses of ours: made when they are needed, and what owners are raised to once theirs is there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

from adapters.api import PRIORITY_CLASSES, APIError, ClusterAPI, Conflict, Unreachable
from adapters.kubernetes import priorities
from qos.cluster.objects import Demand
from qos.cluster.placeholders import owner_priority_of

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 10.0
"""After a class could not be made."""


async def provide(api: ClusterAPI, wanted: Mapping[str, Any]) -> None:
    """Make a PriorityClass unless it is there. Conflict: one of that name is there, and another. APIError."""
    try:
        await api.create(PRIORITY_CLASSES, "", wanted)
    except Conflict:
        there = orjson.loads(await api.get(PRIORITY_CLASSES, "", wanted["metadata"]["name"]))
        if any(there.get(field) != wanted[field] for field in ("value", "preemptionPolicy")):
            raise


class Raising:
    """What a policy's owners are raised to while nobody hands holds over; the API server does it.

    It refuses pods of a class that is not there, so nothing is said before the class was seen.
    `demands`: all policies'. `value_of`: a PriorityClass' value by its name, if there. `kept`: whether
    placeholders keep a policy, by key.
    """

    def __init__(
        self,
        api: ClusterAPI,
        demands: Callable[[], Iterable[Demand]],
        value_of: Callable[[str], int | None],
        *,
        kept: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._demands = demands
        self._value_of = value_of
        self._kept = kept
        self._clock = clock
        self._due = 0.0

    def raised(self, demand: Demand) -> int | None:
        """The priority that its owners are raised to; None: they are not."""
        value = self._wanted(demand)
        return value if value is None or self._value_of(priorities.of_owners(value)) == value else None

    def _wanted(self, demand: Demand) -> int | None:
        return owner_priority_of(demand) if demand.desired and self._kept(demand.key) else None

    async def run_once(self) -> None:
        """Make the classes that are missing."""
        if self._clock() < self._due:
            return
        wanted = {self._wanted(demand) for demand in self._demands()}
        for value in sorted(one for one in wanted if one is not None):
            name = priorities.of_owners(value)
            if self._value_of(name) == value:
                continue
            try:
                await provide(self._api, priorities.owner_class(value))
            except (APIError, Unreachable) as error:
                log.warning(
                    "PriorityClass not made name=%s then=%r error=%s", name, "owners are not raised", error
                )
                self._due = self._clock() + AGAIN_SECONDS
