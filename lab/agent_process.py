"""The agent as a process: started with folders of its own, asked, killed.

It sees the machine's cgroups, or a part of them (Part): a cgroup that is the root of every hierarchy to it. A
crowd in there is nobody else's.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import ports
from lab.cluster import LabError
from lab.node import inside, mounts
from lab.node.node import SYSTEM
from lab.runtimes import cgroups
from lab.runtimes.cgroups import Scratch

PROGRAM = Path(sys.executable).with_name("j10ce-agent")
READY_SECONDS = 120.0
_QUICK = 0.02
_UNVERIFIED = ssl._create_unverified_context()  # noqa: S323, SLF001 - the agent's certificate is its own


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the machine's cgroups that looks like a whole machine's to what runs in it.

    keeper: the pid of a process in its namespaces.
    """

    scratch: Scratch
    keeper: int

    @property
    def mounts(self) -> Mapping[str, Path]:
        """Where we find its root in each hierarchy: paths below are the same as it sees them."""
        return {name: Path(f"{mount}{self.scratch.name}") for name, mount in self.scratch.mounts.items()}

    def argv(self, argv: Sequence[str | Path]) -> list[str]:
        """A command line that becomes argv in there; the pid stays."""
        nsenter = ["nsenter", f"--target={self.keeper}", "--cgroup", "--mount", "--"]
        return inside.joining(self.scratch.make(SYSTEM), [*nsenter, *argv])


@contextlib.contextmanager
def part(label: str) -> Iterator[Part]:
    """A part of this machine's cgroups for the time of the block; what runs in it is killed."""
    with cgroups.scratch(label) as scratch:
        steps = [["mount", "--make-rprivate", "/"], *mounts.cgroup_steps(scratch.mounts)]
        commands = [["ln", "-s", *one[1:]] if one[0] == "symlink" else one for one in steps]
        script = "\n".join([*map(shlex.join, commands), "echo ready", "exec sleep 2147483647"])
        argv = inside.joining(scratch, ["unshare", "--cgroup", "--mount", "sh", "-ec", script])
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as keeper:
            try:
                if keeper.stdout is None or keeper.stdout.readline() != "ready\n":
                    raise LabError("the cgroups of a part cannot be mounted: see standard error")
                for folder in scratch.make(SYSTEM).folders():  # a busy root passes no controller down
                    (folder / "cgroup.procs").write_text(str(keeper.pid))
                scratch.make(SYSTEM)
                yield Part(scratch, keeper.pid)
            finally:
                keeper.kill()


class AgentProcess:
    """One agent: its folders and its port stay through kill() and start().

    arguments: after those of its folders and its address. wrap: makes the command line another, as
    Part.argv does; parent: what it makes stays, as the agent's parent. folder/agent.log is its own; run and
    state are below `home`, which is the same folder. host: the address where it listens. token: with which
    /metrics are asked for, by HTTPS; "": as who is on the loopback.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str | Path,
        wrap: Callable[[Sequence[str | Path]], Sequence[str | Path]] = lambda argv: argv,
        program: Sequence[str | Path] = (PROGRAM,),
        home: Path | None = None,
        host: str = ports.LOOPBACK,
        parent: bool = False,
        token: str = "",
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self._home = folder, home or folder
        self.log = folder / "agent.log"
        self.arguments, self.wrap, self.program = arguments, wrap, program
        self.host, self._token = host, token
        self.port, self._metrics_port = ports.reserve(folder, 2)
        self._parent = parent
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def run(self) -> Path:
        """Its RUN."""
        return self._home / "run"

    @property
    def state(self) -> Path:
        """Its state."""
        return self._home / "state"

    @property
    def pid(self) -> int:
        """Its pid. LabError: it does not run."""
        if self._process is None or self._process.poll() is not None:
            raise LabError(f"the agent does not run: {self.last_words()}")
        pid = self._process.pid
        return next(inside.children(pid), pid) if self._parent else pid

    def start(self, *, ready: bool = True) -> None:
        """Start it, and wait until it is ready."""
        argv = [*self.program, "--address", f"{self.host}:{self.port}", "--run", self.run]
        if self._token:
            argv += ["--metrics-address", f"{self.host}:{self._metrics_port}"]
        argv = [*self.wrap([*argv, "--state", self.state, *self.arguments])]
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(argv, stdout=out, stderr=out)
        if ready:
            self.wait_ready()

    def end(self, sig: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal and wait until it is gone; its exit code. Not running is fine."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self.pid, sig)
        return self.wait()

    def wait(self, seconds: float = 60.0) -> int:
        """Wait until it has ended; its exit code. subprocess.TimeoutExpired."""
        return 0 if self._process is None else self._process.wait(timeout=seconds)

    def wait_ready(self) -> None:
        """Until its first pass is done. LabError."""
        self.until(lambda: self.get("/readyz")[0] == 200, "ready")

    def until(self, condition: Callable[[], object], what: str, seconds: float = READY_SECONDS) -> None:
        """Until the condition holds while the agent runs. LabError with the log's end."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self._process is None or self._process.poll() is not None:
                raise LabError(f"the agent ended before: {what}: {self.last_words()}")
            if time.monotonic() > deadline:
                raise LabError(f"not within {seconds:g} s: {what}: {self.last_words()}")
            time.sleep(_QUICK)

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        """Status and text of a page; status 0: nobody answers. token: by HTTPS, where only /metrics is."""
        served, headers = f"http://{self.host}:{self.port}", {}
        if token:
            served, headers = (
                f"https://{self.host}:{self._metrics_port}",
                {"Authorization": f"Bearer {token}"},
            )
        request = urllib.request.Request(served + path, headers=headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=30, context=_UNVERIFIED) as answer:  # noqa: S310
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metrics(self) -> dict[str, float]:
        """All series: name with labels -> value."""
        lines = [
            line for line in self.get("/metrics", self._token)[1].splitlines() if not line.startswith("#")
        ]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def metric(self, name: str) -> float:
        """One series; 0.0: there is none."""
        return self.metrics().get(name, 0.0)

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident megabytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def open_files(self) -> list[str]:
        """What its descriptors are of."""
        found = []
        for link in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(str(link.readlink()))
        return found

    def logged(self) -> str:
        """Its log, over all its lives."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def last_life(self) -> str:
        """Its log since it was last started."""
        return self.logged().rpartition("agent.process serving address")[2]

    def last_words(self) -> str:
        """The end of its log."""
        return self.logged()[-3000:]
