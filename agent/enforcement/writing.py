"""Settings of one container, or of one shared cgroup, into the kernel; what others want is noted before."""

from __future__ import annotations

import contextlib
import errno
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from agent.enforcement.foreign import Look
from agent.enforcement.found import Found
from agent.enforcement.index import FileIndex
from agent.enforcement.inherited import due
from agent.enforcement.lowering import Lowering
from agent.enforcement.noting import Notes, Noting, Writers, place_of
from agent.enforcement.originals import Originals
from agent.enforcement.places import PROCESS_FILES, Place, Wanted, is_of_disk
from agent.state import ContainerKey, Running
from kernel import files, lock, processes, target
from kernel.apply import Outcome, Refusal, apply
from kernel.change import RAISE, SET, Change
from kernel.refused import Gone, Refused
from kernel.target import Target
from kernel.values import SAME
from qos.plan.settings import PROCESS, Entry

UNIFIED: Final = ""
PATIENCE: Final = 0.1
"""Seconds to wait for the lock: a hook has it for a millisecond or two."""
MOST_PROCESSES: Final = 1000
"""Of one container, that are looked at in one go: each takes some 10 us, and NRI waits meanwhile."""
_BY_PROCESSES: Final = ("memory", "cpu", UNIFIED)
_NOBODY: Final = ContainerKey("", "")

log = logging.getLogger(__name__)


class Differs(NamedTuple):
    """A file that does not hold what it shall."""

    place: Place
    have: str
    want: str


class Looked(NamedTuple):
    """What reading showed; `outcome` has what could not be read, and whether the cgroup is gone."""

    differ: tuple[Differs, ...]
    outcome: Outcome


