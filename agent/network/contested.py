"""Interfaces at which somebody undoes what we make, again and again: then they have it. Pure.

Counted as files of cgroups are (agent.enforcement.fights): more than five repairs in a minute are a fight,
and what we made goes. It is tried again after a minute, and after twice as long each time that is undone.
Qdiscs with their classes, and filters with their programs, are counted apart.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from agent.enforcement.fights import Fights, Verdict
from agent.enforcement.places import Place
from qos.network.wanted import HtbTree, Tbf, Wanted

_QDISC: Final = "qdisc"
_FILTER: Final = "filter"

log = logging.getLogger(__name__)


class GivenUp(NamedTuple):
    """Interfaces that are left to others, by whose qdisc, and by whose filters, they undo."""

    qdiscs: frozenset[int] = frozenset()
    filters: frozenset[int] = frozenset()


NOTHING_GIVEN_UP: Final = GivenUp()


class Contested:
    """now: seconds of one clock."""

    def __init__(self) -> None:
        self._fights = Fights()

    def __len__(self) -> int:
        return len(self._fights.going_on())

    def given_up(self, now: float) -> GivenUp:
        """What is left to others for now."""
        self._fights.sweep(now)
        left = [one.place for one in self._fights.going_on() if now < one.until]
        qdiscs, filters = (
            frozenset(int(place.path) for place in left if place.key == key) for key in (_QDISC, _FILTER)
        )
        return GivenUp(qdiscs, filters)

    def made(self, interfaces: AbstractSet[int], before: Wanted, wanted: Wanted, now: float) -> None:
        """Something was made at these. Where nothing else is wanted than before, another had undone it."""
        then, since = _at(before), _at(wanted)
        for interface in interfaces & then.keys() & since.keys():
            if then[interface] == since[interface]:
                self._undone(interface, _QDISC, now)

    def hung_again(self, interfaces: AbstractSet[int], now: float) -> None:
        """Filters or programs that hung at these were not there any more, or others beside them."""
        for interface in interfaces:
            self._undone(interface, _FILTER, now)

    def _undone(self, interface: int, what: str, now: float) -> None:
        if self._fights.changed(Place(str(interface), what), "", now) is Verdict.ESCALATE:
            log.warning(
                "somebody undoes again and again what is made at an interface: left alone interface=%d "
                "what=%s", interface, what,
            )  # fmt: skip

    def keep(self, interfaces: Iterable[int]) -> None:
        """Forget all interfaces but these: the others are gone."""
        there = {str(interface) for interface in interfaces}
        for fight in self._fights.going_on():
            if fight.place.path not in there:
                self._fights.forget(fight.place.path)


def _at(wanted: Wanted) -> Mapping[int, HtbTree | Tbf]:
    trees: dict[int, HtbTree | Tbf] = {one.interface: one for one in wanted.trees}
    return trees | {one.interface: one for one in wanted.buckets}
