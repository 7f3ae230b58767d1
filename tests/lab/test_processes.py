"""Pid files, and pids that are checked before anything is sent to them. The processes are real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import components, processes, reaper

SLEEP = "import sys, time; time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); {SLEEP}"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "cluster"
    place.mkdir()
    yield place
    reaper.remove(place)


def spawn(folder: Path, name: str = "one", code: str = SLEEP) -> int:
    argv = [sys.executable, "-c", code, f"{folder}/x"]
    return processes.spawn(argv, log=folder / f"{name}.log", pid_file=folder / f"{name}.pid")


UNDOING = """
import sys, time
from lab.processes import exit_on_sigterm
exit_on_sigterm()
try:
    print("made", flush=True)
    time.sleep(600)
finally:
    print("undoing", flush=True)
    sys.stdin.readline()
    print("undone", flush=True)
"""


@pytest.mark.program
def test_what_was_made_is_undone_on_sigterm_also_when_it_comes_again() -> None:
    argv = [sys.executable, "-c", UNDOING]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for said in ("made", "undoing"):
            assert running.stdout.readline() == f"{said}\n"
            running.send_signal(signal.SIGTERM)
        running.stdin.write("\n")
        running.stdin.flush()
        assert running.stdout.readline() == "undone\n"
        assert running.wait(timeout=60) == 128 + signal.SIGTERM


def test_spawn_detaches_and_records(folder: Path) -> None:
    pid = spawn(folder)
    assert processes.recorded(folder / "one.pid", folder) == pid
    assert os.getsid(pid) == pid
    assert processes.start_time(pid) != ""


def test_output_is_appended_to_the_log(folder: Path) -> None:
    for word in ("first", "second"):
        pid = spawn(folder, code=f"print('{word}')")
        os.waitpid(pid, 0)
    assert (folder / "one.log").read_text() == "first\nsecond\n"


def test_end_waits_until_it_is_gone(folder: Path) -> None:
    pid = spawn(folder)
    processes.end([pid], folder, signal.SIGTERM)
    assert processes.argv_of(pid) == []
    assert processes.start_time(pid) == ""
    assert processes.recorded(folder / "one.pid", folder) is None


def test_end_says_what_did_not_end(folder: Path) -> None:
    pid = spawn(folder, code=DEAF)
    while not (folder / "one.log").read_text():  # SIGTERM is ignored from then on
        os.sched_yield()
    with pytest.raises(TimeoutError, match=f"SIGTERM did not end .{pid}. within 0.1 s"):
        processes.end([pid], folder, signal.SIGTERM, seconds=0.1)


def test_a_pid_that_is_another_process_now_is_left_alone(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    pid = spawn(other)
    (folder / "one.pid").write_text(str(pid))
    assert processes.recorded(folder / "one.pid", folder) is None
    reaper.remove(folder)
    assert processes.belongs(pid, other)
    reaper.remove(other)


@pytest.mark.parametrize("content", ["", "no number", "999999999"])
def test_a_pid_file_with_nonsense(folder: Path, content: str) -> None:
    (folder / "one.pid").write_text(content)
    assert processes.recorded(folder / "one.pid", folder) is None


def test_remove_finds_programs_of_the_folder_without_pid_files(folder: Path) -> None:
    program = folder / "bin" / "sleep"
    program.parent.mkdir()
    program.symlink_to("/bin/sleep")
    pid = processes.spawn([str(program), "600"], log=folder / "log", pid_file=folder / "one.pid")
    (folder / "one.pid").unlink()
    reaper.remove(folder)
    assert processes.argv_of(pid) == []
    assert not folder.exists()


def test_a_component_is_killed_and_started_again(folder: Path) -> None:
    components.add(folder, "worker", [sys.executable, "-c", SLEEP, f"{folder}/x"])
    first = components.start(folder, "worker")
    assert components.start(folder, "worker") == first
    components.kill(folder, "worker")
    assert components.pid(folder, "worker") is None
    components.kill(folder, "worker")
    second = components.start(folder, "worker")
    assert second != first
    assert components.pid(folder, "worker") == second


def test_an_unknown_component_names_those_there_are(folder: Path) -> None:
    components.add(folder, "worker", ["/bin/true"])
    with pytest.raises(components.UnknownComponentError, match="no component 'etc'; it has worker"):
        components.kill(folder, "etc")


def test_components_of_kwokctl(folder: Path) -> None:
    kwok = components.kwok_folder(folder)
    kwok.mkdir(parents=True)
    (kwok / "kwok.yaml").write_text(
        "components:\n- name: etcd\n  binary: /bin/etcd\n  args: [--a=1]\n---\nkind: Stage\n"
    )
    assert components.components(folder) == {
        "etcd": components.Component(
            "etcd", ("/bin/etcd", "--a=1"), kwok / "logs" / "etcd.log", kwok / "pids" / "etcd.pid"
        )
    }


def test_the_reaper_removes_what_its_parent_left(folder: Path) -> None:
    pid = spawn(folder)
    one = reaper.Reaper(folder)
    one._child.communicate(b"")  # the parent's end closes without a word
    assert not folder.exists()
    assert processes.argv_of(pid) == []


def test_a_dismissed_reaper_does_nothing(folder: Path) -> None:
    pid = spawn(folder)
    reaper.Reaper(folder).dismiss()
    assert processes.belongs(pid, folder)
