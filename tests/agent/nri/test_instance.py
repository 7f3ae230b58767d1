"""One holds the lock; the next waits until it ends, even by kill -9."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.nri.instance import only_instance

HOLDS = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "nri.lock"


@pytest.fixture
def first(lock: Path) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-c", HOLDS, str(lock)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


async def test_a_second_waits_for_the_first_to_die(lock: Path, first: subprocess.Popen[bytes]) -> None:
    said: list[str] = []

    def waiting() -> None:
        said.append("waits")
        first.kill()

    async with asyncio.timeout(20), only_instance(lock, waiting=waiting, pause=0.01):
        said.append("holds")
    assert said == ["waits", "holds"]
    assert first.wait() != 0


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    lock = tmp_path / "nri.lock"
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        async with only_instance(lock):
            pass
    assert not (tmp_path / "elsewhere").exists()


async def test_it_is_given_back(tmp_path: Path) -> None:
    for _ in range(2):
        async with only_instance(tmp_path / "nri.lock", waiting=lambda: pytest.fail("it is free")):
            pass
    assert (tmp_path / "nri.lock").stat().st_mode & 0o777 == 0o600
