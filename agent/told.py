"""What the container runtime was told of each container, and what others want said there instead.

RUN/told is a journal as RUN/originals is: the container's cgroup, the file, the text that its spec was given
(agent.nri.adjustment), and the text that it would have without us. So a later process can take it back; with
systemd's driver the runtime passes it on to systemd, which else writes it again at each daemon-reload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from agent.enforcement.originals import Originals, Record
from agent.enforcement.places import Place, same
from agent.nri.adjustment import said, unsaid
from agent.nri.records import LinuxResources
from qos.plan.layout import CONVERSIONS

NAME: Final = "told"
NOBODY: Final = LinuxResources()
"""Asks for nothing."""
_WEIGHT: Final = "cpu.weight"


class Told:
    """Reads RUN/told when made, and keeps it as Originals is kept. kept: False: it is only read."""

    def __init__(self, run: Path, *, kept: bool = True) -> None:
        self._journal = Originals(run, kept=kept, name=NAME)

    def paths(self) -> frozenset[str]:
        """The cgroups of containers of which the runtime was told something."""
        return frozenset(self._journal.paths())

    def knows(self, place: Place) -> bool:
        """Whether the runtime was told of it."""
        return self._journal.record(place) is not None

    def note(
        self, path: str, told: Mapping[str, str], spec: LinuxResources, asked: LinuxResources = NOBODY
    ) -> None:
        """A container is about to be told these texts, by file. spec: what its spec says now; asked: what
        somebody else has just asked for.
        """
        places = {Place(path, file): text for file, text in told.items()}
        self._journal.note(
            {place: Record(text, self._theirs(place, spec, asked)) for place, text in places.items()}
        )

    def to_take_back(
        self, path: str, spec: LinuxResources | None, wanted: Collection[str] = ()
    ) -> dict[str, str | None]:
        """What a spec that still says ours shall say instead, by file; but for files that are still wanted.

        spec: what it says; None: what we told last. None as the text: a spec cannot be made to say that.
        """
        places = [place for place in sorted(self._journal.at(path)) if place.file not in wanted]
        records = {place.file: record for place in places if (record := self._journal.record(place))}
        return {
            file: record.original
            for file, record in records.items()
            if record.original != record.written and (spec is None or said(file, spec) == record.written)
        }

    def taken_back(self, path: str, files: Iterable[str]) -> None:
        """These are again as others want them."""
        self._journal.forget(Place(path, file) for file in files)

    def ended(self, path: str) -> None:
        """The container is gone."""
        self._journal.drop(path)

    def is_ours(self, place: Place, have: str) -> bool:
        """Whether a kernel file holds what the runtime was told, and so systemd: whoever wrote that."""
        record = self._journal.record(place)
        if record is None:
            return False
        if place.file != _WEIGHT:
            return same(place.file, have, record.written)
        return have.strip() in {str(convert(int(record.written))) for convert in CONVERSIONS}

    def _theirs(self, place: Place, spec: LinuxResources, asked: LinuxResources) -> str | None:
        """What somebody else has had said since we did is theirs."""
        wish, now = said(place.file, asked), said(place.file, spec)
        record = self._journal.record(place)
        if wish is None and record is not None and record.written == now:
            return record.original
        return wish or now or unsaid(place.file)
