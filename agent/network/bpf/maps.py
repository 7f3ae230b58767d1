"""Maps in the kernel: created, read and written, many entries a call where the kernel can (5.6).

Keys and values are bytes, as long as the map says. Of a percpu map, a value read is those of all possible
CPUs in a row, each rounded up to 8 bytes.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from agent.network.bpf.btf import MapShape
from agent.network.bpf.system import ENOTSUPP, BpfError, Command, address, call

PREFIX: Final = "j10ce_"
"""The names of our programs and maps in the kernel begin so (bpftool shows them)."""
_CREATE: Final = struct.Struct("=7I16s4I")
"""map_type, key_size, value_size, max_entries, map_flags, inner_map_fd, numa_node,
map_name[BPF_OBJ_NAME_LEN], map_ifindex, btf_fd, btf_key_type_id, btf_value_type_id.
"""
_ELEMENT: Final = struct.Struct("=I4xQQQ")
"""map_fd, key, value or next_key, flags."""
_BATCH: Final = struct.Struct("=QQQQIIQQ")
"""in_batch, out_batch, keys, values, count, map_fd, elem_flags, flags."""
_BATCH_COUNT_AT: Final = 32
_INFO_CALL: Final = struct.Struct("=IIQ")
"""bpf_fd, info_len, info."""
_INFO: Final = struct.Struct("=6I16s")
"""The beginning of struct bpf_map_info: type, id, key_size, value_size, max_entries, map_flags, name."""
_NAME_BYTES: Final = 15
_PERCPU: Final = {5, 6, 10}
"""BPF_MAP_TYPE_PERCPU_HASH, PERCPU_ARRAY, LRU_PERCPU_HASH."""
_ARRAYS: Final = {2, 6}
_LEAST_CHUNK: Final = 512
_WITHOUT_BATCH: Final = (errno.EINVAL, errno.EOPNOTSUPP, ENOTSUPP)


class MapInfo(NamedTuple):
    """What the kernel says of a map. `measures`: as of MapShape."""

    id: int
    name: str
    measures: tuple[int, int, int, int, int]


class Map:
    """One map, by its descriptor. name: for errors.

    batch: False to go entry by entry, as old kernels need it.
    """

    def __init__(self, fd: int, name: str, shape: MapShape, *, batch: bool = True) -> None:
        self.fd, self.name, self.shape = fd, name, shape
        self._batch = batch
        size = shape.value_size
        self.value_bytes = -(-size // 8) * 8 * possible_cpus() if shape.kind in _PERCPU else size

    def get(self, key: bytes) -> bytes | None:
        """The value, None where the map has no such key. Raises BpfError."""
        held, value = bytearray(key), bytearray(self.value_bytes)
        try:
            self._element(Command.MAP_LOOKUP, held, value)
        except BpfError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        return bytes(value)

    def put(self, key: bytes, value: bytes) -> None:
        """Set one. Raises BpfError: E2BIG where the map is full."""
        self._element(Command.MAP_UPDATE, bytearray(key), bytearray(value))

    def drop(self, key: bytes) -> bool:
        """Remove one; whether it was there. Raises BpfError."""
        try:
            self._element(Command.MAP_DELETE, bytearray(key), bytearray())
        except BpfError as error:
            if error.errno == errno.ENOENT:
                return False
            raise
        return True

    def items(self) -> dict[bytes, bytes]:
        """All entries. Raises BpfError."""
        if self._batch:
            try:
                return self._batched_items()
            except BpfError as error:
                self._give_up_batches(error)
        return self._single_items()

    def put_all(self, entries: Mapping[bytes, bytes]) -> None:
        """Set these. Raises BpfError; then some are set."""
        if not entries:
            return
        if self._batch:
            try:
                keys, values = bytearray(b"".join(entries)), bytearray(b"".join(entries.values()))
                self._many(Command.MAP_UPDATE_BATCH, len(entries), keys, values)
                return
            except BpfError as error:
                self._give_up_batches(error)
        for key, value in entries.items():
            self.put(key, value)

    def drop_all(self, keys: Iterable[bytes]) -> None:
        """Remove these, as far as they are there. Raises BpfError; then some are removed."""
        wanted = list(keys)
        if self._batch and wanted:
            try:
                self._many(Command.MAP_DELETE_BATCH, len(wanted), bytearray(b"".join(wanted)), bytearray())
                return
            except BpfError as error:
                if error.errno != errno.ENOENT:  # one was gone before: what comes after it is left
                    self._give_up_batches(error)
        for key in wanted:
            self.drop(key)

    def _give_up_batches(self, error: BpfError) -> None:
        if error.errno not in _WITHOUT_BATCH:
            raise error
        self._batch = False

    def _element(self, command: Command, key: bytearray, value: bytearray) -> None:
        if len(key) != self.shape.key_size or (value and len(value) != self.value_bytes):
            raise BpfError(errno.EINVAL, f"map {self.name}", f"its keys have {self.shape.key_size} bytes")
        call(command, _ELEMENT.pack(self.fd, address(key), address(value), 0), f"map {self.name}")

    def _many(self, command: Command, count: int, keys: bytearray, values: bytearray) -> None:
        if len(keys) != count * self.shape.key_size or (values and len(values) != count * self.value_bytes):
            raise BpfError(errno.EINVAL, f"map {self.name}", f"its keys have {self.shape.key_size} bytes")
        attributes = _BATCH.pack(0, 0, address(keys), address(values), count, self.fd, 0, 0)
        call(command, attributes, f"map {self.name}, {count} entries")

    def _batched_items(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        size, width = self.shape.key_size, self.value_bytes
        chunk = min(self.shape.max_entries, _LEAST_CHUNK)
        token, following = bytearray(max(size, 4)), bytearray(max(size, 4))
        begun = False
        while True:
            keys, values = bytearray(chunk * size), bytearray(chunk * width)
            attributes = bytearray(
                _BATCH.pack(
                    address(token) if begun else 0, address(following), address(keys), address(values),
                    chunk, self.fd, 0, 0,
                )
            )  # fmt: skip
            more = True
            try:
                call(Command.MAP_LOOKUP_BATCH, attributes, f"map {self.name}")
            except BpfError as error:
                if error.errno == errno.ENOSPC and chunk < self.shape.max_entries:
                    chunk = min(chunk * 2, self.shape.max_entries)  # more share a hash than were asked for
                    continue
                if error.errno != errno.ENOENT:
                    raise
                more = False
            (count,) = struct.unpack_from("=I", attributes, _BATCH_COUNT_AT)
            for index in range(count):
                key = bytes(keys[index * size : (index + 1) * size])
                found[key] = bytes(values[index * width : (index + 1) * width])
            if not more:
                return found
            token, following, begun = following, token, True

    def _single_items(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        before, key = bytearray(), bytearray(self.shape.key_size)
        for _ in range(self.shape.max_entries):  # a key removed meanwhile makes the kernel begin again
            attributes = _ELEMENT.pack(self.fd, address(before), address(key), 0)
            try:
                call(Command.MAP_NEXT_KEY, attributes, f"map {self.name}")
            except BpfError as error:
                if error.errno == errno.ENOENT:
                    break
                raise
            value = self.get(bytes(key))
            if value is not None:
                found[bytes(key)] = value
            before = bytearray(key)
        return found


def create(name: str, shape: MapShape, types: int) -> int:
    """A new map's descriptor. types: descriptor of the loaded BTF that the shape's ids are of.

    Raises BpfError.
    """
    attributes = _CREATE.pack(
        shape.kind, shape.key_size, shape.value_size, shape.max_entries, shape.flags, 0, 0, kernel_name(name),
        0, types, shape.key_type, shape.value_type,
    )  # fmt: skip
    return call(Command.MAP_CREATE, attributes, f"map {name}")


def info(fd: int) -> MapInfo:
    """What map this is. Raises BpfError."""
    answer = object_info(fd, _INFO.size, "a map")
    kind, number, key, value, most, flags, name = _INFO.unpack(answer)
    return MapInfo(number, name.rstrip(b"\0").decode(), (kind, key, value, most, flags))


def object_info(fd: int, size: int, what: str, filled: bytes = b"") -> bytes:
    """The first bytes of an object's `struct bpf_*_info`. filled: what they must hold before.

    Raises BpfError.
    """
    answer = bytearray(filled.ljust(size, b"\0"))
    call(Command.OBJ_INFO, _INFO_CALL.pack(fd, size, address(answer)), what)
    return bytes(answer)


def kernel_name(name: str) -> bytes:
    """What the kernel calls our object: cut to the 15 bytes that it has for that."""
    return (PREFIX + name).encode()[:_NAME_BYTES]


def possible_cpus(path: str = "/sys/devices/system/cpu/possible") -> int:
    """How many CPUs this kernel could have: 0-3,8-11 are eight."""
    last = 0
    for span in Path(path).read_text().strip().split(","):
        first, _, end = span.partition("-")
        last = max(last, int(end or first))
    return last + 1
