"""What the packets of each pod are known by, looked up: the host's end of its veth, or its cgroup's id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from agent.network.netlink import Netlink
from agent.network.traffic import on_host_network
from agent.network.veths import HostEnd, host_ends
from agent.nri.records import NriPod
from agent.state import KnownPod, Running
from kernel import facts


class Found(NamedTuple):
    """By the pod's uid: of those with a network of their own, and of those with the host's on cgroup v2."""

    ends: Mapping[str, HostEnd]
    cgroup_ids: Mapping[str, int]


def find(
    netlink: Netlink,
    pods: Mapping[str, KnownPod],
    sandboxes: Mapping[str, NriPod],
    running: Iterable[Running],
    cgroup_of: Callable[[str], str],
    mounts: Mapping[str, str],
    proc: str = "/proc",
) -> Found:
    """Look all of them up: some 40 us a pod. The same for one pod that starts, before its first packet.

    sandboxes: as the runtime tells them. cgroup_of: the path of a pod's cgroup, "" unknown. mounts: as
    kernel.facts has them. Raises OSError, kernel.refused.Refused.
    """
    containers: defaultdict[str, list[Running]] = defaultdict(list)
    for one in running:
        containers[one.key.pod_uid].append(one)
    living = {uid: one for uid, one in pods.items() if not one.finished}
    hosts = {uid for uid, one in living.items() if on_host_network(one, sandboxes.get(uid))}
    mount = _shown(mounts)
    pids = {
        uid: tuple(_pids(sandboxes.get(uid), containers[uid], mount)) for uid in living if uid not in hosts
    }
    unified = mounts.get("", "")
    paths = {uid: cgroup_of(uid) for uid in hosts if unified}
    ids = {uid: facts.inode(unified, path) for uid, path in paths.items() if path}
    return Found(host_ends(netlink, pids, proc), {uid: one for uid, one in ids.items() if one})


def _pids(sandbox: NriPod | None, containers: Iterable[Running], mount: str) -> Iterator[int]:
    """Likeliest first: the sandbox's process is the runtime's own, and stays the longest. What a cgroup's
    list of processes says is asked for where nobody has told of any.
    """
    told = [pid for pid in (sandbox.pid if sandbox else 0, *(one.pid for one in containers)) if pid]
    yield from told
    if not told and mount:
        for one in containers:
            yield from facts.processes(mount, one.cgroup)[:1]


def _shown(mounts: Mapping[str, str]) -> str:
    """A hierarchy in which pods have cgroups."""
    return mounts.get("cpu") or mounts.get("memory") or mounts.get("", "")
