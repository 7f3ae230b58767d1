"""Real cgroup v1 hierarchies: order, rounding, refusals, the way back."""

from __future__ import annotations

import contextlib
import errno
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from kernel.apply import Entry, Outcome, apply
from kernel.files import Group
from kernel.refused import Refused

pytestmark = pytest.mark.runtime

MIB = 1 << 20
HOLD = "import sys; kept = bytearray(b'x') * int(sys.argv[1]); print('held', flush=True); sys.stdin.read()"


@pytest.fixture
def box(scratch):
    """A pod with a container in every hierarchy."""
    scratch.make("/pod")
    scratch.make("/pod/box")
    return scratch


def _apply(scratch, *entries: Entry, path: str = "/pod/box") -> Outcome:
    with scratch.target(path) as target:
        return apply(target, list(entries))


def _refusals(outcome: Outcome) -> list[tuple[str, str, str, int]]:
    return [(refusal.group, refusal.file, refusal.value, refusal.errno) for refusal in outcome.refusals]


def test_all_dimensions_and_then_nothing_to_do(box) -> None:
    entries: list[Entry] = [
        (1, "set", "cpu.shares", "2048"),
        (0, "set", "cpu.shares", "512"),
        (0, "set", "cpu.cfs_quota_us", "150000"),
        (0, "set", "cpu.cfs_burst_us", "50000"),
        (0, "set", "memory.memsw.limit_in_bytes", str(64 * MIB)),
        (0, "set", "memory.limit_in_bytes", str(64 * MIB)),
        (0, "set", "memory.soft_limit_in_bytes", str(32 * MIB)),
        (0, "set", "pids.max", "100"),
    ]
    first = _apply(box, *entries)
    assert _refusals(first) == []
    assert len(first.written) == len(entries)
    assert (f"{box.path}/pod", "cpu.shares", "1024", "2048") in first.written
    for level, _, file, value in entries:
        assert box.text(file, "/pod" if level else "/pod/box") == value
    second = _apply(box, *entries)
    assert (second.kept, second.written, second.refusals) == (len(entries), [], [])


@pytest.mark.parametrize(("have", "want"), [(32, 64), (64, 32), (32, -1), (-1, 32)])
def test_limit_and_memsw_in_both_directions(box, have: int, want: int) -> None:
    """memory.limit_in_bytes may at no moment be above memory.memsw.limit_in_bytes."""
    for size in (have, want):
        text = "-1" if size < 0 else str(size * MIB)
        outcome = _apply(
            box,
            (0, "set", "memory.limit_in_bytes", text),
            (0, "set", "memory.memsw.limit_in_bytes", text),
        )
        assert _refusals(outcome) == []
        shown = box.text("memory.limit_in_bytes", "/pod/box")
        assert shown == (text if size > 0 else "9223372036854771712")
        assert box.text("memory.memsw.limit_in_bytes", "/pod/box") == shown


def test_a_quota_above_the_parents_is_refused_and_all_put_back(box) -> None:
    box.file("cpu.cfs_quota_us", "/pod").write_text("50000")
    before = box.state()
    outcome = _apply(
        box,
        (1, "raise", "cpu.shares", "4096"),
        (0, "set", "memory.limit_in_bytes", str(64 * MIB)),
        (0, "set", "pids.max", "7"),
        (0, "set", "cpu.cfs_quota_us", "60000"),
    )
    assert _refusals(outcome) == [(f"{box.path}/pod/box", "cpu.cfs_quota_us", "60000", errno.EINVAL)]
    assert "parent" in str(outcome.refusals[0])
    assert (outcome.written, outcome.kept) == ([], 0)
    assert box.state() == before


def test_quotas_of_parent_and_child_in_both_directions(box) -> None:
    for quota in ("30000", "90000", "20000", "-1", "40000"):
        outcome = _apply(box, (0, "set", "cpu.cfs_quota_us", quota), (1, "set", "cpu.cfs_quota_us", quota))
        assert _refusals(outcome) == []
        assert box.text("cpu.cfs_quota_us", "/pod/box") == box.text("cpu.cfs_quota_us", "/pod") == quota


