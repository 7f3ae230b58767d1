"""BTF, the types of an object: what its maps are made of (linux/btf.h; Documentation/bpf/btf.rst). Pure.

Maps are defined as libbpf does it: variables in the section .maps, of a struct whose members are pointers. A
number is the length of the array that is pointed to; `key` and `value` point to their types.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_HEADER: Final = struct.Struct("<HBBIIIII")
"""struct btf_header: magic, version, flags, hdr_len, type_off, type_len, str_off, str_len."""
_TYPE: Final = struct.Struct("<III")
"""struct btf_type: name_off, info (vlen: bits 0 to 15, kind: 24 to 28), size or type."""
_TRIPLE: Final = struct.Struct("<III")
"""struct btf_member: name_off, type, offset; btf_var_secinfo: type, offset, size; btf_array: type,
index_type, nelems.
"""
_MAGIC: Final = 0xEB9F
_INT, _PTR, _ARRAY, _STRUCT, _UNION, _ENUM, _FORWARD = 1, 2, 3, 4, 5, 6, 7
_TYPEDEF, _VOLATILE, _CONST, _RESTRICT, _FUNCTION, _PROTOTYPE, _VAR, _DATASEC, _FLOAT = range(8, 17)
_DECL_TAG, _TYPE_TAG, _ENUM64 = 17, 18, 19
_AFTER: Final = {
    _INT: (4, 0), _ARRAY: (12, 0), _STRUCT: (0, 12), _UNION: (0, 12), _ENUM: (0, 8), _PROTOTYPE: (0, 8),
    _VAR: (4, 0), _DATASEC: (0, 12), _DECL_TAG: (4, 0), _ENUM64: (0, 12),
}  # fmt: skip
"""Kind -> bytes after struct btf_type, and those of each of its vlen members."""
_POINTER_BYTES: Final = 8
_NUMBERS: Final = {
    "type": "kind", "max_entries": "max_entries", "map_flags": "flags",
}  # fmt: skip


class TypesError(ValueError):
    """BTF is not as expected; the message says where."""


@dataclass(frozen=True, slots=True)
class MapShape:
    """What a map is made of. kind: of `enum bpf_map_type`; sizes in bytes; key_type, value_type: BTF ids of
    the object.

    max_entries: of percpu maps, for each CPU a value.
    """

    kind: int
    key_size: int
    value_size: int
    max_entries: int
    flags: int
    key_type: int
    value_type: int

    @property
    def measures(self) -> tuple[int, int, int, int, int]:
        """What another map must have alike to take its place."""
        return self.kind, self.key_size, self.value_size, self.max_entries, self.flags


@dataclass(frozen=True, slots=True)
class _Type:
    at: int
    name: int
    kind: int
    vlen: int
    size_or_type: int


def text(strings: bytes, offset: int) -> str:
    """The string that begins there, up to its NUL."""
    return strings[offset : strings.index(b"\0", offset)].decode() if offset < len(strings) else ""


def completed(data: bytes, sizes: Mapping[str, int], offsets: Mapping[str, int]) -> bytes:
    """BTF as the kernel takes it: clang leaves out how large sections are and where in them a variable is.

    sizes: section -> bytes; offsets: variable -> where in its section. Raises TypesError.
    """
    found = _Types(data)
    fixed = bytearray(data)
    for datasec in found.of_kind(_DATASEC):
        section = found.name(datasec)
        struct.pack_into("<I", fixed, datasec.at + 8, sizes.get(section, datasec.size_or_type))
        for at, (variable, _, _) in found.members(datasec):
            struct.pack_into("<I", fixed, at + 4, offsets.get(found.name(found.type(variable)), 0))
    return bytes(fixed)


def maps(data: bytes) -> dict[str, MapShape]:
    """Name -> shape of each map in the section .maps. Raises TypesError."""
    found = _Types(data)
    return {
        found.name(found.type(variable)): _shape(found, found.type(variable))
        for datasec in found.of_kind(_DATASEC)
        if found.name(datasec) == ".maps"
        for _, (variable, _, _) in found.members(datasec)
    }


def _shape(types: _Types, variable: _Type) -> MapShape:
    name = types.name(variable)
    definition = types.type(variable.size_or_type)
    if definition.kind != _STRUCT:
        raise TypesError(f"the map {name} is no struct")
    numbers = dict.fromkeys(_NUMBERS.values(), 0)
    of_types = {"key": 0, "value": 0}
    for _, (member_name, pointer, _) in types.members(definition):
        member = text(types.strings, member_name)
        target = types.type(pointer).size_or_type
        if member in of_types:
            of_types[member] = target
        elif member in _NUMBERS:
            numbers[_NUMBERS[member]] = types.length(target)
        else:
            raise TypesError(f"the map {name} says {member}, which this loader does not know")
    key, value = of_types["key"], of_types["value"]
    return MapShape(
        key_size=types.size(key), value_size=types.size(value), key_type=key, value_type=value, **numbers
    )


class _Types:
    """The types by their ids; 0 is void."""

    def __init__(self, data: bytes) -> None:
        magic, version, _, length, type_at, type_bytes, text_at, text_bytes = _HEADER.unpack_from(data)
        if magic != _MAGIC or version != 1:
            raise TypesError(f"BTF of magic {magic:#x} and version {version}")
        self._data = data
        self.strings = data[length + text_at : length + text_at + text_bytes]
        self._types = [_Type(0, 0, 0, 0, 0), *self._read(length + type_at, type_bytes)]

    def type(self, number: int) -> _Type:
        if not 0 <= number < len(self._types):
            raise TypesError(f"there is no type {number}")
        return self._types[number]

    def name(self, of: _Type) -> str:
        return text(self.strings, of.name)

    def of_kind(self, kind: int) -> Iterator[_Type]:
        return (one for one in self._types if one.kind == kind)

    def members(self, of: _Type) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """Where each member is, and its three numbers."""
        for index in range(of.vlen):
            at = of.at + _TYPE.size + index * _TRIPLE.size
            yield at, _TRIPLE.unpack_from(self._data, at)

    def length(self, number: int) -> int:
        """How many elements an array has."""
        array = self.type(number)
        if array.kind != _ARRAY:
            raise TypesError(f"type {number} is no array, whose length would be a number")
        elements: int = _TRIPLE.unpack_from(self._data, array.at + _TYPE.size)[2]
        return elements

    def size(self, number: int) -> int:
        """Bytes of a type."""
        one = self.type(number)
        if one.kind in (_INT, _STRUCT, _UNION, _ENUM, _FLOAT, _ENUM64):
            return one.size_or_type
        if one.kind in (_TYPEDEF, _VOLATILE, _CONST, _RESTRICT, _TYPE_TAG):
            return self.size(one.size_or_type)
        if one.kind == _PTR:
            return _POINTER_BYTES
        if one.kind == _ARRAY:
            element, _, elements = _TRIPLE.unpack_from(self._data, one.at + _TYPE.size)
            return int(elements) * self.size(element)
        raise TypesError(f"type {number} has no size: its kind is {one.kind}")

    def _read(self, at: int, length: int) -> Iterator[_Type]:
        end = at + length
        while at < end:
            name, info, size_or_type = _TYPE.unpack_from(self._data, at)
            kind, vlen = info >> 24 & 0x1F, info & 0xFFFF
            if not 0 < kind <= _ENUM64:
                raise TypesError(f"kind {kind} is not known")
            yield _Type(at, name, kind, vlen, size_or_type)
            fixed, each = _AFTER.get(kind, (0, 0))
            at += _TYPE.size + fixed + vlen * each
