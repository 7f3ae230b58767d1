"""What the hook asks of its own process: whose it is, since when, whom it can tell."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hook import process, program
from tests.hook.own_time import OwnTime

if TYPE_CHECKING:
    from conftest import Containers, Node, Untouched

TICKS = os.sysconf("SC_CLK_TCK")


def stat(folder: Path, age: float, now: OwnTime) -> str:
    """A /proc in which this process began that many seconds ago."""
    ticks = int((now.clock_gettime(now.CLOCK_BOOTTIME) - age) * TICKS)
    (folder / "self").mkdir()
    (folder / "self" / "stat").write_text(f"42 (a ) name) S {' '.join(['0'] * 18)} {ticks} 0 0\n")
    (folder / "self" / "uid_map").write_text("0 0 4294967295\n")
    return str(folder)


@pytest.mark.parametrize(
    ("age", "budget", "left"), [(0.01, 0.2, 0.2), (0.5, 1.5, 1.2), (1.6, 0.2, 0.1), (3.0, 0.2, -1.3)]
)
def test_the_budget_ends_before_the_runtime_kills_it(
    tmp_path: Path, own_time: OwnTime, age: float, budget: float, left: float
) -> None:
    proc = stat(tmp_path, age, own_time)
    found = process.deadline(proc, budget) - own_time.now
    assert found == pytest.approx(left, abs=1.5 / TICKS)


def test_the_kernel_says_when_a_process_began() -> None:
    """With a budget that is never the end: 1.7 s after the start."""
    code = "import time; from hook import process; print(process.deadline('/proc', 9e9) - time.monotonic())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < process.KILLED_AFTER - process.RESERVE
    assert process.deadline("/proc", 9e9) < time.monotonic() + float(done.stdout)  # this one is older


@pytest.mark.parametrize("content", [None, b"", b"42 (x) S 1", b"42 (x) S " + b"x " * 30])
def test_the_budget_holds_where_the_start_is_not_known(
    tmp_path: Path, own_time: OwnTime, content: bytes | None
) -> None:
    (tmp_path / "self").mkdir()
    if content is not None:
        (tmp_path / "self" / "stat").write_bytes(content)
    assert process.deadline(str(tmp_path), 0.2) == own_time.now + 0.2


@pytest.fixture
def stdin() -> Iterator[int]:
    reader, writer = os.pipe()
    os.write(writer, b'{"id": "c1", "pid": 4194305, "annotations": {}}')
    os.close(writer)
    yield reader
    os.close(reader)


def test_a_start_that_took_all_the_time(
    tmp_path: Path, stdin: int, own_time: OwnTime, capfd: pytest.CaptureFixture[str]
) -> None:
    proc = stat(tmp_path, 2.5, own_time)
    (tmp_path / "run").mkdir()
    assert program.main(str(tmp_path / "run"), str(tmp_path / "none"), stdin, proc) == 0
    assert "within the budget" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("uid_map", "served"),
    [
        ("         0          0 4294967295\n", True),
        (None, True),
        ("         0       1000          1\n", False),
        ("         0     100000      65536\n", False),
        ("         0       1000          1\n         1     100000      65536\n", False),
        ("", False),
    ],
)
def test_whose_it_is(
    tmp_path: Path,
    stdin: int,
    own_time: OwnTime,
    capfd: pytest.CaptureFixture[str],
    uid_map: str | None,
    served: bool,
) -> None:
    proc = stat(tmp_path, 0, own_time)
    if uid_map is None:
        (tmp_path / "self" / "uid_map").unlink()
    else:
        (tmp_path / "self" / "uid_map").write_text(uid_map)
    assert process.is_roots(proc) is served
    assert program.main(str(tmp_path / "run"), str(tmp_path / "none"), stdin, proc) == 0
    assert bool(capfd.readouterr().err) is served
    assert (tmp_path / "run").exists() is served
    assert os.read(stdin, 1) == b""


@pytest.mark.runtime
def test_rootless_containers_start_without_a_word(
    node: Node, containers: Containers, untouched: Untouched
) -> None:
    node.config("fail closed\n")
    unshare = shutil.which("unshare")
    assert unshare is not None
    done = subprocess.run(
        [unshare, "--user", "--map-root-user", *node.argv()],
        input=containers.plain().state(annotations={"j10ce.io/floor": "none"}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if "unshare failed" in done.stderr:
        pytest.skip(f"no user namespace can be made here: {done.stderr}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert node.missed() == {}
    untouched.check()


@pytest.mark.runtime
def test_a_pipe_that_nobody_empties(node: Node) -> None:
    """It ends by itself, and leaves the runtime's end of the pipe as it was."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stderr, os.fdopen(writer, "wb") as full:
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        os.set_blocking(writer, True)
        done = subprocess.run(
            node.argv(), input=b"garbage", stdout=subprocess.PIPE, stderr=full, check=False, timeout=60
        )
        assert (done.returncode, os.get_blocking(writer)) == (0, True)
        os.set_blocking(reader, False)
        assert set(stderr.read()) == {ord("x")}


@pytest.mark.runtime
def test_a_log_file_is_added_to(node: Node, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    with log.open("ab") as stderr:
        subprocess.run(node.argv(), input=b"garbage", stderr=stderr, check=True, timeout=60)
    first, second = log.read_text().splitlines()
    assert (first, second.startswith("j10ce hook: the state on stdin")) == ("before", True)
