"""Which pods are read, from a made-up cgroup v2 and a made-up v1; the real ones are in test_v1 and the VM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.monitor import layout
from agent.monitor.monitor import Monitor, Watched

MIB = 1 << 20
FLOOR = {"cpu": 500, "memory": 64 * MIB}
PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def v2_files(*, psi: bool = True) -> dict[str, str]:
    files = {
        "cpu.stat": "usage_usec 1000000\nuser_usec 0\nsystem_usec 0\nthrottled_usec 500000\n",
        "memory.current": f"{8 * MIB}\n",
        "memory.stat": "anon 3\nfile 4\nworkingset_refault_file 5\npgscan 6\n",
        "memory.events": "oom_kill 2\n",
        "io.stat": "8:0 rbytes=7 wbytes=8\n",
        "cgroup.threads": "",
    }
    if psi:
        files |= {f"{name}.pressure": PSI.format(250000) for name in ("cpu", "memory", "io")}
    return files


Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make what looks like the cgroup of a pod."""

    def make(path: str, files: dict[str, str]) -> Path:
        folder = tmp_path / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
        return folder

    return make


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    made = Monitor({"": str(tmp_path)})
    yield made
    made.close()


def watched(name: str, floor: dict[str, int] | None = None) -> Watched:
    return Watched("shop", name, "shop/policy", f"/kubepods/{name}", FLOOR if floor is None else floor)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_pod_of_v2(monitor: Monitor, make: Make) -> None:
    folder = make("kubepods/a", v2_files())
    monitor.watch({"a": watched("a")})
    seen = monitor.tick(100.0).pods["a"]
    assert (seen.cpu, seen.throttled, seen.memory) == (1.0, 0.5, 8 * MIB)
    assert (seen.cpu_stalled, seen.memory_stalled, seen.io_stalled) == (0.25, 0.25, 0.25)
    assert seen.settled
    assert seen.detail is not None
    assert (seen.detail.refaults, seen.detail.scanned, seen.detail.oom_kills) == (5, 6, 2)
    (folder / "cpu.stat").write_text("usage_usec 3000000\n")
    (folder / "memory.current").write_text(f"{9 * MIB}\n")
    again = monitor.tick(101.0).pods["a"]
    assert (again.cpu, again.memory, again.made) == (3.0, 9 * MIB, seen.made)


def test_what_throttles_its_containers_throttles_the_pod(monitor: Monitor, make: Make) -> None:
    """Their limits do not show in the pod's own counter; a container that ended is not forgotten."""
    make("kubepods/a", v2_files())
    app = make("kubepods/a/app", {"cpu.stat": "throttled_usec 400000\n"})
    make("kubepods/a/sidecar", {"cpu.stat": "throttled_usec 300000\n"})
    make("kubepods/a/bare", {})
    monitor.watch({"a": watched("a")})
    assert monitor.tick(100.0).pods["a"].throttled == pytest.approx(0.7)
    (app / "cpu.stat").unlink()
    app.rmdir()
    make("kubepods/a/app-2", {"cpu.stat": "throttled_usec 100000\n"})
    assert monitor.tick(110.0).pods["a"].throttled == pytest.approx(0.8)


def test_the_limit_is_read_where_it_throttled(monitor: Monitor, make: Make) -> None:
    folder = make("kubepods/a", v2_files() | {"cpu.max": "20000 100000\n"})
    monitor.watch({"a": watched("a")})
    before = open_files()
    assert monitor.tick(100.0).pods["a"].limit == 0.2
    assert monitor.tick(101.0).pods["a"].limit is None
    opened = open_files()
    (folder / "cpu.stat").write_text("usage_usec 1000000\nthrottled_usec 600000\n")
    (folder / "cpu.max").write_text("max 100000\n")
    assert monitor.tick(102.0).pods["a"].limit is None
    assert before < open_files() == opened


def test_details_are_read_each_ten_seconds(monitor: Monitor, make: Make) -> None:
    folder = make("kubepods/a", v2_files())
    monitor.watch({"a": watched("a")})
    monitor.tick(100.0)
    times = set()
    for second in range(40):
        (folder / "io.stat").write_text(f"8:0 rbytes={second} wbytes=0\n")
        detail = monitor.tick(101.0 + second).pods["a"].detail
        assert detail is not None
        times.add(detail.at)
        assert detail.read in (7, detail.at - 101)
    assert len(times) == 4


def test_pods_without_a_floor_are_not_read(monitor: Monitor, make: Make) -> None:
    make("kubepods/a", v2_files())
    before = open_files()
    monitor.watch({"a": watched("a", {}), "b": watched("a", {"cpu": 0}), "c": watched("a", {"egress": 5})})
    assert monitor.tick(100.0).pods == {}
    assert open_files() == before


