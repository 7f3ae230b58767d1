"""The agent's own copy: complete, never half written, and nothing that is wrong with it ends the agent."""

from __future__ import annotations

import asyncio
import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from adapters import atomic_file
from agent.state import Known, KnownPod
from agent.sync import store as store_module
from agent.sync.store import NAME, Store, _encoded
from qos.bandwidth import Band, Limits
from qos.cluster.objects import NodePredicate, Requirement, Selector, Toleration
from qos.cluster.policy import Policy, Profile, ScaleTarget, Surge
from qos.cluster.precedence import PriorityClass
from qos.pods.containers import Container, NodePod
from qos.promises import CpuQuota, CpuSet, IoLimit
from tests import waiting

POD = NodePod(
    "u1",
    "shop",
    "web-0",
    (Container("init", init=True), Container("web", 500, 1000, 2**30, 2**31, sidecar=True)),
    "Burstable",
    {"app": "web"},
    {"koordinator.sh/memoryQOS": '{"a": "ü\\u0000"}'},
    priority=-5,
    cpu_overhead=10,
)
POLICY = Policy(
    "shop/web", "shop", "web", "p1", 3, "", 1.5, Selector((Requirement("app", "In", ("web", "x")),)),
    {"cpu": 500}, scale_target=ScaleTarget("apps/v1", "Deployment", "web"), surge=Surge(25, percent=True),
    where=NodePredicate((("a", "b"),), (), (Toleration("k"),)),
)  # fmt: skip
PROFILE = Profile(
    "fast", "LSR", "", {"cpu_quota": CpuQuota.NONE, "cpus": CpuSet.SHARED, "io_limit": IoLimit(1)}
)
KNOWN = Known(
    {
        "u1": KnownPod(POD, {"web": "c0ffee"}, "shop/web"),
        "u2": KnownPod(replace(POD, uid="u2"), finished=True),
    },
    {"shop/web": POLICY},
    {"fast": PROFILE},
    {"high": PriorityClass(1000)},
)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "agent"
        self.slept: list[float] = []

    def store(self, **options: Any) -> Store:
        return Store(
            self.folder, registry=CollectorRegistry(), sleep=self.sleep, clock=lambda: 0.0, **options
        )

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    @property
    def file(self) -> Path:
        return self.folder / NAME


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def rewrite(file: Path, **header: Any) -> None:
    """Change the header of a file that is otherwise right."""
    first, _, body = file.read_bytes().partition(b"\n")
    file.write_bytes(json.dumps(json.loads(first) | header).encode() + b"\n" + body)


async def test_everything_comes_back(rig: Rig) -> None:
    assert rig.store().load() is None
    assert await rig.store().save(KNOWN)
    assert rig.store().load() == KNOWN
    assert rig.file.stat().st_mode & 0o777 == 0o600
    assert rig.folder.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in rig.folder.iterdir()] == [NAME]


async def test_a_profiles_band_and_limits_come_back(rig: Rig) -> None:
    network = replace(PROFILE, band=Band.L1, limits=Limits(egress=1000))
    known = Known(KNOWN.pods, KNOWN.policies, {"fast": network}, KNOWN.priority_classes)
    assert await rig.store().save(known)
    assert rig.store().load() == known


async def test_what_the_runtime_alone_told_does_not_come_back(rig: Rig) -> None:
    provisional = KnownPod(replace(POD, uid="u3"), provisional=True)
    await rig.store().save(
        Known({**KNOWN.pods, "u3": provisional}, KNOWN.policies, KNOWN.profiles, KNOWN.priority_classes)
    )
    assert rig.store().load() == KNOWN


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data.replace(b"web-0", b"web-1"),
        lambda data: data + b"\n",
        lambda data: b"\x00" * len(data),
        lambda data: b"{}\n{}",
        lambda data: b'{"kind":"other","version":1,"size":0,"sha256":""}\n',
    ],
)
async def test_a_damaged_file_is_put_aside(rig: Rig, damage: Any, caplog: Any) -> None:
    await rig.store().save(KNOWN)
    bad = damage(rig.file.read_bytes())
    rig.file.write_bytes(bad)
    store = rig.store()
    assert store.load() is None
    assert "store unusable" in caplog.text
    assert (rig.folder / f"{NAME}.bad").read_bytes() == bad
    assert await store.save(KNOWN)
    assert rig.store().load() == KNOWN


