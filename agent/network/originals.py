"""What was at interfaces before ours, kept through restarts of the agent; a boot empties it.

RUN/network-originals, written as a whole before the kernel is changed; fields are separated by one TAB:

    j10ce-network-originals  1
    root    INDEX  NAME  KIND    ours took the place of the kernel's own qdisc of this kind
    clsact  INDEX  NAME          made by us
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from adapters import atomic_file
from agent.network.records import Device

NAME: Final = "network-originals"
_HEADER: Final = "j10ce-network-originals\t1"
_MOST_BYTES: Final = 1 << 20
_ROOT: Final = "root"
_CLSACT: Final = "clsact"

log = logging.getLogger(__name__)


class _Key(NamedTuple):
    what: str
    interface: int
    name: str


class Originals:
    """Reads RUN/network-originals when made. Raises nothing: a file that cannot be used is reported in the
    log, and what cannot be written is kept in memory and tried again in the next round.

    An interface is known by its index and its name together: another one may get either of them later.
    """

    def __init__(self, run: Path) -> None:
        self._file = run / NAME
        self._kinds: dict[_Key, str] = {}
        self._unwritten = False
        self._load()

    def held(self, devices: Mapping[int, Device]) -> frozenset[int]:
        """The interfaces, of those that are there, whose root qdisc ours took the place of."""
        return self._of(_ROOT, devices)

    def clsacts(self, devices: Mapping[int, Device]) -> frozenset[int]:
        """The same of those at which we made clsact."""
        return self._of(_CLSACT, devices)

    def kind(self, device: Device) -> str:
        """What its root qdisc was before ours, "" where that is not known."""
        return self._kinds.get(_Key(_ROOT, device.index, device.name), "")

    def note_roots(self, kinds: Iterable[tuple[Device, str]]) -> None:
        """Ours is about to take the place of these. What was noted first stays: later ones are drift."""
        self._add({_Key(_ROOT, device.index, device.name): kind for device, kind in kinds})

    def note_clsacts(self, devices: Iterable[Device]) -> None:
        """We are about to make clsact at these."""
        self._add({_Key(_CLSACT, device.index, device.name): "" for device in devices})

    def keep(self, devices: Mapping[int, Device]) -> None:
        """Forget interfaces that are gone."""
        self._set({key: kind for key, kind in self._kinds.items() if _is_there(key, devices)})

    def forget_roots(self, interfaces: Iterable[int]) -> None:
        """We have taken ours away there: what others put there from now on is theirs."""
        gone = set(interfaces)
        kinds = self._kinds.items()
        self._set({key: kind for key, kind in kinds if key.what != _ROOT or key.interface not in gone})

    def forget(self, interfaces: Iterable[int]) -> None:
        """Nothing of ours is at these any more."""
        gone = set(interfaces)
        self._set({key: kind for key, kind in self._kinds.items() if key.interface not in gone})

    def _of(self, what: str, devices: Mapping[int, Device]) -> frozenset[int]:
        return frozenset(key.interface for key in self._kinds if key.what == what and _is_there(key, devices))

    def _add(self, more: Mapping[_Key, str]) -> None:
        self._set({**more, **self._kinds})

    def _set(self, kinds: dict[_Key, str]) -> None:
        if kinds == self._kinds and not self._unwritten:
            return
        self._kinds = kinds
        lines = [_HEADER, *("\t".join(map(str, (*key, kind))) for key, kind in kinds.items())]
        try:
            atomic_file.write(self._file, "".join(f"{line}\n" for line in lines).encode())
            self._unwritten = False
        except OSError as error:
            self._unwritten = True
            log.warning(
                "network originals not kept file=%s why=%r: tried again later", self._file, error.strerror
            )

    def _load(self) -> None:
        try:
            lines = atomic_file.read(self._file, _MOST_BYTES).decode().splitlines()
        except FileNotFoundError:
            return
        except (OSError, ValueError, atomic_file.Untrusted) as error:
            log.warning("network originals cannot be used file=%s why=%r", self._file, str(error))
            return
        if not lines or lines[0] != _HEADER:
            log.warning("network originals cannot be used file=%s: another version's", self._file)
            return
        for line in lines[1:]:
            fields = line.split("\t")
            if len(fields) == 4 and fields[1].isdecimal():
                self._kinds[_Key(fields[0], int(fields[1]), fields[2])] = fields[3]


def _is_there(key: _Key, devices: Mapping[int, Device]) -> bool:
    device = devices.get(key.interface)
    return device is not None and device.name == key.name