def test_a_cgroup_that_comes_later(monitor: Monitor, make: Make) -> None:
    monitor.watch({"a": watched("a")})
    assert monitor.tick(100.0).pods == {}
    make("kubepods/a", v2_files())
    assert set(monitor.tick(101.0).pods) == {"a"}
    assert monitor.failures == 0


def test_a_pod_that_is_no_longer_watched_leaves_nothing_open(monitor: Monitor, make: Make) -> None:
    make("kubepods/a", v2_files())
    before = open_files()
    monitor.watch({"a": watched("a")})
    monitor.tick(100.0)
    assert open_files() > before
    monitor.watch({})
    assert open_files() == before
    assert monitor.tick(101.0).pods == {}


def test_another_cgroup_of_the_same_pod_is_another_one(monitor: Monitor, make: Make) -> None:
    make("kubepods/a", v2_files())
    make("kubepods/b", v2_files())
    monitor.watch({"a": watched("a")})
    first = monitor.tick(100.0).pods["a"]
    monitor.watch({"a": watched("b")})
    assert monitor.tick(101.0).pods["a"].made != first.made


def test_a_text_that_nobody_expected_fails_its_pod_only(
    monitor: Monitor, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make("kubepods/a", v2_files())
    make("kubepods/b", v2_files())
    monitor.watch({"a": watched("a"), "b": watched("b")})
    (folder / "memory.stat").write_text("anon many\n")
    assert set(monitor.tick(100.0).pods) == {"b"}
    assert set(monitor.tick(101.0).pods) == {"b"}  # tried again after five seconds
    assert monitor.failures == 1
    assert "pod not measured pod=shop/a" in caplog.text
    (folder / "memory.stat").write_text("anon 1\n")
    assert set(monitor.tick(105.0).pods) == {"a", "b"}


def test_a_link_is_no_meter(monitor: Monitor, make: Make, tmp_path: Path) -> None:
    folder = make("kubepods/a", v2_files())
    secret = tmp_path / "secret"
    secret.write_text("usage_usec 1\n")
    (folder / "cpu.stat").unlink()
    (folder / "cpu.stat").symlink_to(secret)
    before = open_files()
    monitor.watch({"a": watched("a")})
    assert monitor.tick(100.0).pods == {}
    assert monitor.failures == 1
    assert open_files() == before


def test_without_psi_threads_are_asked_in_turn(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.monitor.monitor.MOST_AT_ONCE", 1)
    names = [f"p{number}" for number in range(4)]
    for name in names:
        make(f"kubepods/{name}", v2_files(psi=False))
    monitor = Monitor({"": str(tmp_path)}, str(tmp_path), settle_seconds=0.5)
    try:
        monitor.watch({name: watched(name, {"cpu": 500}) for name in names})
        for second in range(4):
            monitor.tick(second)
        settled = [
            {uid for uid, sample in monitor.tick(100.0 + second).pods.items() if sample.settled}
            for second in range(4)
        ]
    finally:
        monitor.close()
    assert all(settled)
    assert set().union(*settled) == set(names)


def test_many_new_pods_are_opened_in_several_ticks(
    monitor: Monitor, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.monitor.monitor.MOST_OPENED", 2)
    names = [f"p{number}" for number in range(5)]
    for name in names:
        make(f"kubepods/{name}", v2_files())
    monitor.watch({name: watched(name) for name in ("none", *names)})
    assert [len(monitor.tick(second).pods) for second in range(4)] == [2, 4, 5, 5]


def test_a_machine_without_cgroups() -> None:
    with pytest.raises(ValueError, match="mount cgroup2"):
        layout.of({"pids": "/x"})


def test_where_meters_lie() -> None:
    v1 = {name: f"/{name}" for name in ("cpu", "cpuacct", "memory", "blkio")}
    assert layout.of(v1 | {"": "/unified"}) == layout.of(v1)
    assert (layout.of(v1).v2_cpu, layout.of(v1).v2_memory, layout.of(v1).threads) == (False, False, "/cpu")
    mixed = layout.of({"cpu": "/cpu", "cpuacct": "/cpuacct", "": "/unified"})
    assert ("/unified", ("memory.current", "memory.pressure")) in mixed.each_second
    assert (mixed.v2_cpu, mixed.v2_memory) == (False, True)
    v2 = layout.of({"": "/unified"})
    assert len(v2.each_second) == len(v2.seldom) == 1
    assert v2.threads == "/unified"