class Writing:
    """Writes through kernel/. Remembers only what Originals keeps, and which file is which.

    What the kernel would reclaim for is written by `lowering`, and is in the outcome's `later`.

    mounts: v1 controller, "" for cgroup v2 -> mountpoint. run: the folder of the hook's lock. Deadlines are
    on time.monotonic(), 0: none. Methods raise nothing: refusals are in the outcome.
    """

    def __init__(
        self,
        mounts: Mapping[str, str],
        originals: Originals,
        run: Path,
        proc: str = "/proc",
    ) -> None:
        self.mounts = dict(mounts)
        self.notes = Notes(originals, FileIndex(), Found(run))
        self.lowering = Lowering(mounts, originals)
        self._proc = proc
        self._run = str(run)

    def container(
        self, running: Running, entries: Iterable[Entry], writers: Writers, deadline: float = 0.0
    ) -> Outcome:
        """All entries of a container, or none; without those of its process where it has none yet."""
        entries = list(entries)
        shared = any(mode == RAISE for _, mode, _, _ in entries)
        return self._written(shared, running, entries, writers, deadline)

    def cgroup(self, path: str, wanted: Mapping[Place, Wanted], writers: Writers) -> Outcome:
        """Settings of one cgroup, whichever container it belongs to; also of the processes in it."""
        return self._written(True, _nobodys(path), _entries(wanted), writers, 0.0)

    def look(self, running: Running, entries: Iterable[Entry]) -> Looked:
        """Which of them are not in effect, in all of its processes. Nothing is written."""
        entries, differ, outcome = list(entries), [], Outcome()
        whole = tuple(entries)
        try:
            with self._opened(running, entries) as found:
                for level, mode, file, value in entries:
                    change = Change(found.group(file, level), level, mode, file, value)
                    change.look()
                    if change.direction != SAME:
                        differ.append(Differs(place_of(change, running.cgroup), change.before, change.value))
                    elif level == PROCESS and running.key != _NOBODY:
                        differ += self._late(running, file, value, outcome)
            self._see_hidden(running, whole, entries, outcome)
        except Refused as refused:
            outcome.refuse(refused)
        return Looked(tuple(differ), self._ended(outcome, running))

    def look_at(self, path: str, wanted: Mapping[Place, Wanted]) -> Looked:
        """Which settings of one cgroup are not in effect; of its processes the first stands for all."""
        return self.look(_nobodys(path), _entries(wanted))

    def note(self, differs: Differs, writers: Writers, *, own: bool, shared: bool) -> None:
        """Somebody else wrote a file, and it stays so for now. own, shared: as foreign.Look has them."""
        there, have, want = differs
        writer = writers.get((there.path, there.file), self.notes.untold)
        record = self.notes.after(there, Look(there.file, have, want, have, own, shared, writer))
        self.notes.originals.note({there: record})

    def reclaims(self, path: str, file: str, value: str) -> bool:
        """Whether the kernel would reclaim within this write; one that is not there uses nothing."""
        try:
            with Target(self.mounts, dict.fromkeys(self.mounts, path)) as found:
                change = Change(found.group(file, 0), 0, SET, file, value)
                change.look()
                return change.reclaims()
        except Gone:
            return False
        except Refused:
            return True

    def there(self, path: str) -> bool:
        """Whether the cgroup is there, in any hierarchy."""
        for mountpoint in set(self.mounts.values()):
            try:
                files.opened(mountpoint, path).close()
            except Refused:
                continue
            return True
        return False

    def has_process(self, running: Running) -> bool:
        """Whether settings of its process can be written."""
        return self._first_process(running) > 1

    def _late(self, running: Running, file: str, want: str, outcome: Outcome) -> list[Differs]:
        """Of the processes after the first one, one that has not got what is planned."""
        there = Place(running.cgroup, file)
        is_due = due(want, self.notes.originals.record(there))
        reached = processes.look(self._mountpoint(), running.cgroup, self._proc, file, is_due, MOST_PROCESSES)
        _note_missed(reached, there, want, outcome)
        return [Differs(there, have, want) for have in reached.late[:1]]

    def _written(
        self, shared: bool, running: Running, entries: list[Entry], writers: Writers, deadline: float
    ) -> Outcome:
        """The processes after the first one come last, without the lock."""
        known = {
            file: self.notes.originals.record(Place(running.cgroup, file))
            for level, _, file, _ in entries
            if level == PROCESS
        }
        whole = tuple(entries)
        outcome = self._under_lock(shared, running, entries, writers, deadline)
        while (left := _without_lost_disk(entries, outcome)) is not None:
            entries = left
            outcome = self._under_lock(shared, running, entries, writers, deadline)
        self._see_hidden(running, whole, entries, outcome)
        for level, _, file, want in entries if outcome.applied else ():
            if level == PROCESS:
                before = [had for _, name, had, _ in outcome.written if name == file]
                self._reach(running, file, want, due(want, known[file], before), outcome)
        return outcome

    def _reach(
        self, running: Running, file: str, want: str, is_due: Callable[[str], bool], outcome: Outcome
    ) -> None:
        path = running.cgroup
        try:
            reached = processes.reach(
                self._mountpoint(), path, self._proc, file, want, is_due, MOST_PROCESSES
            )
            _note_missed(reached, Place(path, file), want, outcome)
        except Refused as refused:  # the cgroup is gone, or cannot be listed
            outcome.partly.append(Refusal(path, file, want, refused.errno, refused.text))

    def _see_hidden(
        self, running: Running, whole: Iterable[Entry], tried: Collection[Entry], outcome: Outcome
    ) -> None:
        """Note what was planned for a process and not tried, where there are some that we cannot see."""
        for level, _, file, want in (one for one in whole if one not in tried):
            if level == PROCESS:
                with contextlib.suppress(Refused):  # the cgroup is gone: there is none
                    path = running.cgroup
                    reached = processes.look(
                        self._mountpoint(), path, self._proc, file, lambda _: False, MOST_PROCESSES
                    )
                    _note_missed(reached, Place(path, file), want, outcome)

    def _mountpoint(self) -> str:
        """Of the hierarchy by which processes are found."""
        return next((self.mounts[name] for name in _BY_PROCESSES if name in self.mounts), "")

    def _under_lock(
        self, shared: bool, running: Running, entries: list[Entry], writers: Writers, deadline: float
    ) -> Outcome:
        held = -1
        try:
            with self._opened(running, entries) as found:
                if shared:
                    patience = time.monotonic() + PATIENCE
                    held = lock.take(self._run, min(deadline, patience) if deadline else patience)
                outcome = self._applied(found, running, entries, writers, deadline)
        except Refused as refused:
            outcome = Outcome()
            outcome.refuse(refused)
        finally:
            lock.release(held)
        return self._ended(outcome, running)

    def _ended(self, outcome: Outcome, running: Running) -> Outcome:
        """A cgroup is gone when no hierarchy has it; a pid that another process has by now looks like a
        refusal at first.
        """
        outcome.gone = bool(outcome.refusals) and not self.there(running.cgroup)
        return outcome

    def _opened(self, running: Running, entries: list[Entry]) -> Target:
        """What to write to, or to read; takes away the entries of a process that is not there."""
        of_process = [entry for entry in entries if entry[0] == PROCESS]
        pid = self._first_process(running) if of_process else 0
        if pid > 1:
            try:
                found = target.from_pid(pid, running.container_id, self._proc, self.mounts)
                if found.cgroup == running.cgroup:
                    return found
                found.close()
            except Gone:
                pass
        for entry in of_process:
            entries.remove(entry)
        return Target(self.mounts, dict.fromkeys(self.mounts, running.cgroup))

    def _first_process(self, running: Running) -> int:
        """The pid of its first process, or 0: none has started yet."""
        if running.pid > 1:
            return running.pid
        try:
            group = files.opened(self._mountpoint(), running.cgroup)
            try:
                return min(map(int, group.read("cgroup.procs").split()), default=0)
            finally:
                group.close()
        except Refused:
            return 0

    def _applied(
        self,
        found: Target,
        running: Running,
        entries: list[Entry],
        writers: Writers,
        deadline: float,
    ) -> Outcome:
        shared = running.key == _NOBODY
        noting = Noting(self.notes, running.cgroup, entries, shared, writers)
        outcome = apply(found, entries, deadline, noting.looked, put_off=True)
        if outcome.refusals:
            noting.undone()
        else:
            self._lower(
                noting.places(), {place_of(change, running.cgroup): change for change in outcome.later}
            )
        return outcome

    def _lower(self, written: Iterable[Place], later: Mapping[Place, Change]) -> None:
        for place in written:
            if place not in later:
                self.lowering.drop(place)
        for place, change in later.items():
            self.lowering.put(place, change)


