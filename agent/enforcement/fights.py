"""Files that somebody keeps changing back: repaired, then left alone for longer and longer. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from agent.enforcement.places import Place

MOST_REPAIRS: Final = 5
WINDOW: Final = 60.0
"""The most repairs of one file, within this many seconds, that are drift; one more is a fight."""
FIRST_PAUSE: Final = 60.0
LONGEST_PAUSE: Final = 3600.0
"""Seconds for which the file is left as the other wants it: doubled each time, up to the longest."""


class Verdict(Enum):
    """What to do about a file that was changed."""

    REPAIR = "repair"
    LEAVE = "leave"
    """A fight goes on, and its pause is not over."""
    ESCALATE = "escalate"
    """A fight begins, or its last try was undone: leave it, and say so."""


@dataclass(slots=True)
class Fight:
    """A file that somebody changes back again and again.

    `writer`: as agent/enforcement/writers.py names them; `began`, `until`: since when, and until when it is
    left alone, in seconds of the clock that is passed in; `rounds`: how often it was given up.
    `tried`: when it was repaired once more after the last pause, None: not yet.
    """

    place: Place
    writer: str
    began: float
    until: float
    rounds: int = 1
    tried: float | None = None


@dataclass(slots=True)
class Fights:
    """All files that were repaired lately, and what has become of them."""

    _repairs: dict[Place, deque[float]] = field(default_factory=dict)
    _fights: dict[Place, Fight] = field(default_factory=dict)

    def going_on(self) -> tuple[Fight, ...]:
        """The fights that go on, the oldest first."""
        return tuple(self._fights.values())

    def __contains__(self, place: object) -> bool:
        return place in self._fights

    def changed(self, place: Place, writer: str, now: float) -> Verdict:
        """Somebody changed the file; REPAIR counts as done."""
        fight = self._fights.get(place)
        if fight is not None and not self._is_over(fight, now):
            return self._again(fight, writer, now)
        self._fights.pop(place, None)
        times = self._repairs.setdefault(place, deque())
        while times and times[0] <= now - WINDOW:
            times.popleft()
        if len(times) < MOST_REPAIRS:
            times.append(now)
            return Verdict.REPAIR
        del self._repairs[place]
        self._fights[place] = Fight(place, writer, now, now + FIRST_PAUSE)
        return Verdict.ESCALATE

    def forget(self, path: str) -> None:
        """The cgroup is gone."""
        self._repairs = {place: times for place, times in self._repairs.items() if place.path != path}
        self._fights = {place: fight for place, fight in self._fights.items() if place.path != path}

    def sweep(self, now: float) -> tuple[Fight, ...]:
        """Forget old repairs; answer the fights that are over, because nobody undid the last try."""
        self._repairs = {place: times for place, times in self._repairs.items() if times[-1] > now - WINDOW}
        over = tuple(fight for fight in self._fights.values() if self._is_over(fight, now))
        for fight in over:
            del self._fights[fight.place]
        return over

    def _again(self, fight: Fight, writer: str, now: float) -> Verdict:
        if now < fight.until:
            return Verdict.LEAVE
        if fight.tried is None:
            fight.tried = now
            return Verdict.REPAIR
        pause = min(FIRST_PAUSE * 2**fight.rounds, LONGEST_PAUSE)
        fight.rounds, fight.writer, fight.tried, fight.until = fight.rounds + 1, writer, None, now + pause
        return Verdict.ESCALATE

    def _is_over(self, fight: Fight, now: float) -> bool:
        """The last try has held; or there was nothing to repair any more, long after the pause."""
        quiet_since = fight.until + WINDOW if fight.tried is None else fight.tried
        return now >= quiet_since + WINDOW
