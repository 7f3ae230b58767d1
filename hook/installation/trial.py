"""A container for a trial, without an image: the host's own programs, bind-mounted read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hook.installation.errors import InstallationError
from kernel import hierarchies

MEMORY = 64 * 1024 * 1024
VALUES_V1 = (("cpu", "cpu.shares", "1037"), ("memory", "memory.soft_limit_in_bytes", str(MEMORY)))
VALUES_V2 = (("cpu", "cpu.weight", "137"), ("memory", "memory.low", str(MEMORY)))
"""(controller, file, value): odd numbers that no runtime writes by itself."""

_FOLDERS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_EMPTY = ("dev", "proc", "sys", "tmp")
_CGROUP = "/sys/fs/cgroup"


def values(mountinfo: str) -> list[tuple[str, str, str]]:
    """The test floor on this machine: (path in the container, file, value). Raises InstallationError."""
    mounts = hierarchies.mounts(mountinfo)
    found = [
        (f"{_CGROUP}/{controller}/{file}", file, value)
        for controller, file, value in VALUES_V1
        if controller in mounts
    ]
    if not found and hierarchies.UNIFIED in mounts:
        controllers = Path(mounts[hierarchies.UNIFIED], "cgroup.controllers").read_text().split()
        found = [
            (f"{_CGROUP}/{file}", file, value)
            for controller, file, value in VALUES_V2
            if controller in controllers
        ]
    if not found:
        raise InstallationError("this machine has no cgroup hierarchy with a cpu or a memory controller")
    return found


def root_file_system(folder: Path, host: Path = Path("/")) -> list[str]:
    """Make the mountpoints and links of a container's root; answer the host's folders to be mounted there."""
    mounted = []
    for name in _EMPTY:
        (folder / name).mkdir(parents=True)
    for name in _FOLDERS:
        here = host / name
        if here.is_symlink():
            (folder / name).symlink_to(here.readlink())
        elif here.is_dir():
            (folder / name).mkdir()
            mounted.append(f"/{name}")
    return mounted


def command(paths: Sequence[str]) -> list[str]:
    """What the container runs: its first instructions read the kernel's files."""
    return ["/bin/cat", *paths]


def config(
    root: Path,
    mounted: Sequence[str],
    args: Sequence[str],
    hooks: Mapping[str, Sequence[Mapping[str, Any]]],
    annotations: Mapping[str, str],
) -> dict[str, Any]:
    """The config.json of an OCI bundle that shows a container its own cgroup; no network, no capabilities."""
    namespaces = ["pid", "network", "ipc", "uts", "mount"]
    if not Path(_CGROUP, "cpu").exists():  # v2: else it would see the host's whole tree
        namespaces.append("cgroup")
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(args),
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "hostname": "j10ce-check",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "size=64k"]},
            {"destination": "/sys", "type": "none", "source": "/sys", "options": ["rbind", "ro"]},
            {"destination": _CGROUP, "type": "cgroup", "source": "cgroup", "options": ["ro"]},
            *(
                {"destination": path, "type": "none", "source": path, "options": ["rbind", "ro"]}
                for path in mounted
            ),
        ],
        "annotations": dict(annotations),
        "hooks": {stage: list(entries) for stage, entries in hooks.items()},
        "linux": {"namespaces": [{"type": name} for name in namespaces], "resources": {}},
    }
