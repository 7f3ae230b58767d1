"""The control plane's programs: in J10CE_BIN, on PATH or in the user's cache (lab/go_build.py)."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import go_build
from lab.only_one import Report

GO_MODULE = Path(__file__).parent / "gomodule"
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "kwokctl")
_KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_FLAGS = {
    "--etcd-binary": "etcd",
    "--kube-apiserver-binary": "kube-apiserver",
    "--kube-controller-manager-binary": "kube-controller-manager",
    "--kube-scheduler-binary": "kube-scheduler",
    "--kwok-controller-binary": "kwok",
}
_KUBERNETES_LINE = re.compile(r"k8s\.io/kubernetes v(\d+)\.(\d+)\S*")
_VERSION = re.compile(r"v?(\d+\.\d+\.\d+\S*)")


class BinariesError(Exception):
    """The programs are not there and could not be made; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where the control plane's programs are. Where `files` lacks one, kwokctl downloads the official one."""

    files: Mapping[str, Path]
    source: str
    notes: tuple[str, ...] = ()
    downloads: Path | None = None
    """Where kwokctl keeps what it downloads; None: it has to download nothing."""

    @property
    def kwokctl(self) -> Path:
        """The one program that is always there."""
        return self.files["kwokctl"]

    @property
    def kubectl(self) -> Path | None:
        """None: use `kwokctl kubectl`."""
        return self.files.get("kubectl")

    def flags(self) -> dict[str, Path]:
        """kwokctl's flags that name the programs we have."""
        return {flag: self.files[name] for flag, name in _FLAGS.items() if name in self.files}

    def versions(self) -> dict[str, str]:
        """Version of each program, by asking it."""
        return {name: version_of(name, path) for name, path in sorted(self.files.items())}


def version_of(name: str, path: Path) -> str:
    """Version a program reports, without the v, or "unknown"; BinariesError when it cannot run."""
    arguments = ["version", "--client"] if name == "kubectl" else ["--version"]
    try:
        done = subprocess.run(
            [str(path), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BinariesError(f"{path} does not run: {error}") from error
    found = _VERSION.search(done.stdout)
    return found.group(1) if found else "unknown"


def in_folder(folder: Path) -> dict[str, Path]:
    """The programs that are executable files in a folder."""
    return {n: folder / n for n in NAMES if (folder / n).is_file() and os.access(folder / n, os.X_OK)}


def on_path(path: str) -> dict[str, Path]:
    """The programs that are on a PATH."""
    return {n: Path(found) for n in NAMES if (found := shutil.which(n, path=path))}


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where the built programs are kept: a folder of the user's cache named after the modules' checksums."""
    cache = environ.get("XDG_CACHE_HOME")
    root = Path(cache) if cache else Path(environ.get("HOME", "~")).expanduser() / ".cache"
    return root / "j10ce" / "lab" / modules_digest()


def modules_digest() -> str:
    """Names the set of programs: go.mod (versions, language) and go.sum (checksums), shortened SHA-256."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((GO_MODULE / name).read_bytes())
    return digest.hexdigest()[:16]


def find(environ: Mapping[str, str], cache: Path) -> Binaries | None:
    """The programs, all from one place: J10CE_BIN, else PATH, else the cache folder, else None.

    Raises BinariesError when J10CE_BIN is set and lacks one of them.
    """
    if chosen := environ.get("J10CE_BIN"):
        files = in_folder(Path(chosen))
        if missing := [name for name in NAMES if name not in files]:
            raise BinariesError(
                f"J10CE_BIN={chosen} has no {', '.join(missing)}: add what is missing, or unset it"
            )
        return Binaries(files, f"J10CE_BIN={chosen}", _mixed(files))
    files = on_path(environ.get("PATH", ""))
    if len(files) == len(NAMES):
        return Binaries(files, "PATH", _mixed(files))
    files = in_folder(cache)
    return Binaries(files, str(cache)) if len(files) == len(NAMES) else None


def _mixed(files: Mapping[str, Path]) -> tuple[str, ...]:
    """A clear statement when the Kubernetes programs are not of one version."""
    versions = {name: version_of(name, files[name]) for name in _KUBERNETES}
    if len(set(versions.values())) <= 1:
        return ()
    return (f"mixed versions: {', '.join(f'{name} {version}' for name, version in versions.items())}",)


def provide(environ: Mapping[str, str], *, download: bool = False, report: Report | None = None) -> Binaries:
    """Find the programs, else build them once (about 5 minutes on two cores). Raises BinariesError.

    download: build nothing but kwokctl, which then fetches the official programs when a cluster starts.
    """
    cache = cache_folder(environ)
    found = find(environ, cache)
    if found is not None:
        return found
    tell = report or silent
    try:
        if download:
            kwokctl = _kwokctl(environ, cache, tell)
            downloads = cache.with_name("official")
            return Binaries({"kwokctl": kwokctl}, "kwokctl downloads the rest", downloads=downloads)
        go_build.build(order(("tool",)), cache, environ, tell)
    except go_build.BuildError as error:
        raise BinariesError(str(error)) from error
    etcd = cache / "etcd"
    if not etcd.exists() and (cache / "server").exists():
        (cache / "server").rename(etcd)  # Go names it after the last element of etcd's module path
    files = in_folder(cache)
    if len(files) < len(NAMES):
        raise BinariesError(f"{cache} is not whole: remove that folder, and they are built again")
    return Binaries(files, str(cache))


def order(packages: tuple[str, ...]) -> go_build.Order:
    """What to build of lab/gomodule, with the version that the Kubernetes programs report."""
    found = _KUBERNETES_LINE.search((GO_MODULE / "go.mod").read_text())
    if found is None:
        raise BinariesError(f"{GO_MODULE / 'go.mod'} does not name k8s.io/kubernetes' version")
    version = found.group(0).split()[1]
    values = {"gitVersion": version, "gitMajor": found.group(1), "gitMinor": found.group(2)}
    return go_build.Order(
        GO_MODULE, packages, {f"k8s.io/component-base/version.{key}": value for key, value in values.items()}
    )


def _kwokctl(environ: Mapping[str, str], cache: Path, report: Report) -> Path:
    """kwokctl alone: from PATH, else built into a folder of its own."""
    if found := on_path(environ.get("PATH", "")).get("kwokctl"):
        return found
    target = cache.with_name(f"{cache.name}-kwokctl")
    go_build.build(order(("sigs.k8s.io/kwok/cmd/kwokctl",)), target, environ, report)
    return target / "kwokctl"


def silent(_what: str, _done: int, _total: int) -> None:
    """Reports to nobody."""
