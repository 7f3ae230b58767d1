"""The control plane's programs: in J10CE_BIN, on PATH or in the user's cache (lab/go_build.py).

J10CE_KUBERNETES chooses their Kubernetes minor (lab/minors.py).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import go_build, minors
from lab.only_one import Report

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "kwokctl")
_KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_OF_EACH_MINOR = (*_KUBERNETES, "kubectl")
_FLAGS = {
    "--etcd-binary": "etcd",
    "--kube-apiserver-binary": "kube-apiserver",
    "--kube-controller-manager-binary": "kube-controller-manager",
    "--kube-scheduler-binary": "kube-scheduler",
    "--kwok-controller-binary": "kwok",
}
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
    fetched: str = ""
    """The Kubernetes that kwokctl downloads, such as v1.35.4; "": its own choice."""

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


def cache_folder(environ: Mapping[str, str], module: Path = minors.NEWEST) -> Path:
    """Where the programs of a Go module are kept: a folder of the user's cache named after its checksums."""
    cache = environ.get("XDG_CACHE_HOME")
    root = Path(cache) if cache else Path(environ.get("HOME", "~")).expanduser() / ".cache"
    return root / "j10ce" / "lab" / module_digest(module)


def module_digest(module: Path) -> str:
    """Names a set of programs: go.mod (versions, language) and go.sum (checksums), shortened SHA-256."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((module / name).read_bytes())
    return digest.hexdigest()[:16]


def asked(environ: Mapping[str, str]) -> str:
    """The Kubernetes minor that J10CE_KUBERNETES names; "" where it does not. Raises BinariesError."""
    name = environ.get(minors.VARIABLE, "")
    if name and name not in minors.known():
        known = ", ".join(minors.known())
        raise BinariesError(f"{minors.VARIABLE}={name} is not known here: name one of {known}, or unset it")
    return name


def find(environ: Mapping[str, str]) -> Binaries | None:
    """The programs, all from one place: J10CE_BIN, else PATH, else the user's cache, else None.

    Raises BinariesError when J10CE_BIN is set and lacks one of them, or has another minor than is asked for.
    """
    minor = asked(environ)
    if chosen := environ.get("J10CE_BIN"):
        files = in_folder(Path(chosen))
        if missing := [name for name in NAMES if name not in files]:
            raise BinariesError(
                f"J10CE_BIN={chosen} has no {', '.join(missing)}: add what is missing, or unset it"
            )
        if minor and not _is_of(files, minor):
            raise BinariesError(
                f"J10CE_BIN={chosen} has no kube-apiserver of {minors.VARIABLE}={minor}: unset one of the two"
            )
        return Binaries(files, f"J10CE_BIN={chosen}", _mixed(files))
    files = on_path(environ.get("PATH", ""))
    if len(files) == len(NAMES) and (not minor or _is_of(files, minor)):
        return Binaries(files, "PATH", _mixed(files))
    return _cached(environ, minor)


def _is_of(files: Mapping[str, Path], minor: str) -> bool:
    return minors.minor(version_of("kube-apiserver", files["kube-apiserver"])) == minor


def _cached(environ: Mapping[str, str], minor: str) -> Binaries | None:
    """What was built: all that the newest minor's module has, and in place of it what an older one's has."""
    cache, module = cache_folder(environ), _module(minor)
    files = in_folder(cache)
    if module == minors.NEWEST:
        return Binaries(files, str(cache)) if len(files) == len(NAMES) else None
    own = cache_folder(environ, module)
    older = in_folder(own)
    if len(files) < len(NAMES) or not older.keys() >= set(_OF_EACH_MINOR):
        return None
    return Binaries(files | older, f"{own} and {cache}")


def _module(minor: str) -> Path:
    return minors.known()[minor] if minor else minors.NEWEST


def _mixed(files: Mapping[str, Path]) -> tuple[str, ...]:
    """A clear statement when the Kubernetes programs are not of one version."""
    versions = {name: version_of(name, files[name]) for name in _KUBERNETES}
    if len(set(versions.values())) <= 1:
        return ()
    return (f"mixed versions: {', '.join(f'{name} {version}' for name, version in versions.items())}",)


def provide(environ: Mapping[str, str], *, download: bool = False, report: Report | None = None) -> Binaries:
    """Find the programs, else build them once (about 5 minutes on two cores, as much again for an older
    minor). Raises BinariesError.

    download: build nothing but kwokctl, which then fetches the official programs when a cluster starts.
    """
    found = find(environ)
    if found is not None:
        return found
    module = _module(asked(environ))
    tell = report or silent
    try:
        if download:
            return _downloading(environ, module, tell)
        for each in dict.fromkeys((minors.NEWEST, module)):
            go_build.build(order(("tool",), each), cache_folder(environ, each), environ, tell)
    except go_build.BuildError as error:
        raise BinariesError(str(error)) from error
    cache = cache_folder(environ)
    etcd = cache / "etcd"
    if not etcd.exists() and (cache / "server").exists():
        (cache / "server").rename(etcd)  # Go names it after the last element of etcd's module path
    made = find(environ)
    if made is None:
        whole = len(in_folder(cache)) == len(NAMES)
        broken = cache_folder(environ, module) if whole else cache
        raise BinariesError(f"{broken} is not whole: remove that folder, and they are built again")
    return made


def order(packages: tuple[str, ...], module: Path = minors.NEWEST) -> go_build.Order:
    """What to build of a Go module, with the version that the Kubernetes programs report."""
    version = minors.version_of(module)
    major, minor = minors.minor(version).split(".")
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return go_build.Order(
        module, packages, {f"k8s.io/component-base/version.{key}": value for key, value in values.items()}
    )


def _downloading(environ: Mapping[str, str], module: Path, report: Report) -> Binaries:
    kwokctl = _kwokctl(environ, cache_folder(environ), report)
    version = minors.version_of(module) if asked(environ) else ""
    return Binaries(
        {"kwokctl": kwokctl},
        "kwokctl downloads the rest",
        downloads=cache_folder(environ).with_name("official"),
        fetched=version,
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
