"""The programs that tell whose packets are whose: loaded, their maps kept, hung in where packets pass."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Final, NamedTuple

from agent.network import classifying, dump
from agent.network.bpf import filling, installed, programs
from agent.network.bpf.difference import addresses_of, cgroups_of
from agent.network.bpf.installed import Done, Installed
from agent.network.bpf.links import Hook
from agent.network.bpf.pins import MOUNTED_AT, Pins
from agent.network.netlink import Netlink
from agent.network.originals import Originals
from agent.network.records import EGRESS, INGRESS, NAME, Found
from qos.network.wanted import Wanted

_CLASSIFY, _MARK = "classify", "mark"
_HOOKS: Final = {EGRESS: Hook.TCX_EGRESS, INGRESS: Hook.TCX_INGRESS}
_GONE: Final = (errno.ENODEV, errno.ENOENT)
"""Pods end while we look."""


class Ports(NamedTuple):
    """Indexes of interfaces. nics: those through which packets leave the node. pods: hosts' ends of veths."""

    nics: frozenset[int]
    pods: frozenset[int]


class _Place(NamedTuple):
    """One program at one interface; parent: EGRESS or INGRESS."""

    interface: int
    parent: int
    program: str


class Classifier:
    """For one thread at a time. tcx: hang it in there, else as a filter of clsact. bpf_root: of the BPF file
    system.

    Methods raise BpfError, classifying.Occupied, NetlinkError; ValueError where a map is too small for all.
    """

    def __init__(
        self, netlink: Netlink, originals: Originals, *, tcx: bool, bpf_root: str = MOUNTED_AT
    ) -> None:
        self._netlink, self._originals = netlink, originals
        self._tcx, self._root = tcx, bpf_root
        self._pins: Pins | None = None
        self._installed: Installed | None = None
        self._filtered: set[tuple[int, int]] | None = None
        """(interface, parent) whose clsact has our filter; None: nobody has looked yet."""

    def settle(self, wanted: Wanted, ports: Ports, found: Found) -> int:
        """Packets of pods are told apart at these NICs, and nothing of ours is elsewhere.

        Where packets come in, too: behind a masquerade or in a tunnel no address tells whose they are.
        Returns how many changes that took.
        """
        places = list(_places(ports)) if ports.nics else []
        if self._others_read_marks(places, found):
            places = [place for place in places if place.program != _MARK]
        changes = self._keep(wanted, places, found) if places else self._nothing()
        staying = {(place.interface, place.parent) for place in places if not self._tcx}
        for one in self._with_filter(found) - staying:
            if one[0] in found.devices:
                changes += classifying.detach(self._netlink, *one)
        self._with_filter(found).intersection_update(staying)
        return changes

    def left(self) -> tuple[dict[bytes, int], dict[int, int]]:
        """What the maps have: address to class id, cgroup id to class id."""
        maps = self._opened().maps
        return addresses_of(maps["by_address"].items()), cgroups_of(maps["by_cgroup"].items())

    def close(self) -> None:
        """Descriptors alone: what is in the kernel goes on."""
        for one in (self._installed, self._pins):
            if one is not None:
                one.close()
        self._installed = self._pins = None

    def _keep(self, wanted: Wanted, places: list[_Place], found: Found) -> int:
        """The maps first, so that the programs meet no packet without them."""
        opened = self._opened()
        marks = any(place.program == _MARK for place in places)
        changes = filling.fill(opened, by_address=wanted.by_address, by_cgroup=wanted.by_cgroup, marks=marks)
        for place in places:
            try:
                changes += self._at_tcx(opened, place) if self._tcx else self._at_clsact(opened, place, found)
            except OSError as error:
                if place.program != _MARK or error.errno not in _GONE:
                    raise
        opened.sweep((place.program, _HOOKS[place.parent], place.interface) for place in places if self._tcx)
        return changes

    def _others_read_marks(self, places: list[_Place], found: Found) -> bool:
        """Whether a CNI's programs are where ours would mark: Cilium keeps flags of its own in tc_index."""
        clsacts = {one.interface for one in found.qdiscs if one.kind in ("clsact", "ingress")}
        marking = [place.interface for place in places if place.program == _MARK]
        return any(
            _others_at_tcx(interface) or (interface in clsacts and _others_filters(self._netlink, interface))
            for interface in marking
        )

    def _nothing(self) -> int:
        self.close()
        installed.uninstall(self._root)
        return 0

    def _at_tcx(self, opened: Installed, place: _Place) -> bool:
        return opened.attach(place.program, _HOOKS[place.parent], place.interface) is not Done.KEPT

    def _at_clsact(self, opened: Installed, place: _Place, found: Found) -> bool:
        program = opened.programs[place.program]
        have = classifying.query(self._netlink, place.interface, place.parent)
        self._with_filter(found).add((place.interface, place.parent))
        if have and programs.running(have.program).identity == programs.info(program).identity:
            return False
        if not any(one.interface == place.interface and one.kind == "clsact" for one in found.qdiscs):
            self._originals.note_clsacts([found.devices[place.interface]])
        name = f"{NAME}_{place.program}"
        classifying.attach(self._netlink, place.interface, program, name, place.parent)
        return True

    def _with_filter(self, found: Found) -> set[tuple[int, int]]:
        if self._filtered is None:
            clsacts = [one.interface for one in found.qdiscs if one.kind == "clsact"]
            both = [(interface, parent) for interface in clsacts for parent in (EGRESS, INGRESS)]
            self._filtered = {one for one in both if self._has_ours(*one)}
        return self._filtered

    def _has_ours(self, interface: int, parent: int) -> bool:
        try:
            return classifying.query(self._netlink, interface, parent) is not None
        except classifying.Occupied:
            return False

    def _opened(self) -> Installed:
        if self._installed is None:
            self.close()  # the folders of an attempt that failed
            self._pins = Pins(self._root)
            self._installed = Installed(self._pins, [_CLASSIFY, _MARK])
        return self._installed


def _places(ports: Ports) -> Iterator[_Place]:
    """Where packets come in before where they leave: so that none that is marked is looked at too early."""
    for interface in sorted(ports.pods - ports.nics):
        yield _Place(interface, INGRESS, _MARK)
    for interface in sorted(ports.nics):
        yield _Place(interface, EGRESS, _CLASSIFY)


def _others_at_tcx(interface: int) -> bool:
    try:
        return bool(installed.others(interface, Hook.TCX_INGRESS))
    except OSError as error:
        if error.errno not in (*_GONE, errno.EINVAL):  # a kernel without TCX
            raise
        return False


def _others_filters(netlink: Netlink, interface: int) -> bool:
    return any(
        one.parent == INGRESS and one.kind == "bpf" and not one.name.startswith(NAME)
        for one in dump.filters(netlink, interface)
    )
