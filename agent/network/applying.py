"""Changes into the kernel, in as few system calls as there are hundreds of them."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final, NamedTuple

from agent.network import messages
from agent.network.difference import Class, Leaf, Operation, Root, Verb
from agent.network.netlink import CREATE, EXCLUSIVE, REPLACE, Netlink, NetlinkError, Request
from agent.network.records import HANDLE, ROOT, Htb
from qos.network.wanted import Tbf, class_id

_ABSENT: Final = (errno.ENOENT, errno.ENODEV, errno.EINVAL)
"""Refusals of a deletion: what was to be deleted is gone, with its interface or its qdisc."""
_FLAGS: Final = {
    Verb.ADD: CREATE | EXCLUSIVE,
    Verb.REPLACE: CREATE | REPLACE,
    Verb.CHANGE: 0,
}


class Failure(NamedTuple):
    """What was not done, and why. gone: its interface has been removed meanwhile, as pods end."""

    operation: Operation
    errno: int
    message: str
    gone: bool


def apply(netlink: Netlink, operations: Sequence[Operation]) -> list[Failure]:
    """Does them in order, all that can be done; returns what was refused. A deletion of what is gone is done.

    Where no qdisc can be put at an interface, that alone is said, not each class that would be below it.
    """
    failures: list[Failure] = []
    rootless: set[int] = set()
    outcomes = netlink.apply([request(operation) for operation in operations])
    for operation, refused in zip(operations, outcomes, strict=True):
        if refused is None or (operation.verb is Verb.DELETE and refused.errno in _ABSENT):
            continue
        if operation.interface not in rootless:
            failures.append(_failure(operation, refused))
        if isinstance(operation, Root):
            rootless.add(operation.interface)
    return failures


def request(operation: Operation) -> Request:
    """The netlink message that does it."""
    match operation:
        case Root():
            return _root(operation)
        case Class(verb, interface, settings):
            if verb is Verb.DELETE:
                return messages.no_class(interface, class_id(settings.minor))
            return messages.htb_class(interface, settings, new=verb is Verb.ADD)
        case Leaf(verb, interface, minor, kind, limit, handle):
            options = messages.bfifo(limit) if kind == "bfifo" else messages.fq_codel()
            return messages.qdisc(_FLAGS[verb], interface, class_id(minor), handle, kind, options)


def _root(operation: Root) -> Request:
    interface = operation.interface
    match operation.settings:
        case None:
            return messages.no_qdisc(interface, ROOT, HANDLE)
        case Htb(default):
            flags, kind, options = _FLAGS[operation.verb], "htb", messages.htb(default)
        case Tbf() as bucket:
            flags, kind, options = _FLAGS[operation.verb], "tbf", messages.tbf(bucket)
    return messages.qdisc(flags, interface, ROOT, HANDLE, kind, options)


def _failure(operation: Operation, refused: NetlinkError) -> Failure:
    number = refused.errno or 0
    message = f"{_shown(operation)}: {errno.errorcode.get(number, number)}: {refused.strerror}"
    return Failure(operation, number, message, gone=number == errno.ENODEV)


def _shown(operation: Operation) -> str:
    what = operation.verb.value
    match operation:
        case Root(settings=settings):
            kind = "tbf" if isinstance(settings, Tbf) else "htb" if settings is not None else "qdisc"
            return f"{what} {kind} 10ce: at interface {operation.interface}"
        case Class(settings=wanted):
            return f"{what} class 10ce:{wanted.minor:x} at interface {operation.interface}"
        case Leaf(minor=minor, kind=kind):
            return f"{what} {kind} below class 10ce:{minor:x} at interface {operation.interface}"
