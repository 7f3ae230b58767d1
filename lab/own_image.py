"""The image that the Dockerfile says, built by podman where there is no registry to take its base from.

The base is Debian's own Python, made by mmdebstrap under the name of the Dockerfile's build argument. What is
built is an archive as `ctr images import` takes it. As root, on Debian; minutes, most of them pip's.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.runtimes.programs import Finished, require, run
from lab.vm import recipe
from lab.vm.image import debian_sources

BASE: Final = "localhost/debian-python:latest"
NAME: Final = "localhost/j10ce-qos:0.1.0"
PACKAGES: Final = ("python3", "python3-venv", "python3-pip", "python-is-python3", "ca-certificates")
_SECONDS: Final = 1800.0
_OF_PIP: Final = ("/etc/pip.conf", "/etc/ssl/certs")
"""How this machine reaches the package index; the build needs it, the image does not keep it."""


@dataclass(frozen=True, slots=True)
class Builder:
    """podman with a storage of its own below a folder, which leaves the machine's alone."""

    folder: Path

    def run(self, *arguments: str | Path) -> Finished:
        """Run podman to its end; RuntimesError with what it said when it fails."""
        where = [f"--{name}={self.folder / name}" for name in ("root", "runroot", "tmpdir")]
        how = ["--storage-driver=vfs", "--cgroup-manager=cgroupfs", "--events-backend=none"]
        argv = [require("podman"), *where, *how, f"--runtime={require('runc')}", *arguments]
        return run(argv, seconds=_SECONDS).succeeded()

    def base(self) -> None:
        """Make the base image from Debian's packages."""
        tar = self.folder / "base.tar"
        sources = self.folder / "sources.list"
        sources.write_text("".join(f"{line}\n" for line in debian_sources()))
        # Debian's pip refuses to install beside Debian's packages; python:3.11-slim's does not.
        unmanaged = '--customize-hook=rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED'
        argv: Sequence[str | Path] = [
            *(require("mmdebstrap"), "--quiet", "--variant=minbase", "--mode=root"),
            f"--include={','.join(PACKAGES)}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.LEFT_OUT),
            *(unmanaged, recipe.codename(), tar, sources),
        ]
        run(argv, seconds=_SECONDS).succeeded()
        self.run("import", "--quiet", tar, BASE)
        tar.unlink()

    def build(self, source: Path) -> None:
        """Build the Dockerfile of a source tree on the base."""
        there = [f"--volume={path}:{path}:ro" for path in _OF_PIP if Path(path).exists()]
        place = ["--isolation=chroot", "--network=host", "--layers=false", *there]
        self.run("build", *place, f"--build-arg=PYTHON={BASE}", f"--tag={NAME}", source)

    def forget(self) -> None:
        """Remove all images; their storage takes gigabytes."""
        self.run("rmi", "--all", "--force")

    def save(self, archive: Path) -> Path:
        """The built image as a docker-archive."""
        self.run("save", "--quiet", "--format=docker-archive", f"--output={archive}", NAME)
        return archive

    def size(self) -> int:
        """Bytes of the built image, with its base."""
        return int(self.run("image", "inspect", "--format={{.Size}}", NAME).stdout)


@contextlib.contextmanager
def builder() -> Iterator[Builder]:
    """A builder for the time of the block. podman takes no path of more than 50 characters."""
    with tempfile.TemporaryDirectory(prefix="j10ce-image-", dir="/tmp") as folder:
        made = Builder(Path(folder))
        yield made
        made.forget()
