"""A node's programs, built once into the user's cache: containerd with its tools; kubelet with CNI plugins.

runc is Debian's: it is C as well as Go, and a bare machine has no C compiler.

Two modules, so that neither is built anew when the other changes. kubelet's has the control plane's versions
of all it shares with it (lab/gomodule): what Go has compiled for that is not compiled again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import binaries, go_build
from lab.only_one import Report

INTRODUCTION = "Building containerd, crictl and kubelet from Go modules: about 3 minutes on 2 cores, once. "
_KUBERNETES = re.compile(r"k8s\.io/kubernetes v((\d+)\.(\d+)\S*)")


class NodeProgramsError(Exception):
    """The programs are not there and could not be made; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Programs:
    """What one Go module builds. `label` begins the name of its folder in the cache."""

    label: str
    module: Path
    names: tuple[str, ...]
    versioned: Mapping[str, str]
    """Module -> the variable that holds the version its programs report."""
    toolchain: str = ""
    """As go_build.Order has it."""


RUNTIME = Programs(
    "node",
    Path(__file__).parent / "nodemodule",
    ("containerd", "containerd-shim-runc-v2", "crictl", "ctr", "hook-injector"),
    {
        "github.com/containerd/containerd/v2": "github.com/containerd/containerd/v2/version.Version",
        "sigs.k8s.io/cri-tools": "sigs.k8s.io/cri-tools/pkg/version.Version",
    },
)
KUBELET = Programs(
    "kubelet",
    Path(__file__).parent / "kubeletmodule",
    ("kubelet", "bridge", "host-local", "loopback", "ptp"),
    {},
)


def provide(environ: Mapping[str, str], report: Report, programs: Programs = RUNTIME) -> Path:
    """Folder of the programs: J10CE_NODE_BIN, else the cache, where they are built when they are missing."""
    if chosen := environ.get("J10CE_NODE_BIN"):
        if missing := _missing(Path(chosen), programs):
            raise NodeProgramsError(
                f"J10CE_NODE_BIN={chosen} has no {', '.join(missing)}: add what is missing, or unset it"
            )
        return Path(chosen)
    folder = cache_folder(environ, programs)
    if not _missing(folder, programs):
        return folder
    try:
        go_build.build(order(programs), folder, environ, report)
    except go_build.BuildError as error:
        raise NodeProgramsError(str(error)) from error
    if _missing(folder, programs):
        raise NodeProgramsError(f"{folder} is not whole: remove that folder, and they are built again")
    return folder


def find(environ: Mapping[str, str], programs: Programs = RUNTIME) -> Path | None:
    """The same without building: None where provide() would build."""
    return (
        None
        if "J10CE_NODE_BIN" not in environ and _missing(cache_folder(environ, programs), programs)
        else provide(environ, binaries.silent, programs)
    )


def cache_folder(environ: Mapping[str, str], programs: Programs = RUNTIME) -> Path:
    """Where the built programs are kept: beside the control plane's, named after the sources' checksums."""
    return binaries.cache_folder(environ).with_name(f"{programs.label}-{_digest(programs.module)}")


def order(programs: Programs = RUNTIME) -> go_build.Order:
    """What to build of a module, with the versions that the programs report."""
    go_mod = (programs.module / "go.mod").read_text()
    values = {}
    for module, variable in programs.versioned.items():
        found = re.search(rf"^\s*{re.escape(module)} v(\S+)", go_mod, re.MULTILINE)
        if found is None:
            raise NodeProgramsError(f"{programs.module / 'go.mod'} does not name {module}'s version")
        values[variable] = found.group(1)
    if kubernetes := _KUBERNETES.search(go_mod):
        parts = zip(("gitVersion", "gitMajor", "gitMinor"), kubernetes.groups(), strict=True)
        values |= {f"k8s.io/component-base/version.{key}": value for key, value in parts}
        values["k8s.io/component-base/version.gitVersion"] = f"v{kubernetes.group(1)}"
    return go_build.Order(programs.module, ("tool",), values, programs.toolchain)


def versions(folder: Path) -> dict[str, str]:
    """Version of each program in a folder that reports one."""
    reporting = ("containerd", "crictl", "ctr", "kubelet")
    return {name: binaries.version_of(name, folder / name) for name in reporting if (folder / name).exists()}


def _missing(folder: Path, programs: Programs) -> list[str]:
    return [name for name in programs.names if not os.access(folder / name, os.X_OK)]


def _digest(module: Path) -> str:
    """Names the set of programs: versions, checksums and our own source, shortened SHA-256."""
    digest = hashlib.sha256()
    for file in go_build.sources(module):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
