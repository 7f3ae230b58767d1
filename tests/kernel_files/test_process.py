"""From a container's first process to its cgroups: real processes in real cgroups, and a /proc that lies."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

import kernel
from kernel.apply import apply
from kernel.membership import qos_class
from kernel.refused import Gone, Refused
from kernel.target import from_pid

ID = "c" * 64
V2 = "30 23 0:26 / {} rw - cgroup2 cgroup2 rw\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with the process 4242 in the cgroup /pod/ID of a v2 hierarchy, which is a folder."""
    (tmp_path / "mount" / "pod" / ID).mkdir(parents=True)
    (tmp_path / "proc" / "4242").mkdir(parents=True)
    (tmp_path / "proc" / "self").mkdir()
    (tmp_path / "proc" / "self" / "mountinfo").write_text(V2.format(tmp_path / "mount"))
    (tmp_path / "proc" / "4242" / "cgroup").write_text(f"0::/pod/{ID}\n")
    (tmp_path / "proc" / "4242" / "oom_score_adj").write_text("0\n")
    (tmp_path / "proc" / "4242" / "stat").write_text("4242 (a) Z) S 1 4242\n")
    return tmp_path / "proc"


def test_a_process_and_its_cgroup(proc: Path, tmp_path: Path) -> None:
    (tmp_path / "mount" / "pod" / ID / "cpu.weight").write_text("100\n")
    with from_pid(4242, ID, str(proc)) as target:
        assert target.cgroup == f"/pod/{ID}"
        outcome = apply(target, [(0, "set", "cpu.weight", "250"), (-1, "set", "oom_score_adj", "5")])
    assert outcome.applied
    assert (proc / "4242" / "oom_score_adj").read_text() == "5\n"
    assert (tmp_path / "mount" / "pod" / ID / "cpu.weight").read_text() == "250\n"


APPLYING = """import sys
sys.path.insert(0, sys.argv[1])
from kernel import apply, target
with target.from_pid(4242, sys.argv[2], sys.argv[3]) as found:
    entries = [
        (0, "set", "cpu.weight", "250"),
        (1, "raise", "memory.min", "8192"),
        (0, "set", "io.max", "8:0 rbps=4096"),
    ]
    outcome = apply.apply(found, entries)
box = "/pod/" + sys.argv[2]
assert outcome.written == [("/pod", "memory.min", "4096", "8192"), (box, "cpu.weight", "100", "250")]
assert (outcome.kept, outcome.applied, outcome.gone) == (1, True, False)
with target.from_pid(4242, sys.argv[2], sys.argv[3]) as found:
    print(*apply.apply(found, [(0, "set", "cpu.weight", "100"), (0, "set", "pids.max", "5")]).refusals)
"""


def test_on_every_python(python: str, proc: Path, tmp_path: Path) -> None:
    box = tmp_path / "mount" / "pod" / ID
    (box / "cgroup.procs").touch()
    (box / "cpu.weight").write_text("100\n")
    (box / "io.max").write_text("8:0 rbps=4096 wbps=max riops=max wiops=max\n")
    (box.parent / "memory.min").write_text("4096\n")
    root = str(Path(kernel.__file__).parent.parent)
    argv = [python, "-I", "-S", "-B", "-W", "error", "-c", APPLYING, root, ID, str(proc)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"pids.max of /pod/{ID}: ENOENT: No such file")
    assert (box / "cpu.weight").read_text() == "250\n"


def test_levels_end_below_the_root(proc: Path, tmp_path: Path) -> None:
    (tmp_path / "mount" / "cpu.weight").write_text("100\n")
    with from_pid(4242, ID, str(proc)) as target:
        assert target.group("cpu.weight", 1).name == "/pod"
        for level in (2, 3, -2):
            with pytest.raises(Refused, match="level"):
                target.group("cpu.weight", level)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("bad", ["garbage", "huge", "fifo", "link", "missing", "empty"])
def test_one_bad_file_and_nothing_is_written(proc: Path, tmp_path: Path, bad: str) -> None:
    box = tmp_path / "mount" / "pod" / ID
    (box / "cgroup.procs").touch()
    (box / "cpu.weight").write_text("100\n")
    (tmp_path / "victim").write_text("100\n")
    file = box / "memory.min"
    {
        "garbage": lambda: file.write_text("100 lots\n"),
        "huge": lambda: file.write_bytes(b"1" * 100000),
        "fifo": lambda: os.mkfifo(file),
        "link": lambda: file.symlink_to(tmp_path / "victim"),
        "missing": lambda: None,
        "empty": file.touch,
    }[bad]()
    with from_pid(4242, ID, str(proc)) as target:
        outcome = apply(target, [(0, "set", "cpu.weight", "250"), (0, "set", "memory.min", "4096")])
    assert [refusal.file for refusal in outcome.refusals] == ["memory.min"]
    assert (outcome.written, outcome.gone) == ([], False)
    assert (box / "cpu.weight").read_text() == (tmp_path / "victim").read_text() == "100\n"


@pytest.mark.parametrize("pid", [1, 0, -1])
def test_pids_that_are_no_containers(pid: int) -> None:
    with pytest.raises(Refused, match="not a container's process"):
        from_pid(pid, ID)


