"""What a real node leaves outside its folder: its cgroups, by the name that its record holds.

Namespaces, mounts and network devices go with its last process. Standard library only: lab/reaper.py runs it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from lab.runtimes.cgroups import Scratch, hierarchies
from lab.runtimes.programs import RuntimesError

RECORD = "node.json"
FOLDER = "nodes"
"""In a cluster's folder: one folder a real node."""


def records(folder: Path) -> list[Path]:
    """The records of the real nodes in a cluster's folder, or of the one whose own folder it is."""
    return [*folder.glob(RECORD), *sorted(folder.glob(f"{FOLDER}/*/{RECORD}"))]


def remove(folder: Path, proc: Path = Path("/proc")) -> None:
    """Kill what is left in the nodes' cgroups and remove them. What cannot be removed stays silently."""
    for scratch in _cgroups(folder, proc):
        with contextlib.suppress(RuntimesError):
            scratch.remove()


def _cgroups(folder: Path, proc: Path) -> Iterator[Scratch]:
    for record in records(folder):
        try:
            name = json.loads(record.read_text())["cgroup"]
        except (OSError, ValueError, KeyError):  # being made at this moment: it has no cgroup yet
            continue
        yield Scratch(name, hierarchies((proc / "self" / "mountinfo").read_text()))
