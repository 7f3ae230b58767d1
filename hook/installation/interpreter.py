"""The Python that runs the hook: the system's, by a name that outlives upgrades, changed by root alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hook.installation.errors import InstallationError

CANDIDATES = ("/usr/bin/python3", "/usr/local/bin/python3", "/usr/libexec/platform-python", "/bin/python3")
"""Names without a version: after an upgrade of the system /usr/bin/python3.11 is gone, and no container
starts whose hook names it."""

OLDEST = (3, 9)
_PROBE = "import sys, _json, errno, posix, time; print(*sys.version_info[:3])"
_SECONDS = 30
_ELF = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter fit for the hook: its absolute path as the runtime gets it, and (3, 11, 2)."""

    path: Path
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.path} ({'.'.join(map(str, self.version))})"


def choose(asked: Path | None, candidates: Iterable[str] = CANDIDATES) -> Interpreter:
    """The one asked for, or the first that is fit; InstallationError says what is wrong with each."""
    if asked is not None:
        return examine(asked)
    faults = []
    for candidate in candidates:
        if os.path.lexists(candidate):
            try:
                return examine(Path(candidate))
            except InstallationError as error:
                faults.append(str(error))
    raise InstallationError(
        "no Python for the hook: "
        + ("; ".join(faults) or f"none of {', '.join(candidates)} is there")
        + ". Install the system's Python 3.9 or newer, or name one with --python"
    )


def examine(path: Path) -> Interpreter:
    """Is it fit? InstallationError names the reason why not."""
    if not path.is_absolute():
        raise InstallationError(
            f"{path} is no absolute path: the runtime starts the hook in the container's bundle"
        )
    for folder in (path.parent, path.parent.parent):
        if (folder / "pyvenv.cfg").exists():
            raise InstallationError(
                f"{path} is a virtual environment's, which may go away: name the system's Python"
            )
    _refuse_shim(path)
    for part in (*path.parents, path, *path.resolve().parents, path.resolve()):
        _refuse_writable(part)
    return Interpreter(path, _version(path))


def _refuse_shim(path: Path) -> None:
    try:
        with path.open("rb") as file:
            begin = file.read(4)
    except OSError as error:
        raise InstallationError(f"{path}: {error.strerror}") from error
    if begin != _ELF:
        raise InstallationError(
            f"{path} is a script that starts another Python, which takes some 60 ms a container: "
            f"name the interpreter itself"
        )


def _refuse_writable(path: Path) -> None:
    status = path.stat()
    if status.st_uid != 0 or status.st_mode & 0o022:
        raise InstallationError(f"{path} can be changed by others than root, and the hook runs as root")


def _version(path: Path) -> tuple[int, ...]:
    argv = [str(path), "-I", "-S", "-c", _PROBE]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallationError(f"{path} does not run: {error}") from error
    words = done.stdout.split()
    if done.returncode or len(words) != 3:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise InstallationError(f"{path} does not run as the hook's Python: {last[0]}")
    version = tuple(int(word) for word in words)
    if version[:2] < OLDEST:
        raise InstallationError(f"{path} is Python {'.'.join(words)}: the hook needs 3.9 or newer")
    return version
