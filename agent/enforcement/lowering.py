"""Limits of memory that are lowered below what is in use: in a worker, in steps, until a deadline.

The kernel reclaims within such a write, for as long as the disk takes. So nobody else waits for it: neither
the loop, nor the runtime, nor whoever wants the hook's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from agent.enforcement.originals import Originals, Record
from agent.enforcement.places import Place, same
from kernel import files, values
from kernel.allowed import ALLOWED, IN_USE
from kernel.refused import Gone, Refused
from qos.plan.controller import KILLS, THROTTLES, all_files

STEP: Final = 32 << 20
"""Bytes that one write reclaims: some 10 ms of clean page cache, a second of a slow disk's swap."""
TRY_SECONDS: Final = 30.0
"""For one limit; then it is left at what is in use, and tried again after a rest."""
REST_SECONDS: Final = 1.0
LONGEST_REST: Final = 600.0
AT_ONCE: Final = 4
"""The writes that may be under way together: one that hangs holds up no other cgroup."""
PATIENCE: Final = 1.0
"""Seconds to wait for one write before others begin."""
_WAIT: Final = 0.05
_LOOK: Final = 0.01
"""Seconds from one look at a limit that cannot be lowered yet to the next look at any: a few hundredths of a
core, however many there are.
"""
_SOON: Final = "it is lowered in steps, because what is in use has to be reclaimed first"
_LATE: Final = "more is in use and could not be reclaimed: it is tried again"

REACHED: Final = "reached"
OVERTAKEN: Final = "overtaken"
LATE: Final = "late"
REFUSED: Final = "refused"
OUTCOMES: Final = (REACHED, OVERTAKEN, LATE, REFUSED)

Write = Callable[[str, Place, str], None]
"""(mountpoint, place, value), in a thread; raises Refused."""


class _Change(Protocol):
    """kernel.change.Change, as far as it matters here."""

    value: str
    before: str


@dataclass(slots=True)
class _Job:
    """`at`: what we left in the file; `most`: what it held at first; `low`: the least that was in use in this
    try; `due`, `deadline`: on the clock, 0: no try has begun.
    """

    place: Place
    value: str
    at: str
    most: int
    why: str = _SOON
    due: float = 0.0
    deadline: float = 0.0
    began_with: int = 0
    rests: int = 0

    @property
    def target(self) -> int:
        """In bytes."""
        return _bytes(self.place.file, self.value)


def next_value(file: str, have: int, in_use: int, target: int) -> int | None:
    """What is written next, in bytes; None: nothing now. have: what the file holds. Pure.

    Nothing where the kernel would kill whom it cannot reclaim from.
    """
    if in_use <= target:
        return target
    return None if all_files()[file].unreclaimed == KILLS else max(target, min(have, in_use - STEP))


