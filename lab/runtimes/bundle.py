"""OCI bundles: a folder with a config.json, for runc and crun.

Shapes: https://github.com/opencontainers/runtime-spec (config.md, config-linux.md), 1.0.2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.runtimes import cgroups

NAMESPACES = ("pid", "network", "ipc", "uts", "mount")
_CAPABILITIES = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"]
_PATH = "PATH=/bin"


@dataclass(frozen=True, slots=True)
class Spec:
    """What a container is to be. Everything else is as `runc spec` has it, without a terminal.

    hooks: stage -> entries of the OCI form (path, args, env, timeout).
    cgroups_path: below each hierarchy, such as Scratch.path("c1"); empty: the runtime's choice.
    mounts: further mounts, of the OCI form. namespaces: none named means those of `runc spec`.
    """

    args: Sequence[str] = ("true",)
    hooks: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    cgroups_path: str = ""
    mounts: Sequence[Mapping[str, Any]] = ()
    env: Sequence[str] = ()
    namespaces: Sequence[str] = ()


def make(folder: Path, rootfs: Path, spec: Spec) -> Path:
    """Write a bundle that uses a root file system read-only; answer its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(rootfs, spec), indent=1))
    return folder


def config(rootfs: Path, spec: Spec) -> dict[str, Any]:
    """The config.json of a container. Its own cgroups are mounted read-only at /sys/fs/cgroup."""
    linux: dict[str, Any] = {
        "namespaces": [{"type": name} for name in spec.namespaces or _namespaces()],
        "resources": {"devices": [{"allow": False, "access": "rwm"}], **spec.resources},
    }
    if spec.cgroups_path:
        linux["cgroupsPath"] = spec.cgroups_path
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(spec.args),
            "env": [_PATH, *spec.env],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), _CAPABILITIES),
            "noNewPrivileges": True,
        },
        "root": {"path": str(rootfs.resolve()), "readonly": True},
        "hostname": "lab",
        "mounts": [*_mounts(), *spec.mounts],
        "annotations": dict(spec.annotations),
        "hooks": {stage: list(entries) for stage, entries in spec.hooks.items()},
        "linux": linux,
    }


def _namespaces() -> tuple[str, ...]:
    """On cgroup v2 also a cgroup namespace: /sys/fs/cgroup in the container is its own cgroup, as on v1."""
    mounts = cgroups.hierarchies(Path("/proc/self/mountinfo").read_text())
    return (*NAMESPACES, "cgroup") if cgroups.is_v2(mounts) else NAMESPACES


def _mounts() -> list[dict[str, Any]]:
    safe = ["nosuid", "noexec", "nodev"]
    return [
        _mount("proc", "/proc"),
        _mount("tmpfs", "/dev", "nosuid", "mode=755", "size=64k"),
        _mount("tmpfs", "/tmp", *safe, "size=16m"),  # noqa: S108
        _mount("sysfs", "/sys", *safe, "ro"),
        _mount("cgroup", "/sys/fs/cgroup", *safe, "relatime", "ro"),
    ]


def _mount(kind: str, where: str, *options: str) -> dict[str, Any]:
    return {"destination": where, "type": kind, "source": kind, "options": list(options)}
