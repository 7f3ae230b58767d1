"""What others wanted in the files that we set, kept through restarts of the agent; a boot empties it.

RUN/originals is a journal: each change is one line that is appended before the kernel's file is written, and
now and then the whole is written anew. Fields are separated by one TAB (shown as blanks):

    j10ce-originals  1
    PATH  SLOT  WRITTEN  VALUE    the last value of ours, and of others; no VALUE: theirs is not known
    PATH  SLOT                    forgotten
    PATH                          the cgroup is gone

The last line about a place counts; one without its newline was never finished, and counts for nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from agent.enforcement.places import Place

NAME: Final = "originals"
BAD: Final = f"{NAME}.bad"
"""What could not be read, as it was: kernel files of ours are in it, and what others wanted there is lost."""
LIMIT: Final = 64 << 20
_MAGIC: Final = "j10ce-originals"
_VERSION: Final = 1
_SPARE_LINES: Final = 1000
_MOST_SEEDS: Final = 10_000
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC

log = logging.getLogger(__name__)


class Record(NamedTuple):
    """`written`: what we wrote last, or found to be as we want it; `original`: None where it is not known."""

    written: str
    original: str | None


class Originals(Mapping[tuple[str, str], str]):
    """(cgroup's path, FileKey) -> what others want there; what is not known is left out.

    Reads RUN/originals when made; a file that cannot be used is reported in the log and moved aside
    (originals.bad), one with damaged lines is copied there. One of a newer version stays as it is: then
    nothing is kept on the disk, and what is in the kernel may be ours, so `newer` is true and no first look
    counts. Raises nothing: what cannot be written is kept in memory and tried again with the next change.
    kept: False: the file is only read. name: the file's, of another journal of such places than kernel files.
    """

    def __init__(self, run: Path, *, kept: bool = True, name: str = NAME) -> None:
        self._file, self._bad = run / name, run / f"{name}.bad"
        self._kept = kept
        self._records: dict[Place, Record] = {}
        self._at: dict[str, set[Place]] = {}
        self._lines = 0
        self._seeds: dict[Place, str] = {}
        self._earlier: dict[Place, str] = {}
        self._sound = False
        """The file has all that is known: one may append to it."""
        self._refused = False
        self.newer = False
        self._load()

    def __getitem__(self, key: tuple[str, str]) -> str:
        original = self._records[Place(*key)].original
        if original is None:
            raise KeyError(key)
        return original

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return (place for place, record in self._records.items() if record.original is not None)

    def __len__(self) -> int:
        return sum(1 for record in self._records.values() if record.original is not None)

    def items(self) -> ItemsView[tuple[str, str], str]:
        """All of them at once: thousands are asked for in each pass."""
        known: dict[tuple[str, str], str] = {
            place: record.original for place, record in self._records.items() if record.original is not None
        }
        return known.items()

    def record(self, place: Place) -> Record | None:
        """What is known of a place; `written` is "" for what was seeded and never written since."""
        found = self._records.get(place)
        return found if found is not None or place not in self._seeds else Record("", self._seeds[place])

    def earlier(self, place: Place) -> str | None:
        """What we had written before the last one that the journal says, until something is noted: an agent
        that was killed had noted that one, and may not have written it.
        """
        return self._earlier.get(place)

    def at(self, path: str) -> frozenset[Place]:
        """The places of one cgroup of which something is known."""
        return frozenset(self._at.get(path, ()))

    def paths(self) -> tuple[str, ...]:
        """The cgroups of which something is known."""
        return tuple(self._at)

    def note(self, records: Mapping[Place, Record]) -> None:
        """What is known now; on the disk before this returns, where the disk takes it."""
        changed = {place: record for place, record in records.items() if self._records.get(place) != record}
        for place in records:
            self._earlier.pop(place, None)
        for place, record in changed.items():
            self._put(place, record)
            self._seeds.pop(place, None)
        self._append([_line(place, record) for place, record in changed.items()])

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """What is noted meanwhile is in memory only. Who puts everything back and is killed on the way finds
        what was ours as ours: noted first and not written, it would be another's.
        """
        kept, self._kept = self._kept, False
        try:
            yield
        finally:
            self._kept = kept

    def seed(self, path: str, values: Mapping[str, str]) -> None:
        """What others want, where NRI lets us say ours before theirs is written: when made, when updated.

        values: by file. Of files that we know nothing of yet it counts until the first look, and is in memory
        only: of a container that never starts nothing stays but this, up to a bound.
        """
        places = {Place(path, file): value for file, value in values.items()}
        known = {place: self._records[place] for place in places if place in self._records}
        self.note({place: record._replace(original=places[place]) for place, record in known.items()})
        self._seeds.update({place: value for place, value in places.items() if place not in known})
        while len(self._seeds) > _MOST_SEEDS:
            del self._seeds[next(iter(self._seeds))]

    def forget(self, places: Iterable[Place]) -> None:
        """These places are again as others want them."""
        gone = [place for place in dict.fromkeys(places) if place in self._records]
        for place in gone:
            self._remove(place)
        self._append([f"{place.path}\t{place.key}\n" for place in gone])

    def drop(self, path: str) -> None:
        """The cgroup is gone."""
        if path in self._at:
            self._remove_all(path)
            self._append([f"{path}\n"])

    def _put(self, place: Place, record: Record) -> None:
        self._earlier.pop(place, None)
        self._records[place] = record
        self._at.setdefault(place.path, set()).add(place)

    def _remove(self, place: Place) -> None:
        del self._records[place]
        self._at[place.path].remove(place)
        if not self._at[place.path]:
            del self._at[place.path]

    def _remove_all(self, path: str) -> None:
        for place in self._at.pop(path, ()):
            del self._records[place]

    def _append(self, lines: list[str]) -> None:
        if not lines or self.newer or not self._kept:
            return
        try:
            if not self._sound or self._lines + len(lines) > 2 * len(self._records) + _SPARE_LINES:
                self._rewrite()
            else:
                self._sound = False  # until all of it is there
                _write(os.open(self._file, _APPEND), "".join(lines))
                self._sound = True
                self._lines += len(lines)
            self._refused = False
        except OSError as error:
            if not self._refused:  # said once
                self._refused = True
                log.warning(
                    "originals not kept file=%s why=%r: tried again later", self._file, error.strerror
                )

    def _rewrite(self) -> None:
        """The whole, beside the old one and renamed."""
        passing = self._file.with_name(f".{self._file.name}.new")
        lines = [_line(place, record) for place, record in self._records.items()]
        _write(os.open(passing, _MAKE, 0o600), "".join((f"{_MAGIC}\t{_VERSION}\n", *lines)), sync=True)
        passing.rename(self._file)
        self._sound, self._lines = True, len(lines)

    def _load(self) -> None:
        try:
            text = _text(self._file)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self._set_aside(str(error))
            return
        header, _, body = text.partition("\n")
        magic, _, version = header.partition("\t")
        if magic != _MAGIC or not version.isdecimal() or int(version) < _VERSION:
            self._set_aside(f"it begins with {header[:40]!r}")
        elif int(version) > _VERSION:
            self.newer = True
            log.warning(
                "originals are of a newer version file=%s version=%s known=%d: left alone; settings that are "
                "no longer planned are not put back", self._file, version, _VERSION,
            )  # fmt: skip
        else:
            self._take(body)

    def _take(self, body: str) -> None:
        lines = body.split("\n")
        self._sound = lines.pop() == ""
        bad = [line for line in lines if not self._taken(line.split("\t"))]
        self._lines = len(lines)
        if bad or not self._sound:
            self._sound = False  # the next change writes the whole anew
            log.warning("originals are damaged file=%s lines=%d first=%r: those are lost", self._file,
                        len(bad) + 1 - bool(bad), (bad or ["its end"])[0][:80])  # fmt: skip
        if bad and self._kept:  # an end that is missing was never written into the kernel either
            self._copy_aside(body)

    def _copy_aside(self, body: str) -> None:
        try:
            _write(os.open(self._bad, _MAKE, 0o600), f"{_MAGIC}\t{_VERSION}\n{body}")
        except OSError as error:
            log.warning("originals cannot be copied file=%s why=%r", self._bad, error.strerror)

    def _taken(self, fields: list[str]) -> bool:
        path = fields[0]
        if not path.startswith("/") or len(fields) > 4:
            return False
        if len(fields) == 1:
            self._remove_all(path)
        elif len(fields) > 2:
            place = Place(path, fields[1])
            before = self._records.get(place)
            self._put(place, Record(fields[2], fields[3] if len(fields) == 4 else None))
            if before is not None and before.written:
                self._earlier[place] = before.written
        elif Place(path, fields[1]) in self._records:
            self._remove(Place(path, fields[1]))
        return True

    def _set_aside(self, why: str) -> None:
        log.warning("originals cannot be used file=%s why=%r kept_as=%s", self._file, why, self._bad)
        if not self._kept:
            return
        try:
            self._file.rename(self._bad)
        except OSError as error:
            log.warning("originals cannot be moved file=%s why=%r", self._file, error.strerror)


def _line(place: Place, record: Record) -> str:
    """ "" for a cgroup whose name would break the line: it is known until the agent ends."""
    fields = [*place, record.written, *(() if record.original is None else (record.original,))]
    if any("\t" in field or "\n" in field for field in fields):
        return ""
    return "\t".join(fields) + "\n"


def _write(fd: int, text: str, sync: bool = False) -> None:
    data = text.encode()
    try:
        while data:
            data = data[os.write(fd, data) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def _text(file: Path) -> str:
    """The content. OSError; ValueError for what is not a plain file of ours alone."""
    fd = os.open(file, _READ)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise ValueError("must be a plain file of mode 0600, owned by root (the user that runs this)")
        data = b""
        while (chunk := os.read(fd, 1 << 20)) and len(data) <= LIMIT:
            data += chunk
    finally:
        os.close(fd)
    if len(data) > LIMIT:
        raise ValueError(f"longer than {LIMIT} bytes")
    return data.decode()
