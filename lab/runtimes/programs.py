"""Programs that the rigs run: where they are, and how each ended."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {
    "runc": "runc",
    "crun": "crun",
    "podman": "podman",
    "conmon": "conmon",
    "busybox": "busybox-static",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
}
"""Program -> the Debian package that brings it."""


SECONDS = 120.0
"""Enough for any one command of a runtime: all of them take about a second, some twenty at once."""


class RuntimesError(Exception):
    """A rig cannot be set up or did not do as asked; the message names the program and what it said."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended: exit code (negative: the signal), what it printed, and the seconds it took."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    seconds: float

    def succeeded(self) -> Finished:
        """Itself, or RuntimesError with what the program said."""
        if self.code:
            said = self.stderr.strip() or self.stdout.strip() or "it said nothing"
            raise RuntimesError(f"{' '.join(self.argv)} ended with {self.code}: {said[-2000:]}")
        return self


def require(name: str) -> Path:
    """A program on PATH (or in the folders of root's PATH); RuntimesError names its Debian package."""
    found = shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")
    if found is None:
        package = PACKAGES.get(name, name)
        raise RuntimesError(f"{name} is missing: `make runtimes` installs it (Debian package {package})")
    return Path(found)


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    seconds: float = SECONDS,
) -> Finished:
    """Run a program to its end and keep what it printed; RuntimesError when `seconds` do not suffice."""
    words = tuple(str(word) for word in argv)
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environ,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimesError(f"{' '.join(words)} did not end within {seconds:g} s") from error
    return Finished(words, done.returncode, done.stdout, done.stderr, time.perf_counter() - begun)
