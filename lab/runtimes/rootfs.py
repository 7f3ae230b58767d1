"""A container's file system: Debian's static busybox and nothing else."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

from lab.runtimes.programs import require

APPLETS = ("sh", "cat", "echo", "sleep", "true", "false", "head", "ls", "grep", "dd", "test", "yes")
FOLDERS = ("bin", "dev", "etc", "proc", "sys", "tmp", "run", "mnt")


def make(folder: Path) -> Path:
    """Fill an empty or missing folder with a root file system; many containers may share it read-only."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(require("busybox"), folder / "bin" / "busybox")
    for applet in APPLETS:
        (folder / "bin" / applet).symlink_to("busybox")
    return folder


def layer(path: Path) -> Path:
    """The same as a tar: what `podman import` takes, and the one layer of a docker-archive."""
    with tarfile.open(path, "w") as tar:
        for name in FOLDERS:
            tar.addfile(_entry(name, tarfile.DIRTYPE, 0o755))
        program = require("busybox").read_bytes()
        entry = _entry("bin/busybox", tarfile.REGTYPE, 0o755)
        entry.size = len(program)
        tar.addfile(entry, io.BytesIO(program))
        for applet in APPLETS:
            link = _entry(f"bin/{applet}", tarfile.SYMTYPE, 0o777)
            link.linkname = "busybox"
            tar.addfile(link)
    return path


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    """Owned by root and of no time, so that the same busybox gives the same bytes."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry
