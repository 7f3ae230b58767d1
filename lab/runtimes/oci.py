"""runc and crun, driven directly. crun refuses a hybrid machine: it gets a view with v1 hierarchies only."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.runtimes import cgroups
from lab.runtimes.programs import SECONDS, Finished, RuntimesError, require, run

_VIEW = """
set -eu
held=$(mktemp -d)
mount -t tmpfs -o mode=755 view "$held"
for one in "$@"; do
  mkdir "$held/${one##*/}"
  mount --bind "$one" "$held/${one##*/}"
done
mount --move "$held" /sys/fs/cgroup
rmdir "$held"
echo ready
exec cat
"""


@dataclass(frozen=True, slots=True)
class Runtime:
    """runc or crun with a state folder of its own. prefix: what its command line starts with (the view)."""

    name: str
    program: Path
    root: Path
    prefix: tuple[str, ...] = ()

    def argv(self, *arguments: str) -> list[str]:
        """A command line of the runtime, for those who start it themselves."""
        return [*self.prefix, str(self.program), "--root", str(self.root), *arguments]

    def run(self, bundle: Path, container: str, *, seconds: float = SECONDS) -> Finished:
        """Create, start, wait; nothing stays. The code is the container's, or that of the runtime."""
        return run(self.argv("run", "--bundle", str(bundle.resolve()), container), seconds=seconds)

    def create(self, bundle: Path, container: str, log: Path, *, seconds: float = SECONDS) -> Finished:
        """Create only. What container and runtime print goes to the log, which the container keeps open."""
        argv = self.argv("create", "--bundle", str(bundle.resolve()), container)
        with log.open("w") as out:
            try:
                done = subprocess.run(
                    argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=seconds, check=False
                )
            except subprocess.TimeoutExpired as error:
                raise RuntimesError(f"{' '.join(argv)} did not end within {seconds:g} s") from error
        return Finished(tuple(argv), done.returncode, "", log.read_text(errors="replace"), 0.0)

    def start(self, container: str) -> Finished:
        """Let a created container run its program."""
        return run(self.argv("start", container))

    def state(self, container: str) -> dict[str, Any]:
        """The runtime's state of a container (status, pid ...); empty when it knows none of that name."""
        done = run(self.argv("state", container))
        return json.loads(done.stdout) if done.code == 0 else {}

    def delete(self, container: str) -> Finished:
        """Kill and remove; no error when there is none."""
        return run(self.argv("delete", "--force", container))

    def containers(self) -> list[str]:
        """What the runtime still knows."""
        done = run(self.argv("list", "--quiet") if self.name == "crun" else self.argv("list", "-q"))
        return done.stdout.split()


def runc(root: Path) -> Runtime:
    """runc of this machine."""
    return Runtime("runc", require("runc"), root)


@contextlib.contextmanager
def crun(root: Path) -> Iterator[Runtime]:
    """crun of this machine; on a hybrid machine through a view that lasts as long as the block."""
    program = require("crun")
    mounts = cgroups.hierarchies(Path("/proc/self/mountinfo").read_text())
    if "" not in mounts or cgroups.is_v2(mounts):
        yield Runtime("crun", program, root)
        return
    with v1_view([path for name, path in mounts.items() if name]) as prefix:
        yield Runtime("crun", program, root, prefix)


@contextlib.contextmanager
def v1_view(hierarchies: list[Path]) -> Iterator[tuple[str, ...]]:
    """A mount namespace whose /sys/fs/cgroup has just these hierarchies; yields the words that enter it.

    One process holds it. It ends with its standard input, so it does not outlive us.
    """
    argv = [str(require("unshare")), "--mount", "--propagation", "private", "sh", "-c", _VIEW, "view"]
    argv += sorted({str(path) for path in hierarchies})
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stderr is not None
        try:
            if holder.stdout.readline() != "ready\n":
                raise RuntimesError(f"no private view of the v1 hierarchies: {holder.stderr.read().strip()}")
            yield (str(require("nsenter")), f"--mount=/proc/{holder.pid}/ns/mnt", "--")
        finally:
            holder.stdin.close()
            holder.wait(timeout=30)
