"""Starts a container of a trial by one runtime, and leaves nothing of it behind."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hook.installation import trial
from hook.installation.runtimes import Runtime
from kernel.hierarchies import every_mount

Finished = subprocess.CompletedProcess[str]

_SECONDS = 60
_CGROUP_SECONDS = 10.0
_PAUSE_SECONDS = 0.02
_LIMIT = 1024
_SYSTEMD = Path("/run/systemd/system")
_FILES = ("/usr/share/containers/containers.conf", "/etc/containers/containers.conf")
_MORE_FILES = Path("/etc/containers/containers.conf.d")
_WITH_OVERRIDE = (4, 6)
"""podman since then reads CONTAINERS_CONF_OVERRIDE besides all others (its pull request 17895)."""


@dataclass(frozen=True, slots=True)
class Container:
    """What every runtime is told to start. hooks_dir: for podman; hooks: the same for a config.json."""

    name: str
    scratch: Path
    mounted: tuple[str, ...]
    args: tuple[str, ...]
    annotations: Mapping[str, str]
    hooks_dir: Path
    hooks: Mapping[str, Sequence[Mapping[str, Any]]]

    @property
    def root(self) -> Path:
        """Its root file system."""
        return self.scratch / "rootfs"


def oci(runtime: Runtime, wanted: Container) -> Finished:
    """runc and crun: a bundle whose config.json has the hooks."""
    bundle = wanted.scratch / wanted.name
    bundle.mkdir(exist_ok=True)
    document = trial.config(wanted.root, wanted.mounted, wanted.args, wanted.hooks, wanted.annotations)
    (bundle / "config.json").write_text(json.dumps(document))
    argv = [str(runtime.path), "--root", str(wanted.scratch / "state")]
    try:
        return _run([*argv, "run", "--bundle", str(bundle), wanted.name])
    finally:
        _run([*argv, "delete", "--force", wanted.name])


def podman(program: Runtime, runtime: Runtime | None, wanted: Container) -> Finished:
    """podman as a user would, with its own choice of runtime or another, on a storage of its own."""
    parent = f"/{wanted.name}"
    environment = _own_locks(program, wanted.scratch)
    argv = [str(program.path), "--root", str(wanted.scratch / "storage"), "--storage-driver", "vfs"]
    argv += ["--runroot", str(wanted.scratch / "runroot"), "--tmpdir", str(wanted.scratch / "tmp")]
    argv += ["--events-backend", "none", "--hooks-dir", str(wanted.hooks_dir)]
    argv += ["--runtime", str(runtime.path)] if runtime else []
    options = ["--rm", "--network", "none", "--log-driver", "none", "--read-only", *_limits()]
    if not _SYSTEMD.is_dir():
        argv += ["--cgroup-manager", "cgroupfs"]
        options += ["--cgroup-parent", parent]
    options += [f"--annotation={key}={value}" for key, value in wanted.annotations.items()]
    options += [f"--volume={path}:{path}:ro" for path in wanted.mounted]
    try:
        return _run(
            [*argv, "run", *options, "--name", wanted.name, "--rootfs", str(wanted.root), *wanted.args],
            environment,
        )
    finally:
        _run([*argv, "rm", "--force", "--ignore", wanted.name], environment)
        # Also those without a controller (name=systemd): runc is there, too.
        for mountpoint in set(every_mount(Path("/proc/self/mountinfo").read_text()).values()):
            _remove_cgroups(Path(mountpoint, wanted.name))


def _own_locks(program: Runtime, scratch: Path) -> dict[str, str]:
    """Environment of a podman with locks in its own tmpdir: else all share /dev/shm/libpod_lock.

    Its other settings stay. An older one knows only CONTAINERS_CONF, which hides every other file, so those
    are merged into ours.
    """
    with_override = program.version >= _WITH_OVERRIDE
    settings = {} if with_override else _settings()
    settings["engine"] = {**settings.get("engine", {}), "lock_type": "file"}
    file = scratch / "containers.conf"
    file.write_text("".join(f"{name} = {_toml(value)}\n" for name, value in settings.items()))
    return {"CONTAINERS_CONF_OVERRIDE" if with_override else "CONTAINERS_CONF": str(file)}


def _settings() -> dict[str, Any]:
    """What containers.conf(5) says on this machine, table by table, later files over earlier ones."""
    chosen = os.environ.get("CONTAINERS_CONF")
    files = [Path(chosen)] if chosen else [*map(Path, _FILES), *sorted(_MORE_FILES.glob("*.conf"))]
    merged: dict[str, Any] = {}
    for file in files:
        if file.is_file():
            for name, value in tomllib.loads(file.read_text()).items():
                merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return merged


def _toml(value: object) -> str:
    """A value of TOML: JSON's, but for tables."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {_toml(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


def _limits() -> Iterator[str]:
    """Low limits: podman raises them by default, which takes CAP_SYS_RESOURCE."""
    for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        hard = resource.getrlimit(number)[1]
        low = _LIMIT if hard == resource.RLIM_INFINITY else min(hard, _LIMIT)
        yield f"--ulimit={name}={low}:{low}"


def _remove_cgroups(group: Path) -> None:
    """The parent that podman made and, beside the container, one for conmon, which may just be ending."""
    deadline = time.monotonic() + _CGROUP_SECONDS
    while group.is_dir() and time.monotonic() < deadline:
        with suppress(OSError):
            for below in (*(path for path in group.rglob("*") if path.is_dir()), group):
                below.rmdir()
        if group.is_dir():
            time.sleep(_PAUSE_SECONDS)


def _run(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Finished:
    try:
        return subprocess.run(
            argv,
            env={**os.environ, "LC_ALL": "C", **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finished(argv, 1, "", f"it did not end within {_SECONDS} s")
