"""Interfaces at which somebody undoes what we make, again and again: then they have it. Pure.

Counted as files of cgroups are (agent.enforcement.fights): more than five repairs in a minute are a fight,
and what we made goes. It is tried again after a minute, and after twice as long each time that is undone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from agent.enforcement.fights import Fights, Verdict
from agent.enforcement.places import Place
from qos.network.wanted import HtbTree, Tbf, Wanted

_KEY = "qdisc"

log = logging.getLogger(__name__)


class Contested:
    """now: seconds of one clock."""

    def __init__(self) -> None:
        self._fights = Fights()

    def __len__(self) -> int:
        return len(self._fights.going_on())

    def given_up(self, now: float) -> frozenset[int]:
        """The interfaces that are left to others for now."""
        self._fights.sweep(now)
        return frozenset(int(one.place.path) for one in self._fights.going_on() if now < one.until)

    def made(self, interfaces: AbstractSet[int], before: Wanted, wanted: Wanted, now: float) -> None:
        """Something was made at these. Where nothing else is wanted than before, another had undone it."""
        then, since = _at(before), _at(wanted)
        for interface in interfaces & then.keys() & since.keys():
            if then[interface] != since[interface]:
                continue
            if self._fights.changed(Place(str(interface), _KEY), "", now) is Verdict.ESCALATE:
                log.warning(
                    "somebody undoes again and again what is made at an interface: left alone interface=%d",
                    interface,
                )

    def keep(self, interfaces: Iterable[int]) -> None:
        """Forget all interfaces but these: the others are gone."""
        there = {str(interface) for interface in interfaces}
        for fight in self._fights.going_on():
            if fight.place.path not in there:
                self._fights.forget(fight.place.path)


def _at(wanted: Wanted) -> Mapping[int, HtbTree | Tbf]:
    trees: dict[int, HtbTree | Tbf] = {one.interface: one for one in wanted.trees}
    return trees | {one.interface: one for one in wanted.buckets}
