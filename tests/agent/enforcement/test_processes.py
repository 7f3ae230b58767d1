"""oom_score_adj of all of a container's processes: those that were there before, below, and came later."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.enforcement import writing
from agent.enforcement.enforcer import Enforcer
from agent.enforcement.inherited import due
from agent.enforcement.originals import Originals, Record
from agent.enforcement.repair import Drift, Repairer
from agent.restoring import restore
from agent.state import Running
from kernel import processes
from qos.plan.settings import Plan
from tests.agent.enforcement.conftest import ID, Rig, of_process

_WAIT = "import sys; print(flush=True); sys.stdin.read()"
_FORK = """
import os, sys
for line in sys.stdin:
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.read(int(sys.argv[1]), 1)  # ends when the test does
        os._exit(0)
"""


class Processes:
    """Of a container; all end with the test, because their stdin does."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.one = rig.container()
        self._started: list[subprocess.Popen[bytes]] = []
        self._ends, self._lives = os.pipe()

    def start(self, folder: str = "", score: int | None = None, code: str = _WAIT) -> int:
        argv = [sys.executable, "-I", "-S", "-c", code, str(self._ends)]
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(self._ends,)
        )
        self._started.append(process)
        if code == _WAIT:
            assert process.stdout is not None
            process.stdout.readline()
        if score is not None:
            self.score(process.pid).write_text(str(score))
        parts = [*self.one.cgroup.split("/")[2:], *([folder] if folder else [])]
        self.rig.scratch.make(*parts)
        for controller in self.rig.mounts:
            (self.rig.scratch.folder(controller, *parts) / "cgroup.procs").write_text(str(process.pid))
        return process.pid

    def fork(self, pid: int) -> int:
        """A child of one that was started with _FORK; it is in its parent's cgroup and has its score."""
        process = next(one for one in self._started if one.pid == pid)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def score(self, pid: int) -> Path:
        return Path(f"/proc/{pid}/oom_score_adj")

    def scores(self, *pids: int) -> list[int]:
        return [int(self.score(pid).read_text()) for pid in pids]

    def end(self) -> None:
        os.close(self._ends)
        os.close(self._lives)
        for process in self._started:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def here(kernel_rig: Rig) -> Iterator[Processes]:
    found = Processes(kernel_rig)
    yield found
    found.end()


def test_every_process_has_it_also_in_cgroups_below(here: Processes, kernel_rig: Rig) -> None:
    pids = [here.start(), here.start(), here.start("child"), here.start("child")]
    before = here.scores(*pids)
    report = kernel_rig.enforcer.apply(here.one, of_process(800))
    assert (report.applied, report.whole) == (True, True)
    assert here.scores(*pids) == [800] * 4
    kernel_rig.enforcer.apply(here.one, Plan(()))
    assert here.scores(*pids) == before


@pytest.mark.parametrize("group", [ID, f"cri-containerd-{ID}.scope", f"crio-{ID}.scope"])
def test_it_is_given_back_whoever_named_the_cgroup(
    here: Processes, kernel_rig: Rig, tmp_path: Path, group: str
) -> None:
    """With systemd the container is a scope."""
    here.one = kernel_rig.container(group=group)
    pids = [here.start(), here.start()]
    before = here.scores(*pids)
    assert kernel_rig.enforcer.apply(here.one, of_process(800)).applied
    assert restore(kernel_rig.mounts, kernel_rig.run, tmp_path / "state").left == ()
    assert here.scores(*pids) == before


def test_a_process_that_asks_to_be_killed_first_stays_so(here: Processes, kernel_rig: Rig) -> None:
    first, sooner, later = here.start(score=100), here.start(score=950), here.start(score=300)
    kernel_rig.enforcer.apply(here.one, of_process(800))
    assert here.scores(first, sooner, later) == [800, 950, 800]
    kernel_rig.enforcer.apply(here.one, of_process(850))
    assert here.scores(first, sooner, later) == [850, 950, 850]
    kernel_rig.enforcer.apply(here.one, of_process(820))
    assert here.scores(first, sooner, later) == [820, 950, 820]


def test_a_process_that_comes_later_without_it_gets_it_at_the_check(here: Processes, kernel_rig: Rig) -> None:
    first = here.start()
    kernel_rig.enforcer.apply(here.one, of_process(800))
    drifts: list[Drift] = []
    repairer = Repairer(kernel_rig.enforcer, drifts.append, lambda _: None)
    assert list(repairer.check()) == [""]
    late = here.start()  # by `kubectl exec`: it has what the container's spec says
    (path,) = repairer.check()
    repairer.mend(path)
    assert here.scores(first, late) == [800, 800]
    assert [(one.want, one.repaired) for one in drifts] == [("800", True)]
    assert list(repairer.check()) == [""]


def test_those_that_were_forked_meanwhile_are_reached(
    here: Processes, kernel_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.start()
    parent = here.start(code=_FORK)
    children: list[int] = []
    listed = processes.listed

    def forks_after_the_list(mountpoint: str, path: str) -> list[str]:
        found = listed(mountpoint, path)
        if len(children) < 2:
            children.append(here.fork(parent))
        return found

    monkeypatch.setattr(processes, "listed", forks_after_the_list)
    report = kernel_rig.enforcer.apply(here.one, of_process(800))
    assert here.scores(parent, *children) == [800] * 3
    assert report.whole


def test_what_is_not_reached_is_said(
    here: Processes, kernel_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MOST_PROCESSES", 2)
    pids = [here.start() for _ in range(4)]
    report = kernel_rig.enforcer.apply(here.one, of_process(800))
    assert (report.applied, report.whole) == (True, False)
    assert here.scores(*pids).count(800) == 2
    why = "some of its processes do not have it: only 2 processes are looked at"
    assert [one.text for one in report.partly] == [why]
    monkeypatch.setattr(writing, "MOST_PROCESSES", 1000)
    repairer = Repairer(kernel_rig.enforcer, lambda _: None, lambda _: None)
    for path in repairer.check():
        repairer.mend(path)
    assert here.scores(*pids) == [800] * 4
    assert list(repairer.check()) == [""]
    assert kernel_rig.enforcer.reports[here.one.key].whole


def test_processes_that_proc_hides_are_said(here: Processes, kernel_rig: Rig, tmp_path: Path) -> None:
    """As root without CAP_SYS_PTRACE sees it where /proc is mounted with hidepid=2,gid=proc."""
    proc = tmp_path / "proc"
    proc.mkdir()
    enforcer = Enforcer(kernel_rig.mounts, Originals(tmp_path), tmp_path, str(proc))
    pids = [here.start(), here.start()]
    report = enforcer.apply(here.one, of_process(800))
    why = "some of its processes do not have it: /proc does not show them (mounted with hidepid?)"
    assert [one.text for one in report.partly] == [why]
    (path,) = {*Repairer(enforcer, lambda _: None, lambda _: None).check()}
    assert path == ""
    assert [one.text for one in enforcer.reports[here.one.key].partly] == [why]
    assert not report.whole
    before = here.scores(*pids)
    assert kernel_rig.enforcer.apply(here.one, of_process(800)).whole
    (left,) = restore(kernel_rig.mounts, kernel_rig.run, tmp_path / "state", str(proc)).left
    assert why in left
    assert restore(kernel_rig.mounts, kernel_rig.run, tmp_path / "state").left == ()
    assert here.scores(*pids) == before


def test_what_ends_while_it_is_looked_at_is_not_missed(
    here: Processes, kernel_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.start()
    listed, ended = processes.listed, iter(["4194300"])
    monkeypatch.setattr(processes, "listed", lambda *where: [*listed(*where), *ended])
    assert kernel_rig.enforcer.apply(here.one, of_process(800)).whole
    (path,) = {*Repairer(kernel_rig.enforcer, lambda _: None, lambda _: None).check()}
    assert path == ""
    assert kernel_rig.enforcer.reports[here.one.key].whole


def test_a_process_that_has_left_the_cgroup_is_left_alone(here: Processes, kernel_rig: Rig) -> None:
    here.start()
    stays = here.start()
    before = here.scores(stays)
    mountpoint = kernel_rig.mounts["memory"]
    beside = Running(here.one.key, here.one.container_id, f"{here.one.cgroup}-beside")
    processes._write(str(stays), here.one.cgroup, "/proc", "oom_score_adj", "800")
    assert here.scores(stays) == [800]
    here.score(stays).write_text(str(before[0]))
    with pytest.raises(processes.Gone, match="has left the cgroup"):
        processes._write(str(stays), beside.cgroup, "/proc", "oom_score_adj", "800")
    assert here.scores(stays) == before
    assert sorted(processes.listed(mountpoint, here.one.cgroup)) == sorted(
        (kernel_rig.file(here.one.cgroup, "memory.x").parent / "cgroup.procs").read_text().split()
    )


def test_what_a_look_at_many_processes_costs(here: Processes, kernel_rig: Rig) -> None:
    """In CPU time, compared with reading the same files plainly."""
    parent = here.start(code=_FORK)
    children = [here.fork(parent) for _ in range(60)]
    assert kernel_rig.enforcer.apply(here.one, of_process(800)).whole

    def plainly() -> None:
        for pid in children:
            here.score(pid).read_text()

    def look() -> None:
        processes.look(
            kernel_rig.mounts["memory"], here.one.cgroup, "/proc", "oom_score_adj", lambda _: False, 1000
        )

    assert _least(look) < 3 * _least(plainly)


def _least(work) -> float:
    def once() -> float:
        before = time.thread_time()
        work()
        return time.thread_time() - before

    return min(once() for _ in range(5))


@pytest.mark.parametrize(
    ("want", "record", "before", "changed", "stays"),
    [
        ("1000", None, ["900"], ["900", "0", "-997", "999"], ["1000"]),
        ("500", None, ["900"], ["900", "499"], ["500", "501", "899", "1000"]),
        ("500", Record("600", "900"), [], ["600", "900", "-5"], ["601", "1000"]),
        ("500", Record("500", None), [], ["0"], ["500", "900"]),
        ("0", Record("1000", "0"), ["1000"], ["1000", "-1"], ["0", "300"]),
        ("500", Record("", "300"), [], ["300"], ["900"]),
    ],
)
def test_who_inherited(
    want: str, record: Record | None, before: list[str], changed: list[str], stays: list[str]
) -> None:
    is_due = due(want, record, before)
    assert [value for value in changed + stays if is_due(value)] == changed
