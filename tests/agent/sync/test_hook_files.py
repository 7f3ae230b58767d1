"""The hook's files: written when they differ, removed when their pod is gone, kept while nothing is known."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from agent.sync.hook_files import HookFiles
from kernel import cache
from tests.cpu_time import Cost

SETTINGS: list[Any] = [(1, "raise", "cpu.weight", "200"), (0, "set", "cpu.weight", "100")]


@dataclass
class Pod:
    """A planned pod, as far as files go."""

    uid: str
    entries: dict[str, list[Any]] = field(default_factory=lambda: {"web": SETTINGS})
    cpu: int = 500

    @property
    def decided(self) -> Any:
        return SimpleNamespace(kept={"cpu": self.cpu} if self.cpu else {}, opted_out=False)

    @property
    def containers(self) -> Any:
        return [
            SimpleNamespace(
                name=name, plan=SimpleNamespace(settings=[SimpleNamespace(entry=entry) for entry in entries])
            )
            for name, entries in self.entries.items()
        ]


class Rig:
    def __init__(self, run: Path) -> None:
        self.run = run
        self.registry = CollectorRegistry()
        self.spoken = True
        self.files = self.another()

    def another(self) -> HookFiles:
        return HookFiles(self.run, lambda: self.spoken, registry=CollectorRegistry())

    def count(self, outcome: str) -> float:
        return self.files._writes.labels(outcome)._value.get()

    def names(self) -> list[str]:
        return sorted(entry.name for entry in (self.run / "pods").iterdir())

    def settings(self, uid: str, container: str = "web") -> list[Any]:
        return cache.read(str(self.run / "pods"), uid, container, time.monotonic())[1]

    def inode(self, uid: str) -> int:
        return (self.run / "pods" / uid).stat().st_ino


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "j10ce")


async def test_the_hook_can_read_what_is_written(rig: Rig) -> None:
    await rig.files.keep([Pod("u1")])
    assert rig.settings("u1") == SETTINGS
    data = (rig.run / "pods" / "u1").read_bytes()
    assert cache.promised(data, "u1") == 500
    assert cache.parse(data, "u1")[0] == 0
    assert (rig.run / "pods" / "u1").stat().st_mode & 0o777 == 0o600
    assert (rig.run / "pods").stat().st_mode & 0o777 == 0o700


async def test_only_what_differs_is_written(rig: Rig) -> None:
    await rig.files.keep([Pod("u1"), Pod("u2")])
    before = rig.inode("u1"), rig.inode("u2")
    await rig.files.keep([Pod("u1"), Pod("u2", cpu=700)])
    assert rig.inode("u1") == before[0]
    assert rig.inode("u2") != before[1]
    assert rig.count("written") == 3


async def test_what_an_agent_before_us_wrote_is_not_written_again(rig: Rig) -> None:
    await rig.files.keep([Pod("u1")])
    before = rig.inode("u1")
    again = rig.another()
    await again.keep([Pod("u1")])
    assert rig.inode("u1") == before
    await again.keep([Pod("u1", cpu=1)])
    assert rig.inode("u1") != before


async def test_a_file_that_somebody_removed_or_damaged_is_written_again(rig: Rig) -> None:
    await rig.files.keep([Pod("u1"), Pod("u2")])
    (rig.run / "pods" / "u1").unlink()
    await rig.files.keep([Pod("u1"), Pod("u2")])
    assert rig.names() == ["u1", "u2"]
    (rig.run / "pods" / "u1").write_text("x")
    await rig.another().keep([Pod("u1"), Pod("u2")])
    assert rig.settings("u1") == SETTINGS


async def test_a_pod_that_ended_has_no_file(rig: Rig) -> None:
    rig.spoken = False
    await rig.files.keep([Pod("u1"), Pod("u2")])
    await rig.files.keep([Pod("u2")])
    assert rig.names() == ["u2"]
    rig.files.remove("u2")
    assert rig.names() == []
    rig.files.remove("u2")
    assert rig.count("removed") == 2


async def test_files_from_before_are_removed_only_when_a_source_has_spoken(rig: Rig) -> None:
    await rig.files.keep([Pod("old"), Pod("new")])
    rig.spoken = False
    again = rig.another()
    await again.keep([Pod("new")])
    assert rig.names() == ["new", "old"]
    rig.spoken = True
    await again.keep([Pod("new")])
    assert rig.names() == ["new"]


async def test_what_a_killed_writer_left_is_swept(rig: Rig) -> None:
    await rig.files.keep([])
    await rig.files.keep([Pod("u1")])
    gone = rig.run / "pods" / ".u1.4194999.123"
    alive = rig.run / "pods" / f".u1.{os.getppid()}.123"
    gone.touch()
    alive.touch()
    rig.files.sweep({"u1"})
    assert rig.names() == [alive.name, "u1"]


async def test_a_pod_without_a_uid_has_no_file(rig: Rig) -> None:
    assert rig.files.put(Pod("shop/web"))  # type: ignore[arg-type]
    assert not (rig.run / "pods").exists()


async def test_an_error_keeps_the_old_file_and_is_tried_again(rig: Rig, caplog: Any) -> None:
    await rig.files.keep([Pod("u1")])
    bad = Pod("u1", {"web": [(0, "set", "cpu.weight", "1\n2")]})
    await rig.files.keep([bad])
    await rig.files.keep([bad])
    assert rig.settings("u1") == SETTINGS
    assert rig.count("failed") == 2
    assert [record.getMessage().split(" file=")[0] for record in caplog.records] == ["hook file unwritten"]
    await rig.files.keep([Pod("u1", cpu=600)])
    assert cache.promised((rig.run / "pods" / "u1").read_bytes(), "u1") == 600


async def test_a_folder_that_others_may_write_is_not_used(rig: Rig) -> None:
    (rig.run / "pods").mkdir(parents=True, mode=0o700)
    (rig.run / "pods").chmod(0o777)
    await rig.files.keep([Pod("u1")])
    assert rig.names() == []
    assert rig.count("failed") == 1


async def test_a_default(rig: Rig) -> None:
    assert rig.files.put_default("BestEffort", {cache.ANY: SETTINGS})
    assert cache.read(str(rig.run / "defaults"), "BestEffort", "any", 0.0)[1] == SETTINGS
    await rig.files.keep([])
    assert (rig.run / "defaults" / "BestEffort").exists()


async def test_250_pods_at_once_take_150_ms_of_cpu() -> None:
    """90 ms are typical where a unit of cost takes 3, on the kind of file system that /run is."""
    entries: list[Any] = [(1, "raise", "cpu.weight", str(200 + n)) for n in range(12)]
    pods = [Pod(f"0f6a4b7e-3a4b-4e43-9d2c-{n:012d}", {"a": entries, "b": entries}) for n in range(250)]
    first, again = Cost(), Cost()
    for _ in range(5):
        with tempfile.TemporaryDirectory(prefix="j10ce-", dir="/dev/shm") as folder:
            rig = Rig(Path(folder, "j10ce"))
            with first.tried():
                await rig.files.keep(pods)  # type: ignore[arg-type]
            with again.tried():
                await rig.files.keep(pods)  # type: ignore[arg-type]
    assert first.units < 3 * 50, "thrice what it may take"
    assert again.units < first.units / 3
