"""All that a node has, for comparisons: settings of every cgroup, scores of pods' processes, queues, files.

Run in the guest as a program: prints JSON, what -> value.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

READINGS = (
    "cgroup.procs",
    "cgroup.threads",
    "cpu.pressure",
    "io.pressure",
    "memory.pressure",
    "irq.pressure",
)
"""Files of cgroups that can be written and hold no setting."""
OTHERS = (
    "/run/containerd",
    "/run/log",
    "/run/systemd",
    "/run/udev",
    "/var/lib/containerd",
    "/var/lib/kubelet",
)
"""Folders in which somebody else is at work all the time."""


def cgroups() -> Iterator[tuple[str, str]]:
    for folder, _, names in os.walk("/sys/fs/cgroup"):
        for name in names:
            path = Path(folder, name)
            try:
                mode = path.stat().st_mode
                if name not in READINGS and mode & stat.S_IWUSR and mode & stat.S_IRUSR:
                    yield str(path), path.read_text().strip()
            except OSError:  # a cgroup that ends, or a file without a value
                continue


def scores() -> Iterator[tuple[str, str]]:
    for file in Path("/sys/fs/cgroup/kubepods.slice").rglob("cgroup.procs"):
        for pid in file.read_text().split():
            yield f"{file.parent} {pid} oom_score_adj", Path(f"/proc/{pid}/oom_score_adj").read_text().strip()


def queues() -> Iterator[tuple[str, str]]:
    for what in ("qdisc", "filter"):
        yield (
            f"tc {what}",
            subprocess.run(["tc", what, "show"], capture_output=True, text=True, check=True).stdout,
        )


def files() -> Iterator[tuple[str, str]]:
    for top in ("/run", "/var/lib", "/etc"):
        for folder, below, names in os.walk(top):
            below[:] = [name for name in below if not str(Path(folder, name)).startswith(OTHERS)]
            yield folder, ""
            for name in names:
                path = Path(folder, name)
                if path.is_symlink() or path.is_file():
                    yield str(path), _digest(path)


def _digest(path: Path) -> str:
    try:
        content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
    except OSError as error:
        return str(error.errno)
    return hashlib.sha256(content).hexdigest()[:12]


def main() -> None:
    json.dump(dict(one for part in (cgroups, scores, queues, files) for one in part()), sys.stdout)


if __name__ == "__main__":
    main()
