"""podman with a storage of its own, an image made from busybox, and no network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.runtimes import rootfs
from lab.runtimes.oci import Runtime
from lab.runtimes.programs import SECONDS, Finished, require, run

IMAGE = "localhost/busybox:1"
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
"""podman raises these limits by default, which takes CAP_SYS_RESOURCE."""


@dataclass(frozen=True, slots=True)
class Podman:
    """podman, with the options that make it leave the machine's own storage alone."""

    prefix: tuple[str, ...]

    def argv(self, *arguments: str) -> list[str]:
        """A podman command line for this storage."""
        return [*self.prefix, *arguments]

    def run(
        self,
        args: Sequence[str],
        *,
        cgroup_parent: str,
        hooks: Path | None = None,
        annotations: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        seconds: float = SECONDS,
    ) -> Finished:
        """`podman run --rm` a program of the busybox image; hooks is the folder of hooks.d files.

        Name a container by options=("--name", NAME); it is at CGROUP_PARENT/libpod-ID.
        """
        argv = self.argv(*(["--hooks-dir", str(hooks)] if hooks else []), "run", "--rm", "--network", "none")
        argv += ["--cgroup-parent", cgroup_parent, *_LIMITS]
        argv += [f"--annotation={key}={value}" for key, value in (annotations or {}).items()]
        return run([*argv, *options, IMAGE, *args], seconds=seconds)

    def remove_all(self) -> None:
        """Remove every container there is."""
        run(self.argv("rm", "--all", "--force", "--time", "0"))


@contextlib.contextmanager
def podman(folder: Path, runtime: Runtime | None = None) -> Iterator[Podman]:
    """podman below a folder, its image imported; its containers are removed after the block.

    runtime: lab.runtimes.oci.crun()'s, for one (podman then runs in crun's view); else runc of this machine.
    """
    program, _ = require("podman"), require("conmon")
    prefix = [*(runtime.prefix if runtime else ()), str(program)]
    prefix += ["--root", str(folder / "root"), "--runroot", str(folder / "runroot")]
    prefix += ["--tmpdir", str(folder / "tmp"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]
    prefix += ["--events-backend", "none", "--runtime", str(runtime.program if runtime else require("runc"))]
    here = Podman(tuple(prefix))
    folder.mkdir(parents=True, exist_ok=True)
    tar = rootfs.layer(folder / "layer.tar")
    run(here.argv("import", "--quiet", str(tar), IMAGE)).succeeded()
    try:
        yield here
    finally:
        here.remove_all()
