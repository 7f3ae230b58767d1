"""The systemd unit at work: a systemd of the test's own, in namespaces of its own, runs the agent."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import ports
from lab.node import inside, mounts
from lab.runtimes import cgroups
from tests.waiting import until

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "manifests" / "systemd" / "j10ce-agent.service"
NETWORK = UNIT.with_name("network-floors.conf")
SYSTEMD = Path("/lib/systemd/systemd")
SECONDS = 120.0
AGENT = Path(sysconfig.get_path("scripts")) / "j10ce-agent"
TARGET = "[Unit]\nDescription=only the agent\nWants=j10ce-agent.service\n"
# Python may lie below /root here, and standard output shall be seen.
DROP_IN = """\
[Service]
ExecStart=
ExecStart={agent} $J10CE_AGENT_OPTIONS
EnvironmentFile={folder}/agent.env
ProtectHome=no
PrivateTmp=no
StandardOutput=append:{folder}/agent.log
StandardError=inherit
"""
# What else the unit runs is as narrow as the agent.
SHAPING = """\
Environment=PYTHONPATH={root}
ExecStartPost={python} -P -m tests.network.shaping_program /run/j10ce/shaping /sys/fs/bpf/shaping
"""
SAID = '{"limits"'

pytestmark = pytest.mark.skipif(not SYSTEMD.exists(), reason="Debian's package systemd is not installed")


@dataclass(frozen=True)
class Service:
    """The unit, running: `procs` is the file of its cgroup."""

    folder: Path
    procs: Path
    port: int

    def pid(self) -> int:
        """The agent's pid; 0: none runs."""
        try:
            found = self.procs.read_text().split()
        except OSError:  # systemd removes the cgroup when its process has ended
            found = []
        return int(found[0]) if found else 0

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def log(self) -> str:
        path = self.folder / "agent.log"
        return path.read_text() if path.exists() else (self.folder / "systemd.log").read_text()


def write_units(folder: Path, options: str, *, network: bool) -> Path:
    """The unit as it is shipped, with a drop-in, and a target that wants it; network: with its own, too."""
    units = folder / "units"
    drop_ins = units / f"{UNIT.name}.d"
    drop_ins.mkdir(parents=True)
    shutil.copy(UNIT, units)
    here = DROP_IN.format(agent=AGENT, folder=folder)
    if network:
        shutil.copy(NETWORK, drop_ins)
        here += SHAPING.format(root=ROOT, python=sys.executable)
    (drop_ins / "here.conf").write_text(here)
    (units / "default.target").write_text(TARGET)
    (folder / "agent.env").write_text(f"J10CE_AGENT_OPTIONS={options}\n")
    for path in SYSTEMD.parent.joinpath("system").glob("*.slice"):
        shutil.copy(path, units)
    for name in ("basic", "sysinit", "shutdown", "umount"):
        shutil.copy(SYSTEMD.parent / "system" / f"{name}.target", units)
    return units


@pytest.fixture(params=[False], ids=["narrow"])
def service(_root: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    port = ports.reserve(tmp_path)[0]
    options = f"--standalone {ROOT / 'examples' / 'standalone'} --nri-socket '' --address 127.0.0.1:{port}"
    units = write_units(tmp_path, options, network=request.param)
    with cgroups.scratch("unit") as scratch:
        steps = [["mount", "--make-rprivate", "/"], *mounts.cgroup_steps(scratch.mounts)]
        commands = [["ln", "-s", *one[1:]] if one[0] == "symlink" else one for one in steps]
        commands += [["mount", "-t", "tmpfs", "tmpfs", path] for path in ("/run", "/var/lib")]
        commands += [["mount", "-t", "proc", "proc", "/proc"], ["ip", "link", "set", "lo", "up"]]
        commands += [["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"], ["mkdir", "/sys/fs/bpf/shaping"]]
        systemd = ["env", "-i", "container=test", f"SYSTEMD_UNIT_PATH={units}", str(SYSTEMD), "--system"]
        systemd += ["--log-target=console", "--show-status=no"]
        script = "\n".join([*map(shlex.join, commands), f"exec {shlex.join(systemd)}"])
        namespaces = ["--pid", "--mount", "--cgroup", "--ipc", "--uts", "--fork", "--kill-child"]
        namespaces += ["--net"] if request.param else []
        argv = inside.joining(scratch, ["unshare", *namespaces, "sh", "-ec", script])
        with (
            (tmp_path / "systemd.log").open("w") as log,
            subprocess.Popen(argv, stdout=log, stderr=log) as top,
        ):
            folder = scratch.folder("name=systemd", "system.slice", UNIT.name)
            try:
                yield Service(tmp_path, folder / "cgroup.procs", port)
            finally:
                top.kill()


def test_the_unit_runs_the_agent_and_brings_it_back(service: Service) -> None:
    until(service.ready, "ready", SECONDS, service.log)
    first = service.pid()
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{first}/status").read_text().splitlines())
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    rights = 1 << 1 | 1 << 21 | 1 << 24  # CAP_DAC_OVERRIDE, CAP_SYS_ADMIN, CAP_SYS_RESOURCE
    assert int(status["CapEff"], 16) & ~rights == 0
    root = Path(f"/proc/{first}/root")
    assert not os.access(root / "usr", os.W_OK)
    assert (root / "run" / "j10ce" / "agent.lock").exists()
    assert (root / "run" / "j10ce").stat().st_mode & 0o777 == 0o700
    assert (root / "var" / "lib" / "j10ce" / "agent").is_dir()
    assert "inotify" not in service.log(), "fanotify is permitted"
    os.kill(first, signal.SIGKILL)
    until(lambda: service.pid() not in (0, first) and service.ready(), "back", SECONDS, service.log)
    assert "level=ERROR" not in service.log()


def capabilities(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("CapEff:")).split()[1], 16)


@pytest.mark.parametrize("service", [True], ids=["network"], indirect=True)
def test_with_its_drop_in_it_shapes_a_network(service: Service) -> None:
    until(lambda: SAID in service.log(), "the program has come to its end", SECONDS, service.log)
    (line,) = [line for line in service.log().splitlines() if line.startswith(SAID)]
    said = json.loads(line)
    rights = 1 << 1 | 1 << 12 | 1 << 21 | 1 << 24  # those of the test above, and CAP_NET_ADMIN
    assert int(said["limits"]["CapBnd"], 16) & ~rights == 0
    assert "error" not in said
    assert not any(said["probes"][name] for name in ("htb", "tbf", "bpf", "tcx", "clsact"))
    for means in ("HTB_TCX", "HTB_CLSACT"):
        done = said[means]
        assert (done["unshaped"], done["unclassified"], done["left"]) == ({}, "", [])
        assert done["unlike before"] == []
    until(lambda: "network sending='htb" in service.log(), "the agent has tried, too", SECONDS, service.log)
    assert capabilities(service.pid()) & ~rights == 0
