"""What this kernel can do for the network, each technique really done in a network namespace made for it.

That a module is there says little: its parts are compiled one by one, and modules are loaded on demand.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from agent.network import applying, classifying, dump, ingress, messages, namespaces
from agent.network.bpf import links, programs
from agent.network.bpf.elf import ObjectProgram
from agent.network.difference import Class, Leaf, Root, Verb
from agent.network.netlink import Netlink
from agent.network.records import EGRESS, INGRESS, NAME, Htb
from qos.network.wanted import HtbClass, Tbf

NEEDS: Final = "it needs CAP_NET_ADMIN and CAP_SYS_ADMIN: install the agent with --network-floors"
_PASS: Final = ObjectProgram("j10ce_probe", "tc", bytes.fromhex("b7000000ffffffff9500000000000000"), {})
"""Two instructions: return TC_ACT_UNSPEC."""
_CLASS: Final = HtbClass(1, 0, 0, 10**6, 10**6, 1514, 10**4, "")
_ADDRESS: Final = bytes(10) + b"\xff\xff\x0a\0\0\1"


class Technique(Enum):
    """What may be done to packets, or where. BPF: programs load; REDIRECT: what is received, to an IFB."""

    HTB = "htb"
    TBF = "tbf"
    FQ_CODEL = "fq_codel"
    BFIFO = "bfifo"
    U32 = "u32"
    BPF = "bpf"
    TCX = "tcx"
    CLSACT = "clsact"
    REDIRECT = "redirect"


@dataclass(frozen=True, slots=True)
class Finding:
    """reason: why it does not work, "" where it does."""

    technique: Technique
    works: bool
    reason: str = ""


def probe() -> tuple[Finding, ...]:
    """A finding for each technique, in a thread of its own; nothing is left behind. Raises nothing."""
    try:
        return namespaces.in_new(_all)
    except OSError as error:
        why = f"no network namespace can be made to try it in: {error}"
        if error.errno in (errno.EPERM, errno.EACCES):
            why += f"; {NEEDS}"
        return tuple(Finding(technique, False, why) for technique in Technique)


def _all() -> tuple[Finding, ...]:
    with Netlink() as netlink:
        netlink.one(messages.new_veth("probe", "peer"))
        [interface] = [one.index for one in dump.devices(netlink).values() if one.name == "probe"]
        netlink.one(messages.link_up(interface))
        return tuple(_finding(technique, netlink, interface) for technique in Technique)


def _finding(technique: Technique, netlink: Netlink, interface: int) -> Finding:
    try:
        _TRIALS[technique](netlink, interface)
    except OSError as error:  # of netlink, of bpf(2), or of what was read back
        return Finding(technique, False, str(error))
    finally:
        netlink.apply([applying.request(Root(Verb.DELETE, interface, None))])
    return Finding(technique, True)


def _htb(netlink: Netlink, interface: int) -> None:
    _done(netlink, Root(Verb.ADD, interface, Htb(1)), Class(Verb.ADD, interface, _CLASS))


def _tbf(netlink: Netlink, interface: int) -> None:
    _done(netlink, Root(Verb.ADD, interface, Tbf(interface, 10**6, 10**4, 10**5)))


def _leaf(kind: str) -> Callable[[Netlink, int], None]:
    def trial(netlink: Netlink, interface: int) -> None:
        _htb(netlink, interface)
        _done(netlink, Leaf(Verb.REPLACE, interface, 1, kind, 10**5))

    return trial


def _u32(netlink: Netlink, interface: int) -> None:
    _htb(netlink, interface)
    netlink.one(messages.from_source(interface, _ADDRESS, 1))


def _bpf(_netlink: Netlink, _interface: int) -> None:
    os.close(programs.load(_PASS, {}, "GPL"))


def _tcx(_netlink: Netlink, interface: int) -> None:
    program = programs.load(_PASS, {}, "GPL")
    try:
        os.close(links.attach(program, interface, links.Hook.TCX_EGRESS, "the probe"))
    finally:
        os.close(program)


def _clsact(netlink: Netlink, interface: int) -> None:
    program = programs.load(_PASS, {}, "GPL")
    try:
        for parent in (EGRESS, INGRESS):
            classifying.attach(netlink, interface, program, f"{NAME}_probe", parent)
    finally:
        os.close(program)


def _redirect(netlink: Netlink, interface: int) -> None:
    targets = ingress.make_ifbs(netlink, {interface})
    for change in ingress.changes(targets, dump.found(netlink, [interface])):
        netlink.one(change.request)


def _done(netlink: Netlink, *operations: Root | Class | Leaf) -> None:
    for operation in operations:
        netlink.one(applying.request(operation))


_TRIALS: Final[Mapping[Technique, Callable[[Netlink, int], None]]] = {
    Technique.HTB: _htb,
    Technique.TBF: _tbf,
    Technique.FQ_CODEL: _leaf("fq_codel"),
    Technique.BFIFO: _leaf("bfifo"),
    Technique.U32: _u32,
    Technique.BPF: _bpf,
    Technique.TCX: _tcx,
    Technique.CLSACT: _clsact,
    Technique.REDIRECT: _redirect,
}