class Lowering:
    """The limits that are being lowered, one job a place. All but the writes happens on the loop.

    mounts: v1 controller, "" for cgroup v2 -> mountpoint. ended: called with a place when its limit was
    reached, or is left alone for a while, or when a write that was overtaken has come back. Nothing raises.
    """

    def __init__(
        self,
        mounts: Mapping[str, str],
        originals: Originals,
        clock: Callable[[], float] = time.monotonic,
        write: Write | None = None,
    ) -> None:
        self._mounts, self._originals, self._clock = mounts, originals, clock
        self._write = write or _written
        self.ended: Callable[[Place], None] = lambda _: None
        self._jobs: dict[Place, _Job] = {}
        self._flying: dict[Place, tuple[asyncio.Future[None], str]] = {}
        self._news = asyncio.Event()
        self.outcomes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._jobs)

    def __contains__(self, place: object) -> bool:
        return place in self._jobs

    def put(self, place: Place, change: _Change) -> None:
        """Lower it from now on, instead of what was wanted there before; the deadline stays."""
        job = self._jobs.get(place)
        if job is None:
            most = _bytes(place.file, change.before)
            self._jobs[place] = _Job(place, change.value, change.before, most)
        elif not (same(place.file, job.value, change.value) and same(place.file, job.at, change.before)):
            job.value, job.at, job.due, job.deadline = change.value, change.before, 0.0, 0.0
            job.most = max(job.most, _bytes(place.file, change.before))
        self._news.set()

    def drop(self, place: Place) -> None:
        """Something else is wanted there, and written. A write under way may come back later than that."""
        if self._jobs.pop(place, None) is not None:
            self.outcomes[OVERTAKEN] += 1

    def forget(self, path: str) -> None:
        """The cgroup is gone."""
        for place in [place for place in self._jobs if place.path == path]:
            del self._jobs[place]

    def why(self, places: Iterable[Place]) -> list[tuple[Place, str, str]]:
        """(place, wanted value, why it is not in effect) of those that are being lowered."""
        return [(place, self._jobs[place].value, self._jobs[place].why) for place in places if place in self]

    def explains(self, place: Place, have: str) -> bool:
        """Whether a file holds this because of us: somebody else's value is drift here as anywhere."""
        job, flying = self._jobs.get(place), self._flying.get(place)
        ours = ([job.at] if job else []) + ([flying[1]] if flying else [])
        return any(same(place.file, have, one) for one in ours)

    async def run(self) -> None:
        """Until cancelled; a write that is under way then ends by itself, and nothing follows it."""
        while True:
            await self._turn()

    async def finish(self, seconds: float) -> None:
        """Until all is lowered, or that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._jobs:
                    await self._turn()

    async def _turn(self) -> None:
        job = self._next()
        if job is None:
            await self._rest()
        else:
            await self._step(job)
            await asyncio.sleep(0)  # a step that writes nothing waits for nothing

    def _next(self) -> _Job | None:
        """One that is due; what comes first in a cgroup, or below it, holds up what follows."""
        if len(self._flying) >= AT_ONCE:
            return None
        held_up, due, now = set[str](), list[_Job](), self._clock()
        for job in sorted(self._jobs.values(), key=_order):
            path = job.place.path
            if path in held_up:
                continue
            while path and path not in held_up:
                held_up.add(path)
                path = path.rpartition("/")[0]
            if job.due <= now and job.place not in self._flying:
                due.append(job)
        return min(due, key=lambda job: job.due, default=None)

    async def _rest(self) -> None:
        now = self._clock()
        due = [job.due - now for job in self._jobs.values() if job.place not in self._flying]
        self._news.clear()
        pause = max(min(due, default=LONGEST_REST), _WAIT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._news.wait()

    async def _step(self, job: _Job) -> None:
        """One write, or the end of a try."""
        place = job.place
        try:
            have, in_use = self._look(place)
            if not job.deadline:
                job.deadline, job.began_with = self._clock() + TRY_SECONDS, in_use
            value = next_value(place.file, have, in_use, job.target)
            if have == job.target:
                self._done(job, REACHED)
            elif have != _bytes(place.file, job.at):  # somebody else's: drift notes it, and comes back to us
                job.due = self._clock() + REST_SECONDS
            elif self._clock() >= job.deadline:
                self._give_up(job, in_use, _LATE)
            elif value is None:
                job.due = self._clock() + max(_WAIT, _LOOK * len(self._jobs))
            else:
                await self._fly(job, value)
        except Gone:
            self._jobs.pop(place, None)
        except Refused as refused:
            self._give_up(job, 0, str(refused), REFUSED)

    async def _fly(self, job: _Job, value: int) -> None:
        """Noted before it is written, as everything is."""
        text = values.render(job.place.file, ("", (value,)))
        before, job.at, began = job.at, text, self._clock()
        self._note(job.place, text)
        mountpoint = self._mountpoint(job.place)
        future = _in_thread(lambda: self._write(mountpoint, job.place, text))
        self._flying[job.place] = future, text
        future.add_done_callback(lambda done: self._landed(job, before, began, done))
        await asyncio.wait({future}, timeout=PATIENCE)

    def _landed(self, job: _Job, before: str, began: float, done: asyncio.Future[None]) -> None:
        place, now = job.place, self._clock()
        self._flying.pop(place, None)
        self._news.set()
        if done.cancelled():
            return
        error = done.exception()
        if self._jobs.get(place) is not job:
            self.ended(place)  # what was wanted since may have been written over
            return
        job.due = now + (now - began)  # half of a core at most
        if error is None:
            if same(place.file, job.at, job.value):
                self._done(job, REACHED)
        elif isinstance(error, Gone):
            del self._jobs[place]
        else:
            job.at = before
            self._note(place, before)
            busy = isinstance(error, Refused) and error.errno in (errno.EBUSY, errno.EINTR)
            if busy:
                job.due = max(job.due, now + _WAIT)
            else:
                self._give_up(job, 0, str(error), REFUSED)

    def _give_up(self, job: _Job, in_use: int, why: str, outcome: str = LATE) -> None:
        """For now. What cannot be reclaimed is not throttled for it either."""
        forward = job.began_with - in_use >= STEP and outcome == LATE
        job.rests = 0 if forward else job.rests + 1
        job.due = self._clock() + min(REST_SECONDS * 2 ** min(job.rests, 10), LONGEST_REST)
        job.deadline, job.why = 0.0, why
        self.outcomes[outcome] += 1
        have = _bytes(job.place.file, job.at)
        eased = min(job.most, in_use + STEP)
        if outcome == LATE and all_files()[job.place.file].unreclaimed == THROTTLES and have < in_use:
            job.at = values.render(job.place.file, ("", (eased,)))
            self._note(job.place, job.at)
            with contextlib.suppress(Refused):  # it raises: nothing is reclaimed
                self._write(self._mountpoint(job.place), job.place, job.at)
        self.ended(job.place)

    def _done(self, job: _Job, outcome: str) -> None:
        self._jobs.pop(job.place, None)
        self.outcomes[outcome] += 1
        self.ended(job.place)

    def _look(self, place: Place) -> tuple[int, int]:
        group = files.opened(self._mountpoint(place), place.path)
        try:
            have = _bytes(place.file, group.read(place.file))
            return have, int(group.read(IN_USE[place.file]))
        except ValueError as error:
            raise Refused(str(error), place.path, place.file) from None
        finally:
            group.close()

    def _note(self, place: Place, value: str) -> None:
        record = self._originals.record(place) or Record(value, None)
        self._originals.note({place: record._replace(written=value)})

    def _mountpoint(self, place: Place) -> str:
        return self._mounts.get(ALLOWED[place.file][0]) or self._mounts.get("", "")


def _bytes(file: str, text: str) -> int:
    """As a number that compares; ValueError for garbage."""
    return values.present(file, text, ("", (0,)))[1][0]


def _order(job: _Job) -> tuple[int, int]:
    """As kernel.apply lowers: below before above, within a cgroup the last file first."""
    return -job.place.path.count("/"), -ALLOWED[job.place.file][4]


def _written(mountpoint: str, place: Place, value: str) -> None:
    group = files.opened(mountpoint, place.path)
    try:
        group.write(place.file, value)
    finally:
        group.close()


def _in_thread(work: Callable[[], None]) -> asyncio.Future[None]:
    """Its end is awaited by nobody who must end: executors' threads hold up the end of a process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def told(error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(told, error)

    threading.Thread(target=run, name="lowering", daemon=True).start()
    return future
