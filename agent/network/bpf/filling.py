"""What the agent wants, written into the maps of the programs that are loaded; and what they have counted."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from agent.network.bpf import maps
from agent.network.bpf.btf import MapShape
from agent.network.bpf.difference import (
    address_entries,
    cgroup_entries,
    cgroup_key,
    direction_of,
    interface_entries,
    limit_entries,
    settings_entry,
)  # fmt: skip
from agent.network.bpf.installed import Installed
from agent.network.bpf.maps import Map
from agent.network.bpf.pins import MOUNTED_AT, SCHEMA, Pins, schemas
from agent.network.bpf.system import close
from qos.network.wanted import BytesPerSecond, Direction

_TRAFFIC: Final = struct.Struct("=QQQQ")
"""struct traffic of count.c: packets sent and received, bytes sent and received."""
_BUCKET: Final = struct.Struct("=IIQQQQQQ")
"""struct bucket of police.c: lock, unused, paid, carry, passed packets and bytes, dropped packets and
bytes.
"""


class Traffic(NamedTuple):
    """What the sockets of a pod with the host's network have sent and received, since it is counted."""

    sent_packets: int
    received_packets: int
    sent_bytes: int
    received_bytes: int


class Policed(NamedTuple):
    """What a policer did with a class, since it has a limit. Bytes on the wire."""

    passed_packets: int
    passed_bytes: int
    dropped_packets: int
    dropped_bytes: int


def fill(
    of: Installed,
    *,
    by_address: Mapping[bytes, int],
    by_cgroup: Mapping[int, int],
    by_interface: Mapping[int, int] = MappingProxyType({}),
    counted: Iterable[int] = (),
    limits: Mapping[tuple[int, Direction], BytesPerSecond] | None = None,
    marks: bool = False,
) -> int:
    """Write what differs; how many entries that were. Maps of objects that are not loaded are left out.

    counted: cgroup ids; who is counted already goes on. limits: of classes, in each direction, where police
    is loaded; a bucket goes with its limit. marks: whether mark is hung in anywhere. Raises BpfError;
    ValueError where more is wanted than a map holds.
    """
    known = set(counted)
    changed = 0
    wanted = {
        "by_address": address_entries(by_address),
        "by_cgroup": cgroup_entries(by_cgroup),
        "by_interface": interface_entries(by_interface),
        "settings": settings_entry(cgroups=bool(by_cgroup or known), marks=marks),
        "limits": limit_entries(limits or {}),
    }
    for name, entries in wanted.items():
        if name in of.maps:
            changes = of.fill(name, entries)
            changed += len(changes.put) + len(changes.drop)
    if "traffic" in of.maps:
        changed += _keep(of.maps["traffic"], {cgroup_key(one) for one in known}, start=True)
    if "buckets" in of.maps:
        changed += _keep(of.maps["buckets"], set(wanted["limits"]), start=False)
    return changed


def traffic(of: Installed) -> dict[int, Traffic]:
    """Cgroup id -> what is counted, of all CPUs together. Raises BpfError."""
    found = {}
    for key, value in of.maps["traffic"].items().items():
        columns = zip(*_TRAFFIC.iter_unpack(value), strict=True)
        found[int.from_bytes(key, sys.byteorder)] = Traffic(*map(sum, columns))
    return found


def policed(of: Installed) -> dict[tuple[int, Direction], Policed]:
    """Class id and direction -> what passed and what was dropped. Raises BpfError."""
    return _policed(of.maps["buckets"])


def policed_here(root: str = MOUNTED_AT) -> dict[tuple[int, Direction], Policed]:
    """The same of whatever is pinned here, by whom ever; {} where nothing is policed. Raises BpfError."""
    if SCHEMA not in schemas(root):
        return {}
    with Pins(root) as pins:
        fd = pins.map("buckets")
        if fd is None:
            return {}
        try:
            measures = maps.info(fd).measures
            return _policed(Map(fd, "buckets", MapShape(*measures, key_type=0, value_type=0)))
        finally:
            close(fd)


def _policed(buckets: Map) -> dict[tuple[int, Direction], Policed]:
    return {direction_of(key): Policed(*_BUCKET.unpack(value)[4:]) for key, value in buckets.items().items()}


def _keep(of: Map, wanted: set[bytes], *, start: bool) -> int:
    """The map has no other keys; with `start` all of these, new ones at zero. What is there goes on."""
    found = of.items().keys()
    gone = [key for key in found if key not in wanted]
    of.drop_all(gone)
    fresh = [key for key in wanted if key not in found] if start else []
    of.put_all(dict.fromkeys(fresh, bytes(of.value_bytes)))
    return len(gone) + len(fresh)
