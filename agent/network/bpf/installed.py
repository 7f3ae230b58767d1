"""Our programs on this node: loaded, their maps filled, hung in, replaced without a gap, and taken away
again.

In this order, so that no packet meets a program whose maps are empty: open, fill, attach. Pinned maps of the
same measures go on to be used, so what is in them (an idle pod's saved tokens, counts) survives the agent's
end. With another schema the maps are new, and what CARRIED names goes from the old ones into them. A program
that does the same to the same maps is left where it hangs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, Self

from agent.network.bpf import links, maps, objects, programs
from agent.network.bpf.difference import Changes, difference
from agent.network.bpf.elf import Object
from agent.network.bpf.links import TCX, Attached, Hook
from agent.network.bpf.maps import PREFIX, Map
from agent.network.bpf.pins import MOUNTED_AT, Pins, schemas
from agent.network.bpf.system import BpfError, close

HOOKS: Final[Mapping[str, tuple[Hook, ...]]] = {
    "classify": (Hook.TCX_EGRESS,),
    "classify_rx": (Hook.TCX_EGRESS,),
    "mark": (Hook.TCX_INGRESS,),
    "police_tx": TCX,
    "police_rx": TCX,
    "count_tx": (Hook.CGROUP_EGRESS,),
    "count_rx": (Hook.CGROUP_INGRESS,),
}
"""Where each program may hang. At the host's end of a veth what a pod sends comes in."""
CARRIED: Final = frozenset({"by_address", "by_cgroup", "limits", "buckets", "traffic"})
"""Maps whose entries mean the same in every schema: who has which class, saved tokens, counts."""


class Done(Enum):
    """What attaching came to. REPLACED: atomically, in the place of an older version of ours."""

    KEPT = "kept"
    REPLACED = "replaced"
    ATTACHED = "attached"


class Installed:
    """The programs and maps of these objects. Raises BpfError, ObjectError; then nothing that runs has
    changed.

    names: of objects: classify, mark, count, police, receive.
    batch: False for one map entry a call.
    """

    def __init__(self, pins: Pins, names: Iterable[str], *, batch: bool = True) -> None:
        self.pins = pins
        self.maps: dict[str, Map] = {}
        self.programs: dict[str, int] = {}
        """Program name -> descriptor: for a filter of clsact, too, where the kernel has no TCX."""
        self._hanging: dict[str, Attached] = {}
        """Pin -> what hangs there in our version: one question to the kernel tells whether it still does."""
        self._batch = batch
        try:
            for name in names:
                self._open(name, objects.load(name))
        except (BpfError, ValueError):
            self.close()
            raise

    def fill(self, name: str, wanted: Mapping[bytes, bytes]) -> Changes:
        """Make a map's entries these; what was changed.

        Raises BpfError; ValueError, before anything is written, where they are more than the map holds.
        """
        of = self.maps[name]
        if len(wanted) > of.shape.max_entries:
            raise ValueError(f"map {name} holds {of.shape.max_entries} entries, and {len(wanted)} are wanted")
        changes = difference(wanted, of.items())
        of.drop_all(changes.drop)  # first, so that there is room
        of.put_all(changes.put)
        return changes

    def attach(self, program: str, hook: Hook, target: int | str) -> Done:
        """See to it that this program, in this version, hangs there. Raises BpfError.

        target: an interface's index at TCX, else a cgroup's folder (v2).
        """
        if hook not in HOOKS[program]:
            raise ValueError(f"{program} cannot hang at {hook.name}")
        number = target if isinstance(target, int) else os.stat(target).st_ino  # noqa: PTH116
        fd, pin = self.programs[program], _pin_name(program, hook, number)
        if pin in self._hanging and self._hanging[pin] in links.at_interface(number, hook):
            return Done.KEPT
        link = self._own_link(pin, hook, number)
        if link is None:
            link = _attached(fd, hook, target)
            done = Done.ATTACHED
        elif programs.running(links.info(link).program).identity == programs.info(fd).identity:
            done = Done.KEPT
        else:
            links.replace(link, fd)
            done = Done.REPLACED
        try:
            if done is not Done.KEPT:
                self.pins.keep_link(pin, link)
            if hook in TCX:
                found = links.info(link)
                self._hanging[pin] = Attached(found.program, found.id)
        finally:
            close(link)
        return done

    def detach(self, program: str, hook: Hook, number: int) -> None:
        """Take it off again. number: an interface's index, or a cgroup's id. Raises BpfError."""
        _take_off(self.pins, _pin_name(program, hook, number))

    def sweep(self, wanted: Iterable[tuple[str, Hook, int]]) -> list[str]:
        """Take off all of ours but these; the pins that went.

        Of interfaces and cgroups that are gone, too.
        """
        names = {_pin_name(*one) for one in wanted}
        self._hanging = {name: one for name, one in self._hanging.items() if name in names}
        gone = [name for name in self.pins.links() if name not in names and _take_off(self.pins, name)]
        for schema in schemas(self.pins.root):
            if schema != self.pins.schema:  # of another version, whose links attach() took over
                _remove(self.pins.root, schema)
        return gone

    def close(self) -> None:
        """Close all descriptors; what is pinned and hung in goes on."""
        close(*(of.fd for of in self.maps.values()), *self.programs.values())
        self.maps.clear()
        self.programs.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, name: str, found: Object) -> None:
        types = -1
        try:
            for one in sorted({used for program in found.programs for used in program.maps.values()}):
                if one in self.maps or self._reuse(one, found):
                    continue
                types = types if types >= 0 else programs.load_types(found.types, name)
                self._create(one, found, types)
        finally:
            close(types)
        descriptors = {one: of.fd for one, of in self.maps.items()}
        for program in found.programs:
            self.programs[program.name] = programs.load(program, descriptors, found.license)

    def _reuse(self, name: str, found: Object) -> bool:
        fd = self.pins.map(name)
        if fd is None:
            return False
        if maps.info(fd).measures != found.maps[name].measures:
            close(fd)
            return False
        self.maps[name] = Map(fd, name, found.maps[name], batch=self._batch)
        return True

    def _create(self, name: str, found: Object, types: int) -> None:
        fd = maps.create(name, found.maps[name], types)
        self.maps[name] = Map(fd, name, found.maps[name], batch=self._batch)
        if name in CARRIED:
            self.maps[name].put_all(self._before(name, found))
        self.pins.keep_map(name, fd)

    def _before(self, name: str, found: Object) -> dict[bytes, bytes]:
        """What the version of another schema before us has in such a map; {} where it has none."""
        for schema in schemas(self.pins.root):
            if schema == self.pins.schema:
                continue
            with Pins(self.pins.root, schema) as others:
                fd = others.map(name)
            if fd is None:
                continue
            try:
                if maps.info(fd).measures == found.maps[name].measures:
                    return Map(fd, name, found.maps[name], batch=self._batch).items()
            finally:
                close(fd)
        return {}

    def _own_link(self, pin: str, hook: Hook, number: int) -> int | None:
        """The link that hangs there already: pinned by us, or by the version of another schema before us."""
        link = self.pins.link(pin)
        if link is None:
            link = self._inherited(pin)
        if link is None:
            return None
        found = links.info(link)
        if (found.target, found.hook) == (number, hook):
            return link
        close(link)  # somebody detached it, or its interface or cgroup is gone
        return None

    def _inherited(self, pin: str) -> int | None:
        for schema in schemas(self.pins.root):
            if schema == self.pins.schema:
                continue
            with Pins(self.pins.root, schema) as others:
                link = others.link(pin)
                if link is not None:
                    self.pins.keep_link(pin, link)
                    others.forget_link(pin)
                    return link
        return None


