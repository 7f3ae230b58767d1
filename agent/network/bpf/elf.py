"""The object files that clang writes for BPF: ELF64, little-endian, relocatable (elf.h). Pure.

Read is what our objects have: programs, one function each, in sections of their own; maps that BTF defines; a
licence. Anything else (calls between functions, data sections) is refused by name.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.network.bpf import btf
from agent.network.bpf.btf import MapShape

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
"""Elf64_Ehdr: e_ident, type, machine, version, entry, phoff, shoff, flags, ehsize, phentsize, phnum,
shentsize, shnum, shstrndx.
"""
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
"""Elf64_Shdr: name, type, flags, addr, offset, size, link, info, addralign, entsize."""
_SYMBOL: Final = struct.Struct("<IBBHQQ")
"""Elf64_Sym: name, info, other, shndx, value, size."""
_RELOCATION: Final = struct.Struct("<QQ")
"""Elf64_Rel: offset, info (the symbol's index in the upper half)."""
_LITTLE_64: Final = b"\x7fELF\x02\x01"
_MACHINE_BPF: Final = 247
_SYMBOLS, _REL = 2, 9
_FUNCTION: Final = 2
_EXECUTABLE: Final = 4
INSTRUCTION: Final = 8
"""Bytes of `struct bpf_insn`: code, registers, offset (16 bits), immediate (32 bits)."""
_LOAD_64: Final = 0x18
"""BPF_LD | BPF_DW | BPF_IMM: two instructions; with this source register the immediate is a map's
descriptor.
"""
_MAP_DESCRIPTOR: Final = 1


class ObjectError(ValueError):
    """An object file is not as this loader expects; the message names what and where."""


@dataclass(frozen=True, slots=True)
class ObjectProgram:
    """One program. maps: byte offset of an instruction in `code` -> the name of the map that it loads."""

    name: str
    section: str
    code: bytes
    maps: Mapping[int, str]

    def linked(self, descriptors: Mapping[str, int]) -> bytes:
        """The code with these descriptors of maps in place."""
        code = bytearray(self.code)
        for offset, name in self.maps.items():
            code[offset + 1] = code[offset + 1] & 0x0F | _MAP_DESCRIPTOR << 4
            struct.pack_into("<i", code, offset + 4, descriptors[name])
        return bytes(code)


@dataclass(frozen=True, slots=True)
class Object:
    """What an object file holds. types: BTF, ready to be loaded."""

    programs: tuple[ObjectProgram, ...]
    maps: Mapping[str, MapShape]
    types: bytes
    license: str


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    data: bytes
    link: int
    info: int


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    kind: int
    section: int
    value: int
    size: int


def read(content: bytes) -> Object:
    """The object file's content, in bytes. Raises ObjectError."""
    try:
        sections = _sections(content)
        symbols = _symbols(sections)
        by_name = {section.name: section for section in sections}
        maps_at = next((index for index, section in enumerate(sections) if section.name == ".maps"), -1)
        places = {symbol.name: symbol.value for symbol in symbols if symbol.section == maps_at >= 0}
        sizes = {name: len(section.data) for name, section in by_name.items()}
        offsets = {symbol.name: symbol.value for symbol in symbols if symbol.name}
        types = btf.completed(by_name[".BTF"].data, sizes, offsets)
        return Object(
            programs=_programs(sections, symbols, {value: name for name, value in places.items()}, maps_at),
            maps=btf.maps(types) if places else {},
            types=types,
            license=by_name["license"].data.rstrip(b"\0").decode(),
        )
    except KeyError as missing:
        raise ObjectError(f"no {missing} in it: compile it with -g and a license") from None
    except ObjectError:
        raise
    except (struct.error, IndexError, ValueError, RecursionError) as error:
        raise ObjectError(f"cut short or damaged: {error}") from None


def _sections(content: bytes) -> list[_Section]:
    ident, _, machine, _, _, _, table, _, _, _, _, size, count, names_at = _HEADER.unpack_from(content)
    if not ident.startswith(_LITTLE_64) or machine != _MACHINE_BPF or size != _SECTION.size:
        raise ObjectError("not a little-endian 64-bit ELF file for BPF")
    raw = [_SECTION.unpack_from(content, table + index * size) for index in range(count)]
    datas = [content[offset : offset + length] for _, _, _, _, offset, length, *_ in raw]
    for (_, kind, _, _, _, length, *_), data in zip(raw, datas, strict=True):
        if len(data) != length and kind != 8:  # SHT_NOBITS has no bytes in the file
            raise ObjectError(f"cut short: a section of {length} bytes has {len(data)}")
    names = datas[names_at]
    return [
        _Section(btf.text(names, name), kind, flags, data, link, info)
        for (name, kind, flags, _, _, _, link, info, _, _), data in zip(raw, datas, strict=True)
    ]


def _symbols(sections: list[_Section]) -> list[_Symbol]:
    table = next((section for section in sections if section.kind == _SYMBOLS), None)
    if table is None:
        return []
    names = sections[table.link].data
    return [
        _Symbol(btf.text(names, name), info & 0xF, section, value, size)
        for name, info, _, section, value, size in _SYMBOL.iter_unpack(table.data)
    ]


def _programs(
    sections: list[_Section], symbols: list[_Symbol], map_names: Mapping[int, str], maps_at: int
) -> tuple[ObjectProgram, ...]:
    found = []
    for index, section in enumerate(sections):
        if not section.flags & _EXECUTABLE or not section.data:
            continue
        loads = _map_loads(sections, symbols, index, map_names, maps_at)
        for symbol in symbols:
            if symbol.kind != _FUNCTION or symbol.section != index:
                continue
            begin, end = symbol.value, symbol.value + symbol.size
            code = section.data[begin:end]
            if not code or len(code) != symbol.size or len(code) % INSTRUCTION:
                raise ObjectError(f"{symbol.name} is not {symbol.size} bytes of whole instructions")
            its = {at - begin: name for at, name in loads.items() if begin <= at < end}
            found.append(ObjectProgram(symbol.name, section.name, code, its))
    return tuple(found)


def _map_loads(
    sections: list[_Section], symbols: list[_Symbol], target: int, map_names: Mapping[int, str], maps_at: int
) -> dict[int, str]:
    loads: dict[int, str] = {}
    code = sections[target].data
    for section in sections:
        if section.kind != _REL or section.info != target:
            continue
        for offset, info in _RELOCATION.iter_unpack(section.data):
            symbol = symbols[info >> 32]
            if symbol.section != maps_at or symbol.value not in map_names or code[offset] != _LOAD_64:
                raise ObjectError(
                    f"{sections[target].name} refers to {symbol.name or sections[symbol.section].name} at"
                    f" byte {offset}, which is no map: functions must be inlined, and data kept in maps"
                )
            loads[offset] = map_names[symbol.value]
    return loads
