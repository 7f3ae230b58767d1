"""Koordinator's Reservations, resolved into the ledger's demands; work per change, not per pod."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ledger.ledger import Ledger
from qos.cluster.objects import Demand
from qos.cluster.precedence import PriorityClass, PriorityClasses, Problem
from qos.cluster.reservation import Reservation, demand_of, key_of
from qos.keys import HIGHEST_USER_PRIORITY

log = logging.getLogger(__name__)


class Reservations:
    """What Reservations ask for. Nothing reaches the ledger before `open`: until then lists are incomplete.

    `wall`: seconds since the epoch, for those that expire; `catch_up` looks.
    """

    def __init__(
        self,
        ledger: Ledger,
        changed: Callable[[], None],
        *,
        wall: Callable[[], float],
        highest_priority: int = HIGHEST_USER_PRIORITY,
    ) -> None:
        self._ledger = ledger
        self._changed = changed
        self._wall = wall
        self._open = False
        self._due: dict[str, None] = {}
        self._expiring: dict[str, float] = {}
        self._classes: dict[str, PriorityClass] = {}
        self._highest = highest_priority
        self.known: dict[str, Reservation] = {}
        self.resolved: dict[str, Demand | Problem] = {}

    def open_in_steps(self) -> Iterator[None]:
        """Every list is in: resolve all, one a step, and each change from now on."""
        self._open = True
        self._due.update(dict.fromkeys(self.known))
        yield from self.catch_up()

    @property
    def due(self) -> bool:
        """Whether `catch_up` has work to do, but for those that have just expired."""
        return self._open and bool(self._due)

    def catch_up(self) -> Iterator[None]:
        """Resolve those that are due, or have expired, one a step."""
        if self._open and self._expiring:
            now = self._wall()
            self._due.update((key, None) for key, end in self._expiring.items() if end <= now)
        while self._open and self._due:
            key = next(iter(self._due))
            del self._due[key]
            if key in self.known:
                self._resolve(self.known[key])
                self._changed()
                yield

    def set(self, one: Reservation) -> None:
        """Take a Reservation as it is now, at once: who reads that it is Available may send its pod."""
        before = self.known.get(one.key)
        if before is not None and before.uid != one.uid:
            self.remove(one.name)
        self.known[one.key] = one
        if self._open:
            self._due.pop(one.key, None)
            self._resolve(one)
        self._changed()

    def remove(self, name: str) -> None:
        """Release what it held."""
        key = key_of(name)
        if self.known.pop(key, None) is not None:
            self._expiring.pop(key, None)
            self._release(key)
            self._changed()

    def set_priority_class(self, name: str, value: int, global_default: bool) -> None:
        """Take a PriorityClass as it is now."""
        self._classes[name] = PriorityClass(value, global_default)
        self._follow(name)

    def remove_priority_class(self, name: str) -> None:
        """Forget a PriorityClass."""
        self._classes.pop(name, None)
        self._follow(name)

    def _follow(self, name: str) -> None:
        self._due.update((key, None) for key, one in self.known.items() if one.priority_class_name == name)

    def _resolve(self, one: Reservation) -> None:
        now = self._wall()
        self._expiring.pop(one.key, None)
        if one.over or one.expired(now):
            self._release(one.key)
            return
        if one.expires is not None:
            self._expiring[one.key] = one.expires
        before = self.resolved.get(one.key)
        found = demand_of(one, PriorityClasses(self._classes, self._highest))
        if found == before:
            return
        if isinstance(found, Problem):
            self._release(one.key)
            log.warning("reservation has a problem reservation=%s reason=%s", one.name, found.reason)
        else:
            if isinstance(before, Demand) and _is_shared(before) != _is_shared(found):
                self._ledger.remove_demand(one.key)  # who used it up, or fills it, counts in another way now
            self._ledger.set_demand(found)
        self.resolved[one.key] = found

    def _release(self, key: str) -> None:
        if isinstance(self.resolved.pop(key, None), Demand):
            self._ledger.remove_demand(key)


def _is_shared(demand: Demand) -> bool:
    return demand.reserved is not None and demand.reserved.shared is not None
