"""A disk that is really full: what was written before stays, and all goes on when there is room again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from adapters import atomic_file
from agent.state import Known, KnownPod
from agent.sync.hook_files import HookFiles
from agent.sync.store import Store
from kernel import cache
from qos.cluster.precedence import PriorityClass
from qos.pods.containers import NodePod

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path) -> Path:
    file = disk / "other"
    with file.open("wb", buffering=0) as stream, suppress(OSError):
        while True:
            stream.write(b"x" * 4096)
    return file


def names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


async def test_the_store(disk: Path) -> None:
    store, small = (
        Store(disk, registry=CollectorRegistry()),
        Known(priority_classes={"high": PriorityClass(1)}),
    )
    assert await store.save(small)
    other = fill(disk)
    large = Known({f"u{n}": KnownPod(NodePod(f"u{n}", "shop", "web", ())) for n in range(50)})
    assert not await store.save(large)
    assert Store(disk, registry=CollectorRegistry()).load() == small
    other.unlink()
    assert await store.save(large)
    assert Store(disk, registry=CollectorRegistry()).load() == large
    assert names(disk) == ["known.json"]


async def test_the_hooks_files(disk: Path) -> None:
    def planned(value: int) -> list[Any]:
        setting = SimpleNamespace(entry=(0, "set", "cpu.weight", str(value)))
        container = SimpleNamespace(name="web", plan=SimpleNamespace(settings=[setting]))
        return [
            SimpleNamespace(
                uid="u1", decided=SimpleNamespace(kept={}, opted_out=False), containers=[container]
            )
        ]

    def weight() -> str:
        return cache.read(str(disk / "run" / "pods"), "u1", "web", 0.0)[1][0][3]

    files = HookFiles(disk / "run", lambda: True, registry=CollectorRegistry())
    await files.keep(planned(100))
    other = fill(disk)
    await files.keep(planned(200))
    assert weight() == "100"
    other.unlink()
    await files.keep(planned(200))
    assert weight() == "200"
    assert names(disk / "run" / "pods") == ["u1"]


def test_nothing_half_written_is_left(disk: Path) -> None:
    other = fill(disk)
    with pytest.raises(OSError, match="No space"):
        atomic_file.write(disk / "file", b"x" * 100)
    assert names(disk) == [other.name]
