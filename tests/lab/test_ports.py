"""Ports that are one cluster's only, while its folder is there. Processes and sockets are real."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lab import ports

POOL = range(19_000, 19_040)
"""Each test has ports of its own: looking for one takes it for a moment, and tests run side by side."""


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    return tmp_path / "registry"


def cluster(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


def test_ports_are_one_clusters_until_its_folder_is_gone(tmp_path: Path, registry: Path) -> None:
    first, second = cluster(tmp_path, "first"), cluster(tmp_path, "second")
    pool = range(POOL.stop + 10, POOL.stop + 14)
    one = ports.reserve(first, 3, registry=registry, pool=pool)
    two = ports.reserve(second, registry=registry, pool=pool)
    assert sorted(one + two) == list(pool)
    with pytest.raises(OSError, match="no 1 TCP ports of the loopback are free"):
        ports.reserve(second, registry=registry, pool=pool)
    shutil.rmtree(first)
    cluster(tmp_path, "first")  # another cluster of that name has ports of its own
    assert sorted(ports.reserve(second, 3, registry=registry, pool=pool)) == sorted(one)


def test_processes_at_once_get_different_ports(tmp_path: Path, registry: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from lab import ports\n"
        "folder = Path(sys.argv[1]); folder.mkdir(); sys.stdin.read()\n"
        f"print(*ports.reserve(folder, 5, registry=Path(sys.argv[2]), pool={POOL!r}))"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, tmp_path / str(number), registry],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
        child.stdin = None
    found = [int(port) for child in children for port in child.communicate(timeout=60)[0].split()]
    assert sorted(found) == list(POOL)


def test_a_port_that_a_socket_has_is_left_alone(tmp_path: Path, registry: Path) -> None:
    pool = range(POOL.stop, POOL.stop + 3)
    with socket.socket() as bound, socket.create_server(("0.0.0.0", pool[1])):
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((ports.LOOPBACK, pool[0]))
        assert ports.reserve(cluster(tmp_path, "one"), registry=registry, pool=pool) == [pool[2]]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (32_768, 60_999, range(20_000, 32_000)),  # Linux
        (16_000, 65_535, range(10_300, 16_000)),
        (10_000, 50_000, range(50_001, 65_536)),
        (1024, 65_535, range(20_000, 32_000)),  # no room: as on Linux
    ],
)
def test_ports_are_outside_those_of_outgoing_connections(low: int, high: int, expected: range) -> None:
    assert ports.outside(low, high) == expected


def test_the_machines_ports_are_reserved_for_all_users(tmp_path: Path) -> None:
    (port,) = ports.reserve(tmp_path)
    link = ports.REGISTRY / str(port)
    assert link.readlink() == tmp_path / "ports" / str(port)
    assert ports.REGISTRY.stat().st_mode & 0o7777 == 0o1777
