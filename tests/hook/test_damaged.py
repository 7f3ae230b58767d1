"""The hook's installation is damaged, in every file that it loads: containers start all the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Node

pytestmark = pytest.mark.runtime

STARTS = "it starts all the same"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def garble(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:16] + b"\xff" * 300)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def bytecode(code: Path, name: str) -> list[Path]:
    """As compiled by the installation: another Python that ran this code has left its own beside it."""
    package, _, module = name.rpartition("/")
    compiled = json.loads((code / "bytecode.json").read_text())
    return [code / path for path in compiled if path.startswith(f"{package}/__pycache__/{module}.")]


@pytest.fixture
def damaged(node: Node, tmp_path: Path) -> Node:
    """A copy of the installed code without its bundle, to be damaged."""
    node.code = shutil.copytree(node.code, tmp_path / "copy")
    for bundle in node.code.glob("*.bundle"):
        bundle.unlink()
    return node


@pytest.mark.parametrize("spoil", [truncate, garble])
@pytest.mark.parametrize("name", ["hook/boot", "hook/program", "hook/__init__", "kernel/apply"])
def test_bytecode(damaged: Node, name: str, spoil: Callable[[Path], None]) -> None:
    (found,) = bytecode(damaged.code, name)
    spoil(found)
    done = damaged.run("{}")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert STARTS in done.stderr


@pytest.mark.parametrize("spoil", [truncate, garble, empty])
def test_bundle(node: Node, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """The modules are still there, each by itself."""
    node.code = shutil.copytree(node.code, tmp_path / "copy")
    spoil(next(node.code.glob("*.bundle")))
    done = node.run("garbage")
    assert (done.returncode, STARTS in done.stderr) == (0, True)
    assert "the state on stdin is not JSON" in done.stderr


def run(node: Node, stderr: IO[bytes] | None, state: bytes) -> int:
    def close() -> None:
        os.close(2)

    return subprocess.run(
        node.argv(),
        input=state,
        stderr=stderr,
        preexec_fn=None if stderr else close,
        timeout=60,
        check=False,
    ).returncode


@pytest.mark.parametrize("damage", ["tree", "module"])
@pytest.mark.parametrize("stderr", ["closed", "broken", "full"])
def test_nobody_can_be_told(damaged: Node, stderr: str, damage: str) -> None:
    if damage == "tree":
        shutil.rmtree(damaged.code)
    else:
        (damaged.code / "hook" / "program.py").unlink()
        empty(bytecode(damaged.code, "hook/program")[0])
    if stderr == "closed":
        assert run(damaged, None, b"{}") == 0
        return
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as pipe:
        if stderr == "broken":
            os.close(reader)
        else:
            os.set_blocking(writer, False)
            while True:
                try:
                    os.write(writer, b"x" * 4096)
                except BlockingIOError:
                    break
            os.set_blocking(writer, True)
        assert run(damaged, pipe, b"{}") == 0
    if stderr == "full":
        os.close(reader)


def test_the_state_is_read_to_its_end(damaged: Node) -> None:
    """A pipe holds 64 KiB: crun, which writes the rest, would die of SIGPIPE."""
    shutil.rmtree(damaged.code)
    argv = [word.replace("time.monotonic() + 1", "time.monotonic() + 60") for word in damaged.argv()]
    assert argv != damaged.argv()
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b" " * 1_000_000)
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_state_without_end(damaged: Node) -> None:
    """The runtime would kill the hook after 2 s, and fail the container."""
    shutil.rmtree(damaged.code)
    with subprocess.Popen(damaged.argv(), stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.wait(60) == 0
