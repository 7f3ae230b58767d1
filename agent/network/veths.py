"""Which interface of the host is whose: the host's end of the veth that leads into a pod's network namespace.

A process of the pod names the namespace. Its pid may be another one's by now, so it counts only while it is
in a cgroup of the pod, before and after the kernel was asked. Nothing that a pod says of itself is used.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, NamedTuple

from agent.network.interfaces import VETH, Interface, interfaces, namespaces_of
from agent.network.netlink import Netlink
from kernel import membership

_LARGEST: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class HostEnd:
    """index: of the host's interface; 0: there is none that could be shaped, `why` not."""

    index: int
    why: str = ""


NO_PROCESS: Final = HostEnd(0, "no process of it is running that would show its network")
_NONE: Final = HostEnd(
    0,
    "no interface of the host leads into its network: macvlan, ipvlan, SR-IOV and devices of the host that "
    "are given to pods are not shaped",
)


class _Process(NamedTuple):
    """One that was in a cgroup of the pod. folder: its own in /proc, which no other process ever gets."""

    uid: str
    pid: int
    folder: int


def host_ends(netlink: Netlink, pids: Mapping[str, Sequence[int]], proc: str = "/proc") -> dict[str, HostEnd]:
    """By the pod's uid; pids: those that are said to be of it, likeliest first. OSError: no answer.

    Where several lead into one namespace (Multus) it is that of the pod's first interface.
    """
    with ExitStack() as folders:
        found = {uid: one for uid, some in pids.items() if (one := _first(uid, some, proc, folders))}
        ends = _by_namespace(interfaces(netlink))
        numbers = namespaces_of(netlink, [one.pid for one in found.values()])
        still = {uid: one for uid, one in found.items() if _uid_of(one.folder) == uid}
    return {
        uid: _chosen(ends.get(numbers.get(still[uid].pid, -1), ())) if uid in still else NO_PROCESS
        for uid in pids
    }


def _first(uid: str, pids: Sequence[int], proc: str, folders: ExitStack) -> _Process | None:
    for pid in pids:
        if pid <= 0:
            continue
        try:
            folder = os.open(f"{proc}/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError):
            continue
        folders.callback(os.close, folder)
        if _uid_of(folder) == uid:
            return _Process(uid, pid, folder)
    return None


def _uid_of(folder: int) -> str:
    """Of the pod in whose cgroups the process is; "" for none, and for one that has ended."""
    try:
        file = os.open("cgroup", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
        try:
            text = os.read(file, _LARGEST).decode("ascii", "replace")
        finally:
            os.close(file)
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return next(filter(None, map(membership.pod_uid, membership.paths(text).values())), "")


def _by_namespace(there: Sequence[Interface]) -> Mapping[int, Sequence[Interface]]:
    found: defaultdict[int, list[Interface]] = defaultdict(list)
    for one in there:
        if one.namespace is not None:
            found[one.namespace].append(one)
    return found


def _chosen(ends: Sequence[Interface]) -> HostEnd:
    """A container's network plugins make its eth0 first, so its index is the lowest."""
    veths = sorted((one.peer, one.index) for one in ends if one.kind == VETH)
    if veths:
        return HostEnd(veths[0][1])
    others = sorted(f"{one.name} is a {one.kind or 'device'}" for one in ends)
    return HostEnd(0, f"{others[0]}: only veths are shaped") if others else _NONE