def test_burst_and_quota_in_both_directions(box) -> None:
    for quota, burst in (("50000", "50000"), ("20000", "10000"), ("80000", "80000"), ("-1", "90000")):
        outcome = _apply(box, (0, "set", "cpu.cfs_burst_us", burst), (0, "set", "cpu.cfs_quota_us", quota))
        assert _refusals(outcome) == []
        assert box.text("cpu.cfs_burst_us", "/pod/box") == burst
    outcome = _apply(box, (0, "set", "cpu.cfs_quota_us", "30000"))
    assert "cpu.cfs_burst_us" in str(outcome.refusals[0])


def test_a_value_that_the_kernel_rounds_is_refused_with_both_values(box) -> None:
    before = box.state()
    outcome = _apply(box, (0, "set", "pids.max", "9"), (0, "set", "memory.limit_in_bytes", str(64 * MIB + 1)))
    assert _refusals(outcome) == [(f"{box.path}/pod/box", "memory.limit_in_bytes", str(64 * MIB + 1), 0)]
    assert f"the kernel made it {64 * MIB}" in str(outcome.refusals[0])
    assert box.state() == before


def test_shares_are_refused_out_of_range_before_the_kernel_clamps_them(box) -> None:
    """The kernel makes 2 of 1, and 262144 of anything above, without a word."""
    before = box.state()
    for value, made in (("1", "2"), ("999999", "262144")):
        box.file("cpu.shares", "/pod/box").write_text(value)
        assert box.text("cpu.shares", "/pod/box") == made
        box.file("cpu.shares", "/pod/box").write_text("1024")
        outcome = _apply(box, (0, "set", "pids.max", "9"), (0, "set", "cpu.shares", value))
        assert _refusals(outcome) == [(f"{box.path}/pod/box", "cpu.shares", value, 0)]
        assert box.state() == before


def test_a_limit_below_what_is_used_is_busy_and_all_is_put_back(box) -> None:
    child = box.run([sys.executable, "-I", "-S", "-c", HOLD, str(40 * MIB)], "/pod/box")
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    before = box.state()
    outcome = _apply(
        box,
        (0, "set", "cpu.shares", "2000"),
        (0, "set", "memory.memsw.limit_in_bytes", str(8 * MIB)),
        (0, "set", "memory.limit_in_bytes", str(8 * MIB)),
    )
    assert _refusals(outcome) == [(f"{box.path}/pod/box", "memory.limit_in_bytes", str(8 * MIB), errno.EBUSY)]
    assert box.state() == before
    assert child.poll() is None


def test_soft_limit_of_a_shared_ancestor_is_only_raised(box) -> None:
    box.file("memory.soft_limit_in_bytes", "/pod").write_text(str(64 * MIB))
    outcome = _apply(box, (1, "raise", "memory.soft_limit_in_bytes", str(32 * MIB)))
    assert (outcome.kept, outcome.written) == (1, [])
    outcome = _apply(box, (1, "raise", "memory.soft_limit_in_bytes", str(96 * MIB)))
    assert outcome.written == [
        (f"{box.path}/pod", "memory.soft_limit_in_bytes", str(64 * MIB), str(96 * MIB))
    ]


def test_cpu_idle_resets_shares_and_they_come_back(box) -> None:
    """What the model in test_order.py takes for granted."""
    if not box.file("cpu.idle", "/pod/box").exists():
        pytest.skip("this kernel has no cpu.idle (5.15)")
    shares, idle = box.file("cpu.shares", "/pod/box"), box.file("cpu.idle", "/pod/box")
    shares.write_text("700")
    idle.write_text("1")
    assert shares.read_text() == "3\n"
    with pytest.raises(OSError, match="Invalid argument"):
        shares.write_text("700")
    idle.write_text("0")
    assert shares.read_text() == "1024\n"

    assert _refusals(_apply(box, (0, "set", "cpu.idle", "1"))) == []
    assert _refusals(_apply(box, (0, "set", "cpu.shares", "3"), (0, "set", "cpu.idle", "0"))) == []
    assert (shares.read_text(), idle.read_text()) == ("3\n", "0\n")
    before = box.state()
    outcome = _apply(box, (0, "set", "cpu.idle", "1"), (0, "set", "cpu.shares", "50"))
    assert "an idle cgroup has no weight" in str(outcome.refusals[0])
    assert box.state() == before


