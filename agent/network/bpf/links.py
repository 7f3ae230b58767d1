"""What hangs programs in: TCX at an interface (kernel 6.6) and cgroups (5.7), as links that can be pinned.

A link goes on as long as somebody holds it: a descriptor, or a pin. TCX runs before the filters of clsact.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from enum import IntEnum
from typing import Final, NamedTuple

from agent.network.bpf.maps import object_info
from agent.network.bpf.system import BpfError, Command, address, call, close


class Hook(IntEnum):
    """Where a program can be hung in: `enum bpf_attach_type` of linux/bpf.h."""

    CGROUP_INGRESS = 0
    CGROUP_EGRESS = 1
    CGROUP_SOCKETS = 3
    TCX_INGRESS = 46
    TCX_EGRESS = 47


TCX: Final = (Hook.TCX_INGRESS, Hook.TCX_EGRESS)
_CREATE: Final = struct.Struct("=IIIIIIQ")
"""prog_fd, target_fd or target_ifindex, attach_type, flags; tcx: relative_fd, padding, expected_revision."""
_UPDATE: Final = struct.Struct("=IIII")
"""link_fd, new_prog_fd, flags, old_prog_fd."""
_QUERY: Final = struct.Struct("=IIIIQIIQQQQ")
"""target_ifindex or target_fd, attach_type, query_flags, attach_flags, prog_ids, count, padding,
prog_attach_flags, link_ids, link_attach_flags, revision.
"""
_QUERY_COUNT_AT: Final = 24
_INFO: Final = struct.Struct("=IIIIQI")
"""The beginning of struct bpf_link_info: type, id, prog_id, padding; cgroup: cgroup_id, attach_type."""
_TCX_TARGET: Final = struct.Struct("=II")
"""tcx in the place of cgroup: ifindex, attach_type."""
_TARGET_AT: Final = 16
_BEFORE: Final = 1 << 3
_KIND_TCX: Final = 11
_MOST: Final = 64
"""As many programs as the kernel takes at one interface and direction."""


class LinkInfo(NamedTuple):
    """What the kernel says of a link. target: an interface's index, or a cgroup's id; 0: it is gone."""

    id: int
    program: int
    target: int
    hook: int


class Attached(NamedTuple):
    """A program at an interface. link: 0 where it is hung in without one."""

    program: int
    link: int


def attach(program: int, target: int, hook: Hook, what: str) -> int:
    """A link's descriptor. program: a descriptor; target: of TCX an interface's index, else a cgroup's
    descriptor.

    At TCX it is the first in order: those after it may end the row, and ours never does to what it lets pass.
    what: the target, for errors. Raises BpfError: EINVAL where the kernel has no TCX.
    """
    flags = _BEFORE if hook in TCX else 0
    attributes = _CREATE.pack(program, target, hook, flags, 0, 0, 0)
    return call(Command.LINK_CREATE, attributes, f"{hook.name} of {what}")


def attach_cgroup(program: int, path: str, hook: Hook) -> int:
    """The same to a cgroup (v2) by its folder; others' programs there go on. Raises BpfError."""
    try:
        cgroup = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise BpfError(error.errno or errno.ENOENT, f"cgroup {path}") from None
    try:
        return attach(program, cgroup, hook, path)
    finally:
        close(cgroup)


def replace(link: int, program: int) -> None:
    """Another program in the old one's place: no packet meets none, or both. Descriptors. Raises BpfError."""
    call(Command.LINK_UPDATE, _UPDATE.pack(link, program, 0, 0), "a link")


def detach(link: int) -> None:
    """Take its program off, whoever else holds the link."""
    with contextlib.suppress(BpfError):  # its interface or cgroup is gone, and it with them
        call(Command.LINK_DETACH, struct.pack("=I", link), "a link")


def info(link: int) -> LinkInfo:
    """What link this is. Raises BpfError."""
    answer = object_info(link, _INFO.size, "a link")
    kind, number, program, _, cgroup, hook = _INFO.unpack(answer)
    if kind == _KIND_TCX:
        interface, hook = _TCX_TARGET.unpack_from(answer, _TARGET_AT)
        return LinkInfo(number, program, interface, hook)
    return LinkInfo(number, program, cgroup, hook)


def at_interface(index: int, hook: Hook) -> tuple[Attached, ...]:
    """All programs there in their order, others' too: the kernel reports no changes. 2 us.

    Raises BpfError.
    """
    programs, links = bytearray(4 * _MOST), bytearray(4 * _MOST)
    attributes = bytearray(
        _QUERY.pack(index, hook, 0, 0, address(programs), _MOST, 0, 0, address(links), 0, 0)
    )
    try:
        call(Command.PROG_QUERY, attributes, f"{hook.name} of interface {index}")
    except BpfError as error:
        if error.errno == errno.ENOENT:  # there was never one
            return ()
        raise
    (count,) = struct.unpack_from("=I", attributes, _QUERY_COUNT_AT)
    pairs = zip(
        struct.unpack_from(f"={count}I", programs), struct.unpack_from(f"={count}I", links), strict=True
    )
    return tuple(Attached(program, link) for program, link in pairs)