def test_a_pid_that_is_not_there(proc: Path) -> None:
    with pytest.raises(Gone, match="has ended"):
        from_pid(4243, ID, str(proc))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0::/\n", "root cgroup"),
        ("0::/other\n", "holds the container's id"),
        (f"0::/../{ID}\n", "not a path"),
        (f"0::/pod/{ID} (deleted)\n", "was removed"),
        (f"4:memory:/pod/{ID}\n", "no cgroup hierarchy"),
        ("", "no cgroup hierarchy"),
        ("garbage", "no cgroup hierarchy"),
        ("0::/" + "x" * 70000 + "\n", "longer than"),
    ],
)
def test_cgroups_that_are_not_its_own(proc: Path, text: str, why: str) -> None:
    (proc / "4242" / "cgroup").write_text(text)
    with pytest.raises(Refused, match=why):
        from_pid(4242, ID, str(proc))


def test_a_linked_process_folder_is_refused(proc: Path) -> None:
    (proc / "4243").symlink_to(proc / "4242")
    with pytest.raises(Refused):
        from_pid(4243, ID, str(proc))


def test_a_hierarchy_without_the_id_is_left_alone(proc: Path, tmp_path: Path) -> None:
    """Hybrid: the v1 controllers hold the container, the unified hierarchy has it at its root."""
    (tmp_path / "memory" / "box" / ID).mkdir(parents=True)
    v1 = f"31 23 0:27 / {tmp_path}/memory rw - cgroup cgroup rw,memory\n"
    (proc / "self" / "mountinfo").write_text(v1 + V2.format(tmp_path / "mount"))
    (proc / "4242" / "cgroup").write_text(f"4:memory:/box/{ID}\n0::/\n")
    with from_pid(4242, ID, str(proc)) as target:
        assert target.cgroup == f"/box/{ID}"
        with pytest.raises(Refused, match="no hierarchy"):
            target.group("cpu.weight", 0)


def test_a_container_that_only_pids_knows(proc: Path, tmp_path: Path) -> None:
    (tmp_path / "pids" / "box" / ID).mkdir(parents=True)
    v1 = f"31 23 0:27 / {tmp_path}/pids rw - cgroup cgroup rw,pids\n"
    (proc / "self" / "mountinfo").write_text(v1)
    (proc / "4242" / "cgroup").write_text(f"4:memory:/\n5:pids:/box/{ID}\n")
    with from_pid(4242, ID, str(proc)) as target:
        assert target.cgroup == f"/box/{ID}"


def test_a_long_list_of_mounts(proc: Path, tmp_path: Path) -> None:
    other = "99 1 8:1 / /var/lib/{} rw - ext4 /dev/sda1 rw\n"
    many = "".join(other.format(number) for number in range(5000))
    (proc / "self" / "mountinfo").write_text(many + V2.format(tmp_path / "mount") + many)
    with from_pid(4242, ID, str(proc)) as target:
        assert target.cgroup == f"/pod/{ID}"


@pytest.mark.runtime
def test_a_real_process(scratch) -> None:
    path = scratch.make(f"/libpod-{ID}")
    scratch.make(f"/libpod-{ID}/below")
    child = scratch.run(["sleep", "1000"], f"/libpod-{ID}/below")
    with from_pid(child.pid, ID) as target:
        assert (target.cgroup, qos_class(target.cgroup)) == (path, "Plain")
        outcome = apply(
            target,
            [
                (1, "set", "cpu.shares", "512"),
                (0, "set", "pids.max", "20"),
                (-1, "set", "oom_score_adj", "700"),
            ],
        )
    assert [str(refusal) for refusal in outcome.refusals] == []
    assert Path(f"/proc/{child.pid}/oom_score_adj").read_text() == "700\n"
    assert (scratch.text("cpu.shares"), scratch.text("pids.max", f"/libpod-{ID}")) == ("512", "20")
    with pytest.raises(Refused, match="holds the container's id"):
        from_pid(child.pid, "d" * 64)


@pytest.mark.runtime
def test_a_process_that_ends_takes_its_pid_with_it(scratch) -> None:
    """The settings go back, and whoever gets the pid next is not touched."""
    scratch.make(f"/{ID}")
    child = scratch.run(["sleep", "1000"], f"/{ID}")
    before = scratch.state()
    with from_pid(child.pid, ID) as target:
        child.kill()
        child.wait()
        outcome = apply(target, [(0, "set", "pids.max", "20"), (-1, "set", "oom_score_adj", "700")])
    assert outcome.gone
    assert outcome.written == []
    assert scratch.state() == before
    with pytest.raises(Gone):
        from_pid(child.pid, ID)


@pytest.mark.runtime
def test_a_process_that_has_ended_and_is_not_reaped(scratch) -> None:
    """A zombie is shown in the root cgroup, which must not be taken for the container's."""
    scratch.make(f"/{ID}")
    child = scratch.run(["true"], f"/{ID}")
    stat = Path(f"/proc/{child.pid}/stat")
    deadline = time.monotonic() + 30
    while stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert stat.with_name("cgroup").read_text().count(":/\n") > 1
    with pytest.raises(Gone, match="has ended"):
        from_pid(child.pid, ID)


@pytest.mark.runtime
def test_lowering_without_the_right_is_a_refusal_and_all_is_put_back(scratch) -> None:
    scratch.make(f"/{ID}")
    child = scratch.run(["sleep", "1000"], f"/{ID}")
    with from_pid(child.pid, ID) as target:
        outcome = apply(target, [(-1, "set", "oom_score_adj", "-900"), (0, "set", "pids.max", "20")])
    shown = Path(f"/proc/{child.pid}/oom_score_adj").read_text()
    if outcome.applied:
        assert shown == "-900\n"
        return
    assert "CAP_SYS_RESOURCE" in str(outcome.refusals[0])
    assert (shown, scratch.text("pids.max", f"/{ID}")) == ("0\n", "max")
