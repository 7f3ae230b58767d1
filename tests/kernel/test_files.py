"""kernel/ on real cgroup v2: what the kernel takes, rounds, refuses and resets, and the way back."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel import hierarchies
from kernel.apply import Entry, Outcome, apply
from kernel.files import Group
from kernel.refused import Refused
from kernel.target import Target, from_pid

MIB = 1 << 20
POD, BOX = "/files/pod", "/files/pod/box"
SETTINGS = ("weight", "idle", "max", "burst", "min", "low", "high", "group", "cpus", "mems")
ID = "e" * 64


@pytest.fixture
def box(tree) -> Iterator[Path]:
    """A container's cgroup, two levels below one of ours."""
    tree.make(BOX)
    return Path("/sys/fs/cgroup") / BOX.lstrip("/")


def _target() -> Target:
    return Target(hierarchies.mounts(Path("/proc/self/mountinfo").read_text()), {"": BOX})


def _apply(*entries: Entry) -> Outcome:
    with _target() as target:
        return apply(target, list(entries))


def _refusals(outcome: Outcome) -> list[tuple[str, str, str, int]]:
    return [(refusal.group, refusal.file, refusal.value, refusal.errno) for refusal in outcome.refusals]


def _state(box: Path) -> dict[str, str]:
    """Every setting of the three cgroups."""
    return {
        str(file): file.read_text()
        for folder in (box, box.parent, box.parent.parent)
        for file in sorted(folder.iterdir())
        if file.name.endswith(SETTINGS) and file.is_file()
    }


def _disk() -> str:
    return next(
        (folder / "dev").read_text().strip()
        for folder in sorted(Path("/sys/block").iterdir())
        if folder.name.startswith("vd")
    )


def test_all_dimensions_through_the_levels_and_then_nothing_to_do(box: Path) -> None:
    entries: list[Entry] = [
        (2, "raise", "memory.min", str(64 * MIB)),
        (2, "raise", "memory.low", str(96 * MIB)),
        (1, "set", "memory.min", str(64 * MIB)),
        (1, "set", "cpu.weight", "200"),
        (0, "set", "memory.min", str(64 * MIB)),
        (0, "set", "memory.low", str(96 * MIB)),
        (0, "set", "memory.high", str(128 * MIB)),
        (0, "set", "memory.oom.group", "1"),
        (0, "set", "cpu.weight", "50"),
        (0, "set", "cpu.max", "150000 100000"),
        (0, "set", "cpu.max.burst", "50000"),
        (0, "set", "io.max", f"{_disk()} rbps=1048576 wiops=100"),
        (0, "set", "pids.max", "100"),
    ]
    first = _apply(*entries)
    assert _refusals(first) == []
    assert len(first.written) == len(entries)
    assert (box / "memory.min").read_text() == f"{64 * MIB}\n"
    assert (box / "cpu.max").read_text() == "150000 100000\n"
    assert (box / "io.max").read_text() == f"{_disk()} rbps=1048576 wbps=max riops=max wiops=100\n"
    assert (box.parent.parent / "memory.low").read_text() == f"{96 * MIB}\n"
    second = _apply(*entries)
    assert (second.kept, second.written, second.refusals) == (len(entries), [], [])


def test_shared_ancestors_are_only_raised(box: Path) -> None:
    above = box.parent.parent / "memory.min"
    above.write_text(str(64 * MIB))
    assert _apply((2, "raise", "memory.min", str(32 * MIB))).kept == 1
    assert above.read_text() == f"{64 * MIB}\n"
    assert _apply((2, "raise", "memory.min", "max")).written == [
        ("/files", "memory.min", str(64 * MIB), "max")
    ]


@pytest.mark.parametrize(
    ("file", "value", "made"),
    [
        ("memory.min", str(64 * MIB + 1), str(64 * MIB)),
        ("memory.low", "4095", "0"),
        ("memory.high", str(64 * MIB + 4097), str(64 * MIB + 4096)),
    ],
)
def test_what_the_kernel_rounds_is_refused_with_both_values(
    box: Path, file: str, value: str, made: str
) -> None:
    before = _state(box)
    outcome = _apply((1, "set", "cpu.weight", "300"), (0, "set", "pids.max", "9"), (0, "set", file, value))
    assert _refusals(outcome) == [(BOX, file, value, 0)]
    assert f"the kernel made it {made}" in str(outcome.refusals[0])
    assert _state(box) == before


def test_a_refusal_in_the_middle_puts_everything_back(box: Path) -> None:
    """A quota below its burst is EINVAL; what was written before it goes back, in all three cgroups."""
    (box / "io.max").write_text(f"{_disk()} rbps=2097152")
    before = _state(box)
    outcome = _apply(
        (2, "raise", "memory.min", str(64 * MIB)),
        (1, "set", "memory.low", str(64 * MIB)),
        (0, "set", "cpu.weight", "9"),
        (0, "set", "io.max", f"{_disk()} rbps=1048576 wbps=1048576"),
        (0, "set", "cpu.max", "20000 100000"),
        (0, "set", "cpu.max.burst", "30000"),
    )
    assert _refusals(outcome) == [(BOX, "cpu.max", "20000 100000", errno.EINVAL)]
    assert "less than cpu.max.burst" in str(outcome.refusals[0])
    assert outcome.written == []
    assert _state(box) == before


def test_quota_and_burst_in_both_directions(box: Path) -> None:
    for quota, burst in (("50000", "50000"), ("20000", "10000"), ("80000", "80000"), ("max", "90000")):
        outcome = _apply((0, "set", "cpu.max.burst", burst), (0, "set", "cpu.max", f"{quota} 100000"))
        assert _refusals(outcome) == []
        assert (box / "cpu.max").read_text() == f"{quota} 100000\n"
        assert (box / "cpu.max.burst").read_text() == f"{burst}\n"