async def test_a_file_that_others_could_have_written_is_not_believed(rig: Rig, caplog: Any) -> None:
    await rig.store().save(KNOWN)
    rig.file.chmod(0o666)
    assert rig.store().load() is None
    assert "only uid" in caplog.text
    rig.file.symlink_to("/etc/passwd")
    assert rig.store().load() is None


async def test_a_newer_file_is_kept_until_a_source_has_spoken(rig: Rig, caplog: Any) -> None:
    await rig.store().save(KNOWN)
    rewrite(rig.file, version=5, added="later")
    newer = rig.file.read_bytes()
    store = rig.store()
    assert store.load() is None
    assert "version 5, and this agent knows 4" in caplog.text
    assert await store.save(Known())
    assert rig.file.read_bytes() == newer
    store.spoken()
    assert await store.save(Known())
    assert rig.store().load() == Known()


async def test_an_older_file_is_upgraded(rig: Rig) -> None:
    """Version 0 never was; it stands for the first one that will be old."""
    await rig.store().save(KNOWN)
    first, _, body = rig.file.read_bytes().partition(b"\n")
    old = json.loads(body)
    old["rules"] = {name: old.pop(name) for name in ("policies", "profiles")}
    text = json.dumps(old).encode()
    header = json.loads(first) | {"version": 0, "size": len(text), "sha256": store_module._checksum(text)}
    rig.file.write_bytes(json.dumps(header).encode() + b"\n" + text)

    def upgrade(body: dict[str, Any]) -> dict[str, Any]:
        return body | body["rules"]

    assert rig.store(upgrades={0: upgrade, 1: dict, 2: dict, 3: dict}).load() == KNOWN
    assert rig.store().load() is None


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_the_recorded_file_of_each_version_can_be_read(version: int) -> None:
    """A field may be added with a default; for anything else there must be a new version and an upgrade."""
    recorded = Path(__file__).parents[2] / "data" / "agent" / f"known-{version}.json"
    assert Store(recorded.parent, registry=CollectorRegistry())._read(recorded.read_bytes()) == KNOWN


async def test_a_full_disk_leaves_the_old_file(rig: Rig, monkeypatch: Any, caplog: Any) -> None:
    store = rig.store()
    await store.save(Known())
    before = rig.file.read_bytes()

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(atomic_file.os, "write", full)
        assert not await store.save(KNOWN)
        assert not await store.save(KNOWN)
    assert rig.file.read_bytes() == before
    assert [entry.name for entry in rig.folder.iterdir()] == [NAME]
    assert caplog.text.count("store unsaved") == 1
    assert store._saves.labels("failed")._value.get() == 2
    assert await store.save(KNOWN)
    assert rig.store().load() == KNOWN


async def test_saved_at_most_once_a_second_and_only_changes(rig: Rig, eventually: Any) -> None:
    store, known = rig.store(), Known()
    written = store._saves.labels("written")._value
    async with waiting.running(store.run(known)):
        for number in range(3):
            known.priority_classes["high"] = PriorityClass(number)
            store.changed()
            await eventually(lambda number=number: written.get() == number + 1)
        store.changed()
        await eventually(lambda: len(rig.slept) == 4)
        assert rig.slept == [1.0] * 4
        assert written.get() == 3


async def test_a_disk_that_refuses_is_asked_again_after_a_while(rig: Rig, eventually: Any) -> None:
    rig.folder.parent.joinpath("agent").write_text("in the way")
    store = rig.store()
    async with waiting.running(store.run(KNOWN)):
        store.changed()
        await eventually(lambda: len(rig.slept) >= 2)
        assert set(rig.slept) == {10.0}
        rig.folder.unlink()
        await eventually(rig.file.exists)


def test_the_same_is_the_same_file() -> None:
    assert _encoded(KNOWN) == _encoded(KNOWN)