def _note_missed(reached: processes.Reached, there: Place, want: str, outcome: Outcome) -> None:
    """Without their number, which changes from look to look."""
    if reached.missed:
        why = f"some of its processes do not have it: {reached.why}"
        outcome.partly.append(Refusal(there.path, there.key, want, 0, why))


def _without_lost_disk(entries: list[Entry], outcome: Outcome) -> list[Entry] | None:
    """The entries but for those of a disk that was detached, which needs no limit; None: nothing is lost."""
    why = outcome.refusals[0] if outcome.refusals else None
    if why is None or outcome.gone or why.errno != errno.ENODEV or not is_of_disk(why.file):
        return None
    disk = why.value.partition(" ")[0]
    log.info("disk is gone cgroup=%s file=%s disk=%s: its settings are left out", why.group, why.file, disk)
    return [one for one in entries if not is_of_disk(one[2]) or one[3].partition(" ")[0] != disk]


def _nobodys(path: str) -> Running:
    """With systemd the name is a scope's, and no id has that ending."""
    return Running(_NOBODY, path.rpartition("/")[2].removesuffix(".scope"), path)


def _entries(wanted: Mapping[Place, Wanted]) -> list[Entry]:
    return [
        (PROCESS if one.file in PROCESS_FILES else 0, want.mode, one.file, want.value)
        for one, want in wanted.items()
    ]
