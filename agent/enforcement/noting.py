"""What is noted between looking at kernel files and writing them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from agent.enforcement.foreign import NEW, Look, seen
from agent.enforcement.found import Found
from agent.enforcement.index import FileIndex
from agent.enforcement.originals import Originals, Record
from agent.enforcement.places import Place, place, same
from agent.enforcement.writers import UNTOLD
from kernel.change import GATE, RAISE, WEIGHTS, Change
from kernel.refused import Refused
from kernel.values import SAME
from qos.plan.settings import PROCESS, Entry

Writers = Mapping[tuple[str, str], str]
"""(cgroup's path, file) -> who wrote it last: one of writers.WRITERS, ENDED or UNSEEN."""


@dataclass(slots=True)
class Notes:
    """What is remembered of kernel files.

    `says_ours`: whether a file holds what the runtime was told, so systemd may have written it for us.
    `untold`: who wrote what no event reported: writers.UNTOLD, or UNSEEN where events do not say who wrote.
    """

    originals: Originals
    index: FileIndex
    found: Found
    untold: str = UNTOLD
    says_ours: Callable[[Place, str], bool] = lambda _, __: False

    def after(self, there: Place, look: Look) -> Record:
        """What is known of a place after a look; what is ours at the first, the hook may have written.

        So is what an agent was killed before it wrote over it.
        """
        record = self.originals.record(there)
        if record is None and look.file not in NEW and same(look.file, look.have, look.want):
            before = self.found.value(there)
            record = Record("", before) if before is not None else None
        earlier = self.originals.earlier(there)
        if record is not None and earlier is not None and same(look.file, look.have, earlier):
            record = record._replace(written=look.have)
        if record is not None and record.written and self.says_ours(there, look.have):
            return record._replace(written=look.after)
        return seen(record, look, first_looks=not self.originals.newer)


class Noting:
    """For one kernel.apply.apply(): looked() is handed to it, undone() follows a refusal.

    own: the container's cgroup; entries: its settings; shared: all are for a cgroup that others use, too.
    """

    def __init__(
        self, notes: Notes, own: str, entries: Iterable[Entry], shared: bool, writers: Writers
    ) -> None:
        self._notes = notes
        self._own = own
        self._planned = {
            (level, place("", file, value).key): (shared or mode == RAISE, value)
            for level, mode, file, value in entries
        }
        self._writers = writers
        self._before: dict[Place, tuple[str, Record]] = {}

    def looked(self, changes: list[Change]) -> None:
        """Note what others want, before ours is written."""
        idle = {one.group.name for one in changes if one.file == GATE and one.before != "0"}
        for change in changes:
            self._notes.index.add(change)
            there = place_of(change, self._own)
            if change.file in WEIGHTS and change.group.name in idle:
                record = self._of_idle(there, change)
            else:
                record = self._after(there, change)
            self._before[there] = change.before, record
            if change.closes and change.direction != SAME:
                self._note_weight(change)
        self._notes.originals.note({there: record for there, (_, record) in self._before.items()})

    def places(self) -> tuple[Place, ...]:
        """What was looked at."""
        return tuple(self._before)

    def undone(self) -> None:
        """What was written is put back: the files hold what they held."""
        self._notes.originals.note(
            {there: record._replace(written=have) for there, (have, record) in self._before.items()}
        )

    def _after(self, there: Place, change: Change) -> Record:
        shared, planned = self._planned[change.level, there.key]
        writer = self._writers.get((there.path, change.file), self._notes.untold)
        own = there.path == self._own and not shared
        after = change.before if change.later else change.value
        look = Look(change.file, change.before, planned, after, own, shared, writer)
        return self._notes.after(there, look)

    def _of_idle(self, there: Place, change: Change) -> Record:
        """What an idle cgroup shows as its weight is the kernel's, and nobody wants it."""
        before = self._notes.originals.record(there)
        return Record(change.value, before.original if before else None)

    def _note_weight(self, gate: Change) -> None:
        """An idle cgroup loses its weight: it is noted as if it had been set."""
        try:
            file, value = gate.present_weight()
        except Refused:
            return
        there = Place(gate.group.name, file)
        if file and self._notes.originals.record(there) is None:
            self._before[there] = value, Record(value, value)


def place_of(change: Change, own: str) -> Place:
    """Where a change is made; of the process: the container's own cgroup stands for it."""
    device = change.want[0]
    path = own if change.level == PROCESS else change.group.name
    return Place(path, f"{change.file} {device}" if device else change.file)
