"""The systemd unit at work: a systemd of the test's own, in namespaces of its own, runs the agent."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
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


def write_units(folder: Path, options: str) -> Path:
    """The unit as it is shipped, with a drop-in, and a target that wants it."""
    units = folder / "units"
    drop_ins = units / f"{UNIT.name}.d"
    drop_ins.mkdir(parents=True)
    shutil.copy(UNIT, units)
    (drop_ins / "here.conf").write_text(DROP_IN.format(agent=AGENT, folder=folder))
    (units / "default.target").write_text(TARGET)
    (folder / "agent.env").write_text(f"J10CE_AGENT_OPTIONS={options}\n")
    for path in SYSTEMD.parent.joinpath("system").glob("*.slice"):
        shutil.copy(path, units)
    for name in ("basic", "sysinit", "shutdown", "umount"):
        shutil.copy(SYSTEMD.parent / "system" / f"{name}.target", units)
    return units


@pytest.fixture
def service(_root: None, tmp_path: Path) -> Iterator[Service]:
    port = ports.reserve(tmp_path)[0]
    options = f"--standalone {ROOT / 'examples' / 'standalone'} --nri-socket '' --address 127.0.0.1:{port}"
    units = write_units(tmp_path, options)
    with cgroups.scratch("unit") as scratch:
        steps = [["mount", "--make-rprivate", "/"], *mounts.cgroup_steps(scratch.mounts)]
        commands = [["ln", "-s", *one[1:]] if one[0] == "symlink" else one for one in steps]
        commands += [["mount", "-t", "tmpfs", "tmpfs", path] for path in ("/run", "/var/lib")]
        commands += [["mount", "-t", "proc", "proc", "/proc"]]
        systemd = ["env", "-i", "container=test", f"SYSTEMD_UNIT_PATH={units}", str(SYSTEMD), "--system"]
        systemd += ["--log-target=console", "--show-status=no"]
        script = "\n".join([*map(shlex.join, commands), f"exec {shlex.join(systemd)}"])
        namespaces = ["--pid", "--mount", "--cgroup", "--ipc", "--uts", "--fork", "--kill-child"]
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
