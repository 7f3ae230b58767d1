"""Host ends of pods' veths, found in real namespaces."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.network.veths import NO_PROCESS, HostEnd, host_ends
from tests.agent.network.namespaces import Namespaces, ip, namespaces, netlink

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

UIDS = tuple(f"{number:08x}-0000-4000-8000-000000000000" for number in range(256))
"""As kubelet's names of cgroups need them."""


class Proc:
    """/proc as the agent sees it, with the cgroups that a test says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def say(self, pid: int, uid: str) -> None:
        own = self.folder / str(pid)
        own.mkdir(exist_ok=True)
        text = f"4:memory:/kubepods/burstable/pod{uid}/c1\n0::/kubepods/burstable/pod{uid}/c1\n"
        (own / "cgroup").write_text(text if uid else "0::/system.slice/x.service\n")

    def end(self, pid: int) -> None:
        (self.folder / str(pid) / "cgroup").unlink()


@pytest.fixture
def here() -> Iterator[Namespaces]:
    with namespaces() as made:
        yield made


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def look(host: str, pids: dict[str, Sequence[int]], proc: Proc) -> dict[str, HostEnd]:
    with netlink(host) as asked:
        return host_ends(asked, pids, str(proc.folder))


def veth(pod: str, name: str, index: int, inner: str = "eth0") -> str:
    return f"link add {name} index {index} type veth peer name {inner} netns {pod}"


def test_each_pods_own(here: Namespaces, proc: Proc) -> None:
    host, one, two, none = here.add("host", "one", "two", "none")
    here.batch(host, [veth(one, "v1", 101), veth(two, "v2", 102)])
    pids = [here.process(name) for name in (one, two, none, host)]
    for uid, pid in zip(UIDS, pids, strict=False):
        proc.say(pid, uid)
    found = look(host, {uid: (pid,) for uid, pid in zip(UIDS, pids, strict=False)}, proc)
    assert found[UIDS[0]] == HostEnd(101)
    assert found[UIDS[1]] == HostEnd(102)
    for uid in UIDS[2:4]:
        assert found[uid].index == 0
        assert "no interface of the host leads into its network: macvlan" in found[uid].why
    assert found.keys() == set(UIDS[:4])


def test_a_pid_that_is_anothers_by_now_does_not_count(here: Namespaces, proc: Proc) -> None:
    host, one, two = here.add("host", "one", "two")
    here.batch(host, [veth(one, "v1", 101), veth(two, "v2", 102)])
    mine, others, outside = here.process(one), here.process(two), here.process(two)
    proc.say(mine, UIDS[0])
    proc.say(others, UIDS[1])
    proc.say(outside, "")
    assert look(host, {UIDS[0]: (others, outside, 2**22 + 1, 0)}, proc) == {UIDS[0]: NO_PROCESS}
    assert look(host, {UIDS[0]: (others, outside, mine)}, proc) == {UIDS[0]: HostEnd(101)}
    assert look(host, {UIDS[0]: ()}, proc) == {UIDS[0]: NO_PROCESS}
    proc.end(mine)
    assert look(host, {UIDS[0]: (mine,)}, proc) == {UIDS[0]: NO_PROCESS}


def test_one_that_ends_while_the_kernel_is_asked(here: Namespaces, proc: Proc) -> None:
    """Its folder in /proc is gone then, whoever has its pid."""
    host, one = here.add("host", "one")
    here.batch(host, [veth(one, "v1", 101)])
    pid = here.process(one)
    proc.say(pid, UIDS[0])
    with netlink(host) as asked:
        ask = asked.ask

        def ending(requests):
            proc.end(pid)
            return ask(requests)

        asked.ask = ending
        assert host_ends(asked, {UIDS[0]: (pid,)}, str(proc.folder)) == {UIDS[0]: NO_PROCESS}


def test_a_namespace_that_is_deleted_and_made_again(here: Namespaces, proc: Proc) -> None:
    """Numbers of namespaces are given again: what was found before says nothing."""
    host, one = here.add("host", "one")
    here.batch(host, [veth(one, "v1", 101)])
    first = here.process(one)
    proc.say(first, UIDS[0])
    assert look(host, {UIDS[0]: (first,)}, proc) == {UIDS[0]: HostEnd(101)}
    here.end(first)
    here.delete(one)
    deadline = time.monotonic() + 60
    while "v1" in subprocess.run(["ip", "-netns", host, "link"], capture_output=True, text=True).stdout:
        assert time.monotonic() < deadline, "the veth goes with its namespace"
    assert look(host, {UIDS[0]: (first,)}, proc)[UIDS[0]].index == 0
    other, again = here.add("other", "one")
    here.batch(host, [veth(other, "v3", 103), veth(again, "v1", 104)])
    second, third = here.process(again), here.process(other)
    proc.say(second, UIDS[0])
    proc.say(third, UIDS[1])
    found = look(host, {UIDS[0]: (second,), UIDS[1]: (third,)}, proc)
    assert found == {UIDS[0]: HostEnd(104), UIDS[1]: HostEnd(103)}


def test_of_several_interfaces_the_pods_first(here: Namespaces, proc: Proc) -> None:
    host, one = here.add("host", "one")
    here.batch(host, [veth(one, "first", 109), veth(one, "second", 105, "net1")])
    pid = here.process(one)
    proc.say(pid, UIDS[0])
    assert look(host, {UIDS[0]: (pid,)}, proc) == {UIDS[0]: HostEnd(109)}


def test_what_is_no_veth_is_named(here: Namespaces, proc: Proc) -> None:
    host, one = here.add("host", "one")
    ip("-netns", one, "tuntap", "add", "t0", "mode", "tap")
    ip("-netns", one, "link", "set", "t0", "netns", host)
    pid = here.process(one)
    proc.say(pid, UIDS[0])
    found = look(host, {UIDS[0]: (pid,)}, proc)[UIDS[0]]
    assert found.index == 0
    assert "not shaped" in found.why


def test_it_needs_no_capability(here: Namespaces, proc: Proc) -> None:
    """Processes of another user, asked for by one who may do nothing: opening their namespace is refused."""
    host, one = here.add("host", "one")
    here.batch(host, [veth(one, "v1", 101)])
    pid = here.process(one)
    proc.say(pid, UIDS[0])
    proc.folder.chmod(0o755)
    script = f"""
