"""The programs that tell whose packets are whose, or police them: loaded, their maps kept, hung in where
packets pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final, NamedTuple

from agent.network.bpf import filling, installed
from agent.network.bpf.difference import addresses_of, cgroups_of
from agent.network.bpf.installed import Installed
from agent.network.bpf.pins import MOUNTED_AT, Pins
from agent.network.hanging import Hanging, Place, has_others, others_programs
from agent.network.netlink import Netlink
from agent.network.originals import Originals
from agent.network.records import EGRESS, INGRESS, Found
from qos.network.wanted import Direction, Policer, Wanted

_CLASSIFY: Final = "classify"
_MARK: Final = "mark"
_POLICE: Final = "police"
_RECEIVE: Final = "receive"
_POLICES: Final = {
    # What a pod sends comes in at the host's end of its veth; what it receives goes out there.
    Direction.EGRESS: (INGRESS, "police_tx"),
    Direction.INGRESS: (EGRESS, "police_rx"),
}


class Ports(NamedTuple):
    """Indexes of interfaces. nics: those through which packets leave the node. pods: hosts' ends of veths.

    ifbs: NIC -> the IFB through which it receives, where it has one.
    """

    nics: frozenset[int]
    pods: frozenset[int]
    ifbs: Mapping[int, int] = MappingProxyType({})


class Told(NamedTuple):
    """What settling came to. changes: how many. outrun: interfaces of pods whose policer comes after
    another's filter, which may let packets go past it. hung_again: those at which what hung there was gone.
    """

    changes: int
    outrun: frozenset[int] = frozenset()
    hung_again: frozenset[int] = frozenset()


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
        self._names: AbstractSet[str] = frozenset()
        self._outrun: frozenset[int] = frozenset()
        """As Told has it, of the last time."""

    def settle(
        self,
        wanted: Wanted,
        ports: Ports,
        found: Found,
        policers: Sequence[Policer] = (),
        *,
        hasty: bool = False,
    ) -> Told:
        """Packets of pods are told apart at these NICs, and nothing of ours is elsewhere.

        Where packets come in, too: behind a masquerade or in a tunnel no address tells whose they are.
        policers: those that are in use. hasty: what hung there after the last time is believed to hang there.
        """
        places = [*_places(ports), *_policing(policers)]
        if not places:
            return Told(self._hanging.nothing(found) + self._nothing())
        asked = self._hanging.unknown(places) if hasty else places
        there = self._hanging.filters(asked, found)
        if any(place.program == _MARK and others_programs(place, there) for place in asked):
            # A CNI's programs are where ours would mark: Cilium keeps flags of its own in tc_index.
            places, asked = ([one for one in some if one.program != _MARK] for some in (places, asked))
        more = [name for name, used in ((_POLICE, policers), (_RECEIVE, ports.ifbs)) if used]
        opened = self._opened({_CLASSIFY, _MARK, *more})
        changes = filling.fill(  # the maps first, so that the programs meet no packet without them
            opened,
            by_address=wanted.by_address,
            by_cgroup=wanted.by_cgroup,
            by_interface=wanted.by_interface,
            limits={(one.class_id, one.direction): one.rate for one in policers},
            marks=any(place.program == _MARK for place in places),
        )
        outrun = {
            place.interface
            for place in self._hanging.as_filters(asked, there)
            if place.program != _MARK and place.passing and has_others(place, there)
        }
        looked_at = set(asked)
        believed = [place for place in places if place not in looked_at]
        outrun |= self._outrun & {place.interface for place in believed}
        self._outrun = frozenset(outrun)
        hung = self._hanging.hang(opened, asked, found, there, believed)
        return Told(changes + hung.changes, frozenset(outrun), hung.again)

    def left(self) -> tuple[dict[bytes, int], dict[int, int]]:
        """What the maps have: address to class id, cgroup id to class id."""
        maps = self._opened({_CLASSIFY, _MARK}).maps
        return addresses_of(maps["by_address"].items()), cgroups_of(maps["by_cgroup"].items())

    def close(self) -> None:
        """Descriptors alone: what is in the kernel goes on."""
        for one in (self._installed, self._pins):
            if one is not None:
                one.close()
        self._installed = self._pins = None

    def _nothing(self) -> int:
        self.close()
        self._names = frozenset()
        installed.uninstall(self._root)
        return 0

    def _opened(self, names: AbstractSet[str]) -> Installed:
        """names: of objects; what is opened stays until nothing is needed any more."""
        if self._installed is None or not names <= self._names:
            self._names |= names
            self.close()  # the folders of an attempt that failed, too
            self._pins = Pins(self._root)
            self._installed = Installed(self._pins, sorted(self._names))
        return self._installed


def _places(ports: Ports) -> Iterator[Place]:
    """Where packets come in before where they leave: so that none that is marked is looked at too early."""
    for ifb in sorted(ports.ifbs.values()):
        yield Place(ifb, EGRESS, "classify_rx", passing=False)
    if not ports.nics:
        return
    for interface in sorted(ports.pods - ports.nics):
        yield Place(interface, INGRESS, _MARK, passing=True)
    for interface in sorted(ports.nics):
        yield Place(interface, EGRESS, _CLASSIFY, passing=False)


def _policing(policers: Iterable[Policer]) -> Iterator[Place]:
    for one in policers:
        yield Place(one.interface, *_POLICES[one.direction], passing=True)