def test_an_idle_cgroup_refuses_shares_without_cpu_idle_in_the_plan(box) -> None:
    box.file("cpu.idle", "/pod/box").write_text("1")
    outcome = _apply(box, (0, "set", "cpu.shares", "50"))
    assert _refusals(outcome) == [(f"{box.path}/pod/box", "cpu.shares", "50", errno.EINVAL)]
    assert "cpu.idle" in str(outcome.refusals[0])


def _needs_two_cpus(box) -> None:
    if box.text("cpuset.cpus", "/pod") not in ("0-1", "0,1"):
        pytest.skip(f"needs CPUs 0 and 1, and has {box.text('cpuset.cpus', '/pod')}")


def test_cpusets_grow_and_shrink_and_move_with_their_parent(box) -> None:
    _needs_two_cpus(box)
    for cpus in ("0", "0-1", "1", "0", "0-1"):
        outcome = _apply(box, (0, "set", "cpuset.cpus", cpus), (1, "set", "cpuset.cpus", cpus))
        assert _refusals(outcome) == []
        assert box.text("cpuset.cpus", "/pod/box") == box.text("cpuset.cpus", "/pod") == cpus


def test_cpus_that_the_parent_does_not_have_are_refused(box) -> None:
    _needs_two_cpus(box)
    _apply(box, (0, "set", "cpuset.cpus", "0"), (1, "set", "cpuset.cpus", "0"))
    before = box.state()
    outcome = _apply(box, (0, "set", "cpu.shares", "9"), (0, "set", "cpuset.cpus", "1"))
    assert [refusal.file for refusal in outcome.refusals] == ["cpuset.cpus"]
    assert outcome.refusals[0].errno in (errno.EACCES, errno.EINVAL)
    assert box.state() == before


def test_disk_limits_are_set_raised_and_removed(box) -> None:
    device = _disk()
    for value in (f"{device} 1048576", f"{device} 2097152", f"{device} 0"):
        outcome = _apply(box, (0, "set", "blkio.throttle.read_bps_device", value))
        assert _refusals(outcome) == []
        assert box.text("blkio.throttle.read_bps_device", "/pod/box") == (
            "" if value.endswith(" 0") else value
        )
    before = box.state()
    outcome = _apply(
        box,
        (0, "set", "blkio.throttle.read_bps_device", f"{device} 1048576"),
        (0, "set", "blkio.throttle.write_bps_device", "4000:0 1048576"),
    )
    assert [(refusal.file, refusal.errno) for refusal in outcome.refusals] == [
        ("blkio.throttle.write_bps_device", errno.ENODEV)
    ]
    assert not outcome.gone
    assert box.state() == before


def _disk() -> str:
    for folder in sorted(Path("/sys/class/block").iterdir()):
        if not (folder / "partition").exists() and not folder.name.startswith(("loop", "ram", "zram")):
            return (folder / "dev").read_text().strip()
    pytest.skip("there is no disk here to limit")


def test_everything_wrong_is_told_before_anything_is_written(box) -> None:
    before = box.state()
    outcome = _apply(
        box,
        (0, "set", "cpu.shares", "50"),
        (0, "set", "cpu.shares", "60"),
        (0, "push", "pids.max", "1"),
        (9, "set", "pids.max", "1"),
        (0, "set", "memory.min", "4096"),
        (0, "set", "oom_score_adj", "0"),
        (-1, "set", "oom_score_adj", "0"),
        (-1, "set", "pids.max", "0"),
        (-2, "set", "pids.max", "1"),
        (0, "set", "memory.limit_in_bytes", "lots"),
    )
    assert len(outcome.refusals) == 9
    assert box.state() == before