def others(interface: int, hook: Hook) -> list[str]:
    """Names of the programs at TCX there that are not ours.

    Raises BpfError: ENODEV where the interface is gone.
    """
    return [name for name in _names(interface, hook) if not name.startswith(PREFIX)]


def ours(interface: int, hook: Hook) -> list[str]:
    """Names of those that are, whoever pinned them. Raises BpfError."""
    return [name for name in _names(interface, hook) if name.startswith(PREFIX)]


def _names(interface: int, hook: Hook) -> list[str]:
    return [programs.running(one.program).name for one in links.at_interface(interface, hook)]


def uninstall(root: str = MOUNTED_AT) -> list[str]:
    """Take off all that is ours, of every schema, and remove its pins; what was left because it is not ours.

    Raises BpfError. Filters of clsact are no pins: who made them removes them.
    """
    return [left for schema in schemas(root) for left in _remove(root, schema)]


def _remove(root: str, schema: int) -> list[str]:
    with Pins(root, schema) as pins:
        for name in pins.links():
            _take_off(pins, name)
        for name in pins.maps():
            _let_go(pins, name)
        left = [f"{pins.where}/links/{name}" for name in pins.links()]
        left += [f"{pins.where}/maps/{name}" for name in pins.maps()]
        pins.remove()
    return left


def _take_off(pins: Pins, name: str) -> bool:
    """Whether it was ours."""
    with contextlib.suppress(BpfError):
        link = pins.link(name)
        if link is None:
            return False
        try:
            if not _is_ours(link):
                return False
            links.detach(link)
            pins.forget_link(name)
        finally:
            close(link)
        return True
    return False


def _let_go(pins: Pins, name: str) -> None:
    with contextlib.suppress(BpfError):
        fd = pins.map(name)
        if fd is not None:
            ours = maps.info(fd).name.startswith(PREFIX)
            close(fd)
            if ours:
                pins.forget_map(name)


def _is_ours(link: int) -> bool:
    return programs.running(links.info(link).program).name.startswith(PREFIX)


def _attached(program: int, hook: Hook, target: int | str) -> int:
    if isinstance(target, str):
        return links.attach_cgroup(program, target, hook)
    return links.attach(program, target, hook, f"interface {target}")


def _pin_name(program: str, hook: Hook, number: int) -> str:
    return f"{program}-{hook.name.lower()}-{number}"
