"""Which container runtimes a node has, how old they are, and hence at which stage the hook belongs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hook.installation.entry import CREATE_RUNTIME, PRESTART

KNOWN = ("podman", "runc", "crun", "containerd", "crio")
FIRST_WITH_CREATE_RUNTIME = {"runc": (1, 0, 0), "crun": (0, 12)}
"""runc has it since a late release candidate of 1.0.0 (pull request 2229), crun since January 2020 (222): an
older one ignores the stage without a word, so there the hook must be at prestart."""

_MORE_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Runtime:
    """A program on this node. version: as it says, (1, 1, 5); candidate: a release candidate of that."""

    name: str
    path: Path
    version: tuple[int, ...]
    candidate: bool = False

    @property
    def ignores_create_runtime(self) -> bool:
        """True for one that knows only prestart; of an unknown version that is not assumed."""
        first = FIRST_WITH_CREATE_RUNTIME.get(self.name)
        if first is None or not self.version:
            return False
        return self.version < first or (self.candidate and self.version == first)

    def __str__(self) -> str:
        return (
            f"{self.path} {'.'.join(map(str, self.version)) or '(version unknown)'}{'-rc' * self.candidate}"
        )


def find(names: Iterable[str] = KNOWN) -> list[Runtime]:
    """The runtimes on PATH or in root's usual folders."""
    found = []
    for name in names:
        path = shutil.which(name) or shutil.which(name, path=_MORE_FOLDERS)
        if path:
            version, candidate = parse_version(_said(path))
            found.append(Runtime(name, Path(path), version, candidate))
    return found


def stage(runtimes: Iterable[Runtime]) -> str:
    """createRuntime, or prestart where one of the runtimes would ignore that."""
    return PRESTART if any(runtime.ignores_create_runtime for runtime in runtimes) else CREATE_RUNTIME


def parse_version(said: str) -> tuple[tuple[int, ...], bool]:
    """The first version in what `--version` prints, and whether it is a release candidate."""
    found = re.search(r"\bv?(\d+(?:\.\d+)+)(-rc)?", said)
    if found is None:
        return (), False
    return tuple(int(part) for part in found.group(1).split(".")), bool(found.group(2))


def _said(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
