"""What a map lacks: pure difference, and the entries of each map as bytes.

All in the machine's byte order.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from qos.network.wanted import BytesPerSecond, Direction

_CLASS: Final = struct.Struct("=I")
_CGROUP: Final = struct.Struct("=Q")
_SETTINGS: Final = struct.Struct("=II")
_LIMIT_KEY: Final = struct.Struct("=II")
_LIMIT: Final = struct.Struct("=QQ")
_ADDRESS_BYTES: Final = 16
_DIRECTIONS: Final = {Direction.EGRESS: 0, Direction.INGRESS: 1}
"""`enum direction` of police.c."""
BURST_SECONDS: Final = 0.25
"""With less saved up TCP falls far below the limit: 64 % of 10 Mbit/s at 20 ms, 34 % of a Gbit/s."""
_ALL_LEVELS: Final = 0xFFFE
"""struct settings.levels: cgroups may be 1 to 15 below the root."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What makes a map as wanted. put: new or changed; drop: no longer wanted."""

    put: Mapping[bytes, bytes]
    drop: tuple[bytes, ...]

    def __bool__(self) -> bool:
        return bool(self.put or self.drop)


def difference(wanted: Mapping[bytes, bytes], found: Mapping[bytes, bytes]) -> Changes:
    """What to write so that the found entries become the wanted ones; equal ones are left alone."""
    put = {key: value for key, value in wanted.items() if found.get(key) != value}
    return Changes(put, tuple(key for key in found if key not in wanted))


def address_entries(by_address: Mapping[bytes, int]) -> dict[bytes, bytes]:
    """Of the map by_address. Addresses of 16 bytes (IPv4 as ::ffff:a.b.c.d) -> class id.

    Raises ValueError.
    """
    for key in by_address:
        if len(key) != _ADDRESS_BYTES:
            raise ValueError(f"address {key.hex()}: {len(key)} bytes, where IPv4 and IPv6 both have 16 here")
    return {key: _CLASS.pack(class_id) for key, class_id in by_address.items()}


def interface_entries(by_interface: Mapping[int, int]) -> dict[bytes, bytes]:
    """Of the map by_interface: index -> class id."""
    return {_CLASS.pack(index): _CLASS.pack(class_id) for index, class_id in by_interface.items()}


def cgroup_entries(by_cgroup: Mapping[int, int]) -> dict[bytes, bytes]:
    """Of the map by_cgroup: cgroup id -> class id."""
    return {cgroup_key(cgroup): _CLASS.pack(class_id) for cgroup, class_id in by_cgroup.items()}


def cgroup_key(cgroup: int) -> bytes:
    """Of the maps by_cgroup and traffic. cgroup: its id, the inode of its folder on cgroup v2."""
    return _CGROUP.pack(cgroup)


def addresses_of(entries: Mapping[bytes, bytes]) -> dict[bytes, int]:
    """What a map by_address says, turned back."""
    return {key: _CLASS.unpack(value)[0] for key, value in entries.items()}


def cgroups_of(entries: Mapping[bytes, bytes]) -> dict[int, int]:
    """What a map by_cgroup says, turned back."""
    return {_CGROUP.unpack(key)[0]: _CLASS.unpack(value)[0] for key, value in entries.items()}


def limit_entries(limits: Mapping[tuple[int, Direction], BytesPerSecond]) -> dict[bytes, bytes]:
    """Of the map limits: (class id, direction) -> bytes a second, more than 0. Raises ValueError."""
    for (class_id, _), rate in limits.items():
        if rate <= 0:
            raise ValueError(
                f"class {class_id:#x}: a limit of {rate} bytes a second; leave it out where none is"
            )
    burst = int(BURST_SECONDS * 1e9)
    return {
        _LIMIT_KEY.pack(class_id, _DIRECTIONS[direction]): _LIMIT.pack(rate, burst)
        for (class_id, direction), rate in limits.items()
    }


def direction_of(key: bytes) -> tuple[int, Direction]:
    """Class id and direction of a key of the maps limits and buckets."""
    class_id, number = _LIMIT_KEY.unpack(key)
    return class_id, next(one for one, its in _DIRECTIONS.items() if its == number)


def settings_entry(*, cgroups: bool, marks: bool) -> dict[bytes, bytes]:
    """Of the map settings: what no packet pays for where it is not in use.

    cgroups: whether by_cgroup or traffic has any entry; marks: whether mark is hung in anywhere.
    """
    return {_CLASS.pack(0): _SETTINGS.pack(_ALL_LEVELS if cgroups else 0, marks)}
