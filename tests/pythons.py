"""The Pythons that the hook may meet on a node, as far as this machine has them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")


@cache
def python_of(version: str) -> Path | None:
    """An interpreter of that version: on PATH, or where pyenv keeps its own; None: none that runs."""
    return next((path for path in _candidates(version) if _is(version, path)), None)


def _candidates(version: str) -> Iterator[Path]:
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield Path(on_path)
    roots = [os.environ.get("PYENV_ROOT"), Path.home() / ".pyenv"]
    shim = shutil.which("python3")
    if shim:  # pyenv may be on PATH while HOME is another
        roots.append(Path(shim).parent.parent)
    for root in filter(None, roots):
        yield from sorted(Path(root).glob(f"versions/{version}.*/bin/python{version}"))


def _is(version: str, path: Path) -> bool:
    """A shim stands for versions that are not chosen, too: it does not run then."""
    argv = [str(path), "-I", "-S", "-c", "import sys; print(sys.version_info[:2], sys.executable)"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    major, _, minor = version.partition(".")
    # What a shim runs has another name: the hook's tests name the interpreter itself.
    return done.stdout.split("\n")[0] == f"({major}, {minor}) {path}"