def test_a_disk_that_is_not_there(box: Path) -> None:
    before = _state(box)
    outcome = _apply((0, "set", "pids.max", "9"), (0, "set", "io.max", "4000:0 rbps=1"))
    assert _refusals(outcome) == [(BOX, "io.max", "4000:0 rbps=1", errno.ENODEV)]
    assert not outcome.gone
    assert _state(box) == before


def test_io_limits_of_one_disk_are_taken_back(box: Path) -> None:
    assert _apply((0, "set", "io.max", f"{_disk()} rbps=1048576 wiops=7")).applied
    assert _apply((0, "set", "io.max", f"{_disk()} rbps=2097152 wbps=1048576 wiops=max")).applied
    assert (box / "io.max").read_text() == f"{_disk()} rbps=2097152 wbps=1048576 riops=max wiops=max\n"
    mixed = (1, "set", "io.max", f"{_disk()} rbps=2097152 wbps=1048576")
    (box.parent / "io.max").write_text(f"{_disk()} rbps=1048576 wbps=2097152 riops=5")
    assert _apply(mixed).applied
    shown = f"{_disk()} rbps=2097152 wbps=1048576 riops=5 wiops=max\n"
    assert (box.parent / "io.max").read_text() == shown
    assert _apply((0, "set", "io.max", f"{_disk()} rbps=max wbps=max riops=max wiops=max")).applied
    assert (box / "io.max").read_text() == ""


def test_an_idle_cgroup_and_its_weight(box: Path) -> None:
    weight, idle = box / "cpu.weight", box / "cpu.idle"
    weight.write_text("700")
    outcome = _apply((0, "set", "cpu.idle", "1"))
    assert _refusals(outcome) == []
    assert (weight.read_text(), idle.read_text()) == ("0\n", "1\n")
    outcome = _apply((0, "set", "cpu.weight", "50"))
    assert _refusals(outcome) == [(BOX, "cpu.weight", "50", errno.EINVAL)]
    assert "cpu.idle" in str(outcome.refusals[0])
    outcome = _apply((0, "set", "cpu.weight", "50"), (0, "set", "cpu.idle", "0"))
    assert _refusals(outcome) == []
    assert (weight.read_text(), idle.read_text()) == ("50\n", "0\n")


def test_an_idle_cgroup_that_is_put_back_has_its_weight_again(
    box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cpu.idle 1 and 0 again leaves weight 100; the kernel refuses no second cpu.idle, so the test does."""
    (box / "cpu.weight").write_text("700")
    before = _state(box)
    write = Group.write

    def refuse_the_pod(group: Group, file: str, value: str) -> None:
        if group.name == POD:
            assert (box / "cpu.weight").read_text() == "0\n"
            raise Refused("no", group.name, file, value, errno.EINVAL)
        write(group, file, value)

    monkeypatch.setattr(Group, "write", refuse_the_pod)
    outcome = _apply((0, "set", "cpu.idle", "1"), (1, "set", "cpu.idle", "1"))
    assert _refusals(outcome) == [(POD, "cpu.idle", "1", errno.EINVAL)]
    assert _state(box) == before


def test_cpusets_grow_shrink_and_move_with_their_parent(box: Path) -> None:
    for cpus in ("0", "0-1", "1", "0", "0-1"):
        outcome = _apply((0, "set", "cpuset.cpus", cpus), (1, "set", "cpuset.cpus", cpus))
        assert _refusals(outcome) == []
        assert (box / "cpuset.cpus").read_text() == (box.parent / "cpuset.cpus").read_text() == f"{cpus}\n"


def test_an_empty_cpuset_is_put_back(box: Path) -> None:
    before = _state(box)
    assert (box / "cpuset.cpus").read_text() == "\n"
    outcome = _apply((0, "set", "cpuset.cpus", "0"), (1, "set", "memory.min", "4097"))
    assert [refusal.file for refusal in outcome.refusals] == ["memory.min"]
    assert _state(box) == before


def test_files_of_another_version_are_not_there(box: Path) -> None:
    before = _state(box)
    outcome = _apply((0, "set", "pids.max", "9"), (0, "set", "cpu.shares", "1024"))
    assert _refusals(outcome) == [(BOX, "cpu.shares", "", errno.ENOENT)]
    assert not outcome.gone
    assert _state(box) == before


def test_a_removed_cgroup_is_gone(box: Path) -> None:
    with _target() as target:
        target.group("pids.max", 0)
        box.rmdir()
        outcome = apply(target, [(0, "set", "pids.max", "9")])
    box.mkdir()  # for the fixture to remove
    assert (outcome.gone, outcome.written) == (True, [])


def test_from_a_process_below_its_container(tree) -> None:
    """crun and systemd put it one level down; the settings are the container's, and the process's."""
    below = tree.make(f"/files/crun-{ID}.scope/container").folder
    child = subprocess.Popen(["sleep", "1000"])
    try:
        (below / "cgroup.procs").write_text(str(child.pid))
        with from_pid(child.pid, ID) as target:
            assert target.cgroup == f"/files/crun-{ID}.scope"
            outcome = apply(target, [(0, "set", "pids.max", "50"), (-1, "set", "oom_score_adj", "-500")])
        assert _refusals(outcome) == []
        assert (below.parent / "pids.max").read_text() == "50\n"
        assert Path(f"/proc/{child.pid}/oom_score_adj").read_text() == "-500\n"
    finally:
        child.kill()
        child.wait()