import os, sys
from agent.network.netlink import Netlink
from agent.network.veths import host_ends
try:
    os.open("/proc/{pid}/ns/net", os.O_RDONLY)
except PermissionError:
    with Netlink() as asked:
        print(host_ends(asked, {{{UIDS[0]!r}: ({pid},)}}, {str(proc.folder)!r})[{UIDS[0]!r}].index)
"""
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]
    done = subprocess.run(
        ["nsenter", f"--net=/run/netns/{host}", *bare, sys.executable, "-P", "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.stdout == "101\n", done.stderr


CROWD = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
ends, pids = os.pipe(), []
for _ in range(int(sys.argv[1])):
    ready = os.pipe()
    pid = os.fork()
    if not pid:
        assert libc.unshare(0x40000000) == 0
        os.close(ends[1]); os.write(ready[1], b"1"); os.read(ends[0], 1); os._exit(0)
    os.close(ready[1]); assert os.read(ready[0], 1) == b"1"; os.close(ready[0])
    pids.append(pid)
print(*pids, flush=True)
sys.stdin.read()
"""


@pytest.mark.full
def test_250_pods_are_found_in_less_than_50_ms(here: Namespaces, proc: Proc) -> None:
    (host,) = here.add("host")
    crowd = subprocess.Popen(
        [sys.executable, "-c", CROWD, "250"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert crowd.stdout is not None
        pids = [int(word) for word in crowd.stdout.readline().split()]
        here.batch(host, [veth(str(pid), f"v{pid}", 1000 + at) for at, pid in enumerate(pids)])
        for uid, pid in zip(UIDS, pids, strict=False):
            proc.say(pid, uid)
        wanted = {uid: (pid,) for uid, pid in zip(UIDS, pids, strict=False)}
        best = 1e9
        with netlink(host) as asked:
            for _ in range(7):
                began = time.thread_time()
                found = host_ends(asked, wanted, str(proc.folder))
                best = min(best, time.thread_time() - began)
        assert found == {uid: HostEnd(1000 + at) for at, uid in enumerate(wanted)}
        assert best < 0.050
    finally:
        crowd.kill()
        crowd.communicate()
