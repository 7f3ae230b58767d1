"""The programs that tell whose packets are whose: loaded, their maps kept, hung in where packets pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from agent.network.bpf import filling, installed
from agent.network.bpf.difference import addresses_of, cgroups_of
from agent.network.bpf.installed import Installed
from agent.network.bpf.pins import MOUNTED_AT, Pins
from agent.network.hanging import Hanging, Place, others_programs
from agent.network.netlink import Netlink
from agent.network.originals import Originals
from agent.network.records import EGRESS, INGRESS, Found
from qos.network.wanted import Wanted

_CLASSIFY: Final = "classify"
_MARK: Final = "mark"


class Ports(NamedTuple):
    """Indexes of interfaces. nics: those through which packets leave the node. pods: hosts' ends of veths."""

    nics: frozenset[int]
    pods: frozenset[int]


class Classifier:
    """For one thread at a time. tcx: hang it in there, else as a filter of clsact. bpf_root: of the BPF file
    system.

    Methods raise BpfError, classifying.Occupied, NetlinkError; ValueError where a map is too small for all.
    """

    def __init__(
        self, netlink: Netlink, originals: Originals, *, tcx: bool, bpf_root: str = MOUNTED_AT
    ) -> None:
        self._hanging = Hanging(netlink, originals, tcx=tcx)
        self._root = bpf_root
        self._pins: Pins | None = None
        self._installed: Installed | None = None

    def settle(self, wanted: Wanted, ports: Ports, found: Found) -> int:
        """Packets of pods are told apart at these NICs, and nothing of ours is elsewhere.

        Where packets come in, too: behind a masquerade or in a tunnel no address tells whose they are.
        Returns how many changes that took.
        """
        places = list(_places(ports)) if ports.nics else []
        if not places:
            return self._hanging.leave(found) + self._nothing()
        there = self._hanging.filters(places, found)
        if any(place.program == _MARK and others_programs(place, there) for place in places):
            # A CNI's programs are where ours would mark: Cilium keeps flags of its own in tc_index.
            places = [place for place in places if place.program != _MARK]
        opened = self._opened()
        marks = any(place.program == _MARK for place in places)
        # The maps first, so that the programs meet no packet without them.
        changes = filling.fill(opened, by_address=wanted.by_address, by_cgroup=wanted.by_cgroup, marks=marks)
        return changes + self._hanging.hang(opened, places, found, there)

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

    def _nothing(self) -> int:
        self.close()
        installed.uninstall(self._root)
        return 0

    def _opened(self) -> Installed:
        if self._installed is None:
            self.close()  # the folders of an attempt that failed
            self._pins = Pins(self._root)
            self._installed = Installed(self._pins, [_CLASSIFY, _MARK])
        return self._installed


def _places(ports: Ports) -> Iterator[Place]:
    """Where packets come in before where they leave: so that none that is marked is looked at too early."""
    for interface in sorted(ports.pods - ports.nics):
        yield Place(interface, INGRESS, _MARK, passing=True)
    for interface in sorted(ports.nics):
        yield Place(interface, EGRESS, _CLASSIFY, passing=False)