def test_a_cgroup_that_is_removed_meanwhile_is_gone(box) -> None:
    with box.target("/pod/box") as target:
        target.group("pids.max", 0)
        box.folder("pids", "/pod/box").rmdir()
        outcome = apply(target, [(0, "set", "pids.max", "5")])
    assert outcome.gone
    assert outcome.written == []
    assert _apply(box, (0, "set", "pids.max", "5")).gone


def test_what_is_removed_after_it_was_written_needs_no_way_back(box, monkeypatch) -> None:
    write = Group.write

    def write_pids_only(group: Group, file: str, value: str) -> None:
        if file != "pids.max":
            box.folder("pids", "/pod/box").rmdir()
            raise Refused("no", group.name, file, value, errno.EINVAL)
        write(group, file, value)

    monkeypatch.setattr(Group, "write", write_pids_only)
    entries: list[Entry] = [
        (1, "set", "pids.max", "50"),
        (0, "set", "pids.max", "5"),
        (0, "set", "cpu.shares", "9"),
    ]
    outcome = _apply(box, *entries)
    assert [refusal.file for refusal in outcome.refusals] == ["cpu.shares"]
    assert (outcome.gone, outcome.written) == (True, [])
    assert box.text("pids.max", "/pod") == "max"


def test_an_empty_cpuset_is_put_back(box) -> None:
    cpus = box.file("cpuset.cpus", "/pod/box")
    cpus.write_text("\n")
    outcome = _apply(box, (0, "set", "cpuset.cpus", "0"), (0, "set", "memory.limit_in_bytes", "4097"))
    assert [refusal.file for refusal in outcome.refusals] == ["memory.limit_in_bytes"]
    assert (cpus.read_text(), outcome.written) == ("\n", [])


def test_a_deadline_that_is_over_writes_nothing(box) -> None:
    before = box.state()
    with box.target("/pod/box") as target:
        outcome = apply(target, [(0, "set", "pids.max", "5")], time.monotonic() - 1)
    assert "time budget" in str(outcome.refusals[0])
    assert box.state() == before


RAISER = textwrap.dedent("""\
    import sys
    sys.path.insert(0, sys.argv[1])
    import posix
    from kernel import apply, hierarchies, target
    mounts = hierarchies.mounts(open("/proc/self/mountinfo").read())
    own = dict.fromkeys(("cpu", "memory"), sys.argv[2])
    lock = posix.open(sys.argv[3], posix.O_RDWR)
    print("ready", flush=True)
    sys.stdin.readline()
    for value in map(int, sys.argv[4:]):
        posix.lockf(lock, posix.F_LOCK, 0)
        with target.Target(mounts, own) as found:
            outcome = apply.apply(found, [(1, "raise", "cpu.shares", str(value))])
        with open(sys.argv[3] + ".log", "a") as log:
            log.write("".join(f"{after}\\n" for _, _, _, after in outcome.written))
        posix.lockf(lock, posix.F_ULOCK, 0)
        assert outcome.applied, [str(refusal) for refusal in outcome.refusals]
""")


def test_two_processes_raise_a_shared_ancestor_under_the_lock(box, tmp_path) -> None:
    """Neither takes back what the other has reached: every write is higher than all before it."""
    import kernel

    lock = tmp_path / "lock"
    lock.touch()
    root = str(Path(kernel.__file__).parent.parent)
    with contextlib.ExitStack() as stack:
        children = []
        for start in (2000, 2001):
            argv = [sys.executable, "-I", "-S", "-c", RAISER, root, f"{box.path}/pod/box", str(lock)]
            argv += [str(value) for value in range(start, start + 400, 2)]
            child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            children.append(stack.enter_context(child))
        for child in children:
            assert child.stdout.readline() == b"ready\n"
        for child in children:
            child.stdin.write(b"\n")
            child.stdin.flush()
        for child in children:
            assert child.wait(timeout=120) == 0
    written = [int(line) for line in (tmp_path / "lock.log").read_text().split()]
    assert written == sorted(written)
    assert box.text("cpu.shares", "/pod") == str(written[-1]) == "2399"
