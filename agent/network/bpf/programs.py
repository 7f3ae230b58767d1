"""Programs in the kernel: verified and loaded, described, and run on one packet without any network."""

from __future__ import annotations

import contextlib
import errno
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from agent.network.bpf.elf import INSTRUCTION, ObjectProgram
from agent.network.bpf.maps import kernel_name, object_info
from agent.network.bpf.system import BpfError, Command, address, call, close

_KINDS: Final = {
    "tc": (3, 0),
    "cgroup_skb/ingress": (8, 0),
    "cgroup_skb/egress": (8, 1),
    "sockops": (13, 3),
}
"""Section -> `enum bpf_prog_type` (SCHED_CLS, CGROUP_SKB, SOCK_OPS) and expected_attach_type."""
_LOAD: Final = struct.Struct("=IIQQIIQII16sII")
"""prog_type, insn_cnt, insns, license, log_level, log_size, log_buf, kern_version, prog_flags, prog_name,
prog_ifindex, expected_attach_type.
"""
_TYPES: Final = struct.Struct("=QQIII")
"""btf, btf_log_buf, btf_size, btf_log_size, btf_log_level."""
_INFO: Final = struct.Struct("=II8sIIQQQIIQ16s")
"""The beginning of struct bpf_prog_info: type, id, tag, jited_prog_len, xlated_prog_len, jited_prog_insns,
xlated_prog_insns, load_time, created_by_uid, nr_map_ids, map_ids, name.
"""
_MAP_IDS_AT: Final = 52
_MOST_MAPS: Final = 64
_RUN: Final = struct.Struct("=IIIIQQIIIIQQ")
"""prog_fd, retval, data_size_in, data_size_out, data_in, data_out, repeat, duration, ctx_size_in,
ctx_size_out, ctx_in, ctx_out.
"""
_LOG_BYTES: Final = 1 << 20
_SHOWN_LINES: Final = 12
_SKB_BYTES: Final = 192
"""struct __sk_buff; of its fields those that a test may give, by where they are."""
_PRIORITY_AT, _WIRE_LEN_AT, _GSO_SEGS_AT = 32, 160, 164


class ProgramInfo(NamedTuple):
    """What the kernel says of a program. tag: a hash of its instructions. maps: ids."""

    id: int
    name: str
    tag: str
    maps: tuple[int, ...]

    @property
    def identity(self) -> tuple[str, str, tuple[int, ...]]:
        """Two programs that are alike in this do the same, to the same maps."""
        return self.name, self.tag, self.maps


class Ran(NamedTuple):
    """What a program did with a packet.

    returned: as a signed number; nanoseconds: on average over the repeats.
    """

    returned: int
    priority: int
    nanoseconds: int


def load_types(types: bytes, what: str) -> int:
    """A descriptor of the loaded BTF. what: whose, for errors. Raises BpfError, with the kernel's log."""
    held = bytearray(types)
    try:
        return call(Command.BTF_LOAD, _TYPES.pack(address(held), 0, len(held), 0, 0), f"types of {what}")
    except BpfError as error:
        log = bytearray(_LOG_BYTES)
        attributes = _TYPES.pack(address(held), address(log), len(held), len(log), 1)
        with contextlib.suppress(BpfError):
            return call(Command.BTF_LOAD, attributes, f"types of {what}")
        raise BpfError(error.errno or errno.EINVAL, f"types of {what}", _last_lines(log)) from None


def load(program: ObjectProgram, maps: Mapping[str, int], license: str) -> int:  # noqa: A002  (the kernel's word)
    """The loaded program's descriptor. maps: name -> descriptor.

    Raises BpfError, with the verifier's last lines.
    """
    what = f"program {program.name}"
    kind = _KINDS.get(program.section)
    if kind is None:
        raise BpfError(errno.EINVAL, what, f"its section {program.section} is none of {', '.join(_KINDS)}")
    code, words = bytearray(program.linked(maps)), bytearray(license.encode() + b"\0")

    def attributes(log: bytearray) -> bytes:
        return _LOAD.pack(
            kind[0], len(code) // INSTRUCTION, address(code), address(words), 1 if log else 0, len(log),
            address(log), 0, 0, kernel_name(program.name), 0, kind[1],
        )  # fmt: skip

    try:
        return call(Command.PROG_LOAD, attributes(bytearray()), what)
    except BpfError as error:
        if error.errno == errno.EPERM:
            raise
        log = bytearray(_LOG_BYTES)
        with contextlib.suppress(BpfError):
            return call(Command.PROG_LOAD, attributes(log), what)
        raise BpfError(error.errno or errno.EINVAL, what, _last_lines(log)) from None


def info(fd: int) -> ProgramInfo:
    """What program this is. Raises BpfError."""
    ids = bytearray(4 * _MOST_MAPS)
    asked = bytearray(_INFO.size)
    struct.pack_into("=IQ", asked, _MAP_IDS_AT, _MOST_MAPS, address(ids))
    answer = _INFO.unpack(object_info(fd, _INFO.size, "a program", bytes(asked)))
    count = min(int(answer[9]), _MOST_MAPS)
    maps = struct.unpack_from(f"={count}I", ids)
    return ProgramInfo(answer[1], answer[11].rstrip(b"\0").decode(), answer[2].hex(), maps)


def by_id(number: int) -> int:
    """A descriptor of the program with this id. Raises BpfError: ENOENT where it is gone."""
    return call(Command.PROG_GET_FD, struct.pack("=III", number, 0, 0), f"program {number}")


def running(number: int) -> ProgramInfo:
    """What the program with this id is. Raises BpfError: ENOENT where it is gone."""
    program = by_id(number)
    try:
        return info(program)
    finally:
        close(program)


def run(fd: int, packet: bytes, *, priority: int = 0, segments: int = 0, repeat: int = 1) -> Ran:
    """Run a program of section tc on a packet, from its Ethernet header on. Raises BpfError: EINVAL below 14
    bytes.

    segments: how many the packet is to be cut in. The packet's socket is of the calling process's cgroup.
    """
    data, given, back = bytearray(packet), bytearray(_SKB_BYTES), bytearray(_SKB_BYTES)
    struct.pack_into("=I", given, _PRIORITY_AT, priority)
    struct.pack_into("=II", given, _WIRE_LEN_AT, len(packet), segments)
    attributes = bytearray(
        _RUN.pack(
            fd,
            0,
            len(data),
            0,
            address(data),
            0,
            repeat,
            0,
            len(given),
            len(back),
            address(given),
            address(back),
        )
    )
    call(Command.PROG_TEST_RUN, attributes, "a program's trial")
    answer = _RUN.unpack(attributes)
    (after,) = struct.unpack_from("=I", back, _PRIORITY_AT)
    (returned,) = struct.unpack("=i", struct.pack("=I", answer[1]))
    return Ran(returned, after, answer[7])


def _last_lines(log: bytearray) -> str:
    lines = bytes(log).partition(b"\0")[0].decode(errors="replace").strip().splitlines()
    return "the kernel's log ends with: " + " | ".join(lines[-_SHOWN_LINES:]) if lines else ""
