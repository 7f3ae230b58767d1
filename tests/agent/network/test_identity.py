"""Looking up what pods' packets are known by: real namespaces, made-up cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.network.identity import Found, find
from agent.network.veths import NO_PROCESS, HostEnd
from agent.nri.records import NriPod
from agent.state import ContainerKey, KnownPod, Running
from qos.pods.containers import NodePod
from tests.agent.network.namespaces import namespaces, netlink

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

NAMES = ("told", "contained", "listed", "host", "ended", "starting")
UIDS = {name: f"{at:08x}-0000-4000-8000-000000000000" for at, name in enumerate(NAMES)}


def known(name: str, **fields: bool) -> KnownPod:
    return KnownPod(NodePod(UIDS[name], "shop", name, ()), **fields)


def running(name: str, pid: int = 0) -> Running:
    return Running(ContainerKey(UIDS[name], "c"), f"id-{name}", f"/kubepods/pod{UIDS[name]}/c", pid)


def test_each_by_the_best_that_is_known_of_it(tmp_path: Path) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    with namespaces() as here:
        host, *pods = here.add("host", *NAMES[:3])
        for at, pod in enumerate(pods):
            here.batch(host, [f"link add v{at} index {100 + at} type veth peer eth0 netns {pod}"])
        pids = {name: here.process(pod) for name, pod in zip(NAMES, pods, strict=False)}
        for name, pid in pids.items():
            (proc / str(pid)).mkdir(parents=True)
            (proc / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{UIDS[name]}/c\n")
        for name in ("listed", "host"):
            (cgroups / "kubepods" / f"pod{UIDS[name]}" / "c").mkdir(parents=True)
        procs = cgroups / "kubepods" / f"pod{UIDS['listed']}" / "c" / "cgroup.procs"
        procs.write_text(f"{pids['listed']}\n")
        pods_known = {UIDS[name]: known(name) for name in ("told", "contained", "listed", "starting")}
        pods_known |= {
            UIDS["host"]: known("host", host_network=True),
            UIDS["ended"]: known("ended", finished=True),
        }
        with netlink(host) as asked:
            found = find(
                asked,
                pods_known,
                {UIDS["told"]: NriPod("s", UIDS["told"], "shop", "told", pid=pids["told"])},
                [running("contained", pids["contained"]), *map(running, ("listed", "host", "told"))],
                lambda uid: f"/kubepods/pod{uid}",
                {"": str(cgroups)},
                str(proc),
            )
    assert found == Found(
        {
            UIDS["told"]: HostEnd(100),
            UIDS["contained"]: HostEnd(101),
            UIDS["listed"]: HostEnd(102),
            UIDS["starting"]: NO_PROCESS,
        },
        {UIDS["host"]: (cgroups / "kubepods" / f"pod{UIDS['host']}").stat().st_ino},
    )


def test_without_cgroup_v2_nobody_on_the_hosts_network_is_known(tmp_path: Path) -> None:
    with namespaces() as here:
        (host,) = here.add("host")
        pods = {UIDS["host"]: known("host", host_network=True)}
        with netlink(host) as asked:
            found = find(asked, pods, {}, [], lambda uid: f"/kubepods/pod{uid}", {"cpu": str(tmp_path)})
    assert found == Found({}, {})
