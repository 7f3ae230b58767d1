"""What goes into the guest: the needed part of the repository, a command, and whatever else a run brings."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.vm.recipe import VmError

REPOSITORY = Path(__file__).parents[2]
PARTS = (
    *("kernel", "qos", "hook", "agent", "examples", "tests/kernel", "tests/waiting.py"),
    *("adapters/__init__.py", "adapters/atomic_file.py", "adapters/cgroup_tree.py", "adapters/machine.py"),
    "adapters/loops.py",
    *("lab/__init__.py", "lab/contention", "lab/runtimes", "lab/vm/__init__.py", "lab/vm/guest"),
    *("tests/network/node.py", "tests/network/test_shaping.py", "tests/agent/network/namespaces.py"),
    *("tests/network/flows.py", "tests/network/test_rates.py"),
)
"""Files and folders of the repository that tests in the guest may use; it lies in /work there."""

COMMAND = ".guest/command"
"""The shell script that the guest runs in /work; its output and exit status come back."""

COMPILED = frozenset({"__pycache__"})
_NEVER = COMPILED | {"api", "installation"}
"""Folders left out: compiled files of another Python, and modules whose libraries the guest lacks."""


def write(
    target: Path,
    texts: Mapping[str, str],
    extra: Mapping[str, Path],
    parts: Iterable[str] = PARTS,
    never: frozenset[str] = _NEVER,
) -> None:
    """Write the payload as a tar.

    texts: files by their path below /work. extra: files or folders of this machine (programs, bundles), by
    their path below /work; they keep their modes. Paths that are absolute or leave /work are refused.
    never: folders that are left out wherever they are.
    """

    def clean(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if never.intersection(Path(entry.name).parts):
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        return entry

    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for part in parts:
            if (REPOSITORY / part).exists():
                tar.add(REPOSITORY / part, part, filter=clean)
        for name, path in extra.items():
            tar.add(path, _inside(name), filter=clean)
        for name, text in texts.items():
            entry = tarfile.TarInfo(_inside(name))
            entry.size, entry.mode = len(text.encode()), 0o755
            tar.addfile(entry, io.BytesIO(text.encode()))


def _inside(name: str) -> str:
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise VmError(f"payload path {name!r}: give a path below /work, without ..")
    return name
