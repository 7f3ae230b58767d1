"""The disk of a systemd node's programs: kubelet, containerd, and what the agent imports; made once.

The libraries are PyPI's, for the guest's Python, at the versions of constraints.txt.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from lab.node import rig
from lab.node.settings import Programs
from lab.only_one import Report, only_one
from lab.vm import payload
from lab.vm.recipe import Image, VmError

_PYTHON = re.compile(r"-> python(\d+\.\d+)$", re.MULTILINE)
_PIP = ("-m", "pip", "install", "--quiet", "--compile", "--only-binary=:all:")
"""Compiled: the guest would take seconds for that, at each start."""
_CONSTRAINTS = payload.REPOSITORY / "constraints.txt"


def provide(image: Image, environ: Mapping[str, str], report: Report) -> Path:
    """A squashfs with the folders node, kubelet and python. VmError: it could not be made."""
    programs = rig.provide(report)
    python = _python(image, environ)
    parts = (python, str(programs.runtime), str(programs.kubelet), *_PIP, *_dependencies())
    text = "\n".join((*parts, _CONSTRAINTS.read_text()))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    target = image.folder.parent / f"programs-{digest}.squashfs"
    if not target.exists():
        waiting = "another preparation is under way; waiting for it"
        with only_one(image.folder.parent / ".lock", waiting, report):
            if not target.exists():  # the one we waited for made it
                _make(target, programs, python, report, environ)
    return target


def _make(target: Path, programs: Programs, python: str, report: Report, environ: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".programs-") as name:
        disk = Path(name) / "disk"
        shutil.copytree(programs.runtime, disk / "node")
        shutil.copytree(programs.kubelet, disk / "kubelet")
        report("fetching the agent's libraries", 0, 2)
        pip = [sys.executable, *_PIP, f"--python-version={python}", f"--constraint={_CONSTRAINTS}"]
        _run([*pip, f"--target={disk / 'python'}", *_dependencies()], environ)
        report("packing the node's programs", 1, 2)
        packed = Path(name) / "squashfs"
        _run(["mksquashfs", str(disk), str(packed), "-all-root", "-comp", "lz4", "-no-progress"], environ)
        packed.rename(target)


def _dependencies() -> list[str]:
    project = tomllib.loads((payload.REPOSITORY / "pyproject.toml").read_text())["project"]
    return list(project["dependencies"])


def _python(image: Image, environ: Mapping[str, str]) -> str:
    """The version of the guest's Python, such as 3.11."""
    listing = _run(["unsquashfs", "-lls", str(image.root), "usr/bin/python3"], environ)
    found = _PYTHON.search(listing)
    if found is None:
        raise VmError(f"{image.root} has no /usr/bin/python3: remove {image.folder}, and it is made again")
    return found.group(1)


def _run(argv: list[str], environ: Mapping[str, str]) -> str:
    done = subprocess.run(argv, env=dict(environ), capture_output=True, text=True, check=False)
    if done.returncode:
        raise VmError(f"{' '.join(argv[:4])} failed ({done.returncode}):\n{done.stderr.strip()[-2000:]}")
    return done.stdout
