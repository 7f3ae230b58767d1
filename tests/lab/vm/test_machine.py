"""The machine's edges, with QEMU played: what a guest says and leaves, and how a failure is reported."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab.vm.machine import Machine, Patience
from lab.vm.recipe import GUEST, Image, System, VmError
from tests.waiting import until

pytestmark = pytest.mark.program

QEMU = """#!/bin/sh
path() {{ printf '%s\\n' "$@" | sed -n "s/^file,id=$name,path=//p" | sed 's/,,/,/g'; }}
name=console; console=$(path "$@")
name=reports; reports=$(path "$@")
name=results; results=$(path "$@")
{guest}
"""
ENDED = {"", "Z"}
RESULTS = 'mkdir "$results-d"; echo 0 >"$results-d/status"; tar -cf "$results" -C "$results-d" .'


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Machine:
    """A machine whose guest is a shell script: the test's parameter."""
    program = tmp_path / "bin" / "qemu-system-x86_64"
    program.parent.mkdir()
    program.write_text(QEMU.format(guest=request.param))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    folder = tmp_path / "run, with a comma"
    folder.mkdir()
    return Machine(Image(tmp_path), folder, tmp_path / "payload.tar", Patience(silence=60.0, total=120.0))


@pytest.mark.parametrize(
    "machine",
    ['printf "one\\ntw" >>"$reports"; sleep 0.2; printf "o\\n" >>"$reports"; ' + RESULTS],
    indirect=True,
)
def test_reports_come_by_line_and_results_as_a_folder(machine: Machine) -> None:
    with machine:
        assert list(machine.lines()) == ["one", "two"]
        results = machine.results()
        assert (results / "status").read_text() == "0\n"
        assert machine.results() == results
    assert not list(machine.folder.glob("*.raw"))


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        ('echo "Kernel panic - not syncing" >"$console"', "it crashed or was powered off"),
        ('echo "Kernel panic - not syncing" >"$console"; head -c 700 /dev/zero >"$results"', "it crashed"),
        (
            'echo "Kernel panic - not syncing" >"$console"; mkdir d; tar -cf "$results" -C d .; rmdir d',
            "it crashed or was powered off",
        ),
    ],
    indirect=["machine"],
)
def test_a_guest_without_whole_results_fails_with_its_last_lines(machine: Machine, why: str) -> None:
    with machine, pytest.raises(VmError) as said:
        machine.results()
    assert why in str(said.value)
    assert "Kernel panic - not syncing" in str(said.value)
    assert str(machine.console) in str(said.value)


@pytest.mark.parametrize(
    "machine", ['echo "Kernel panic - not syncing" >"$console"; sleep 600'], indirect=True
)
def test_a_guest_that_is_silent_is_ended(machine: Machine) -> None:
    machine._patience = Patience(silence=1.0, total=120.0)
    with machine:
        until(lambda: machine.console.read_text(), "the guest has said all it says")
        with pytest.raises(VmError, match=r"reported nothing for 1 s, and was killed[\s\S]*Kernel panic"):
            machine.results()


@pytest.mark.parametrize("machine", ['while sleep 0.1; do echo line >>"$reports"; done'], indirect=True)
def test_a_guest_that_goes_on_for_ever_is_ended(machine: Machine) -> None:
    machine._patience = Patience(silence=60.0, total=1.0)
    with machine, pytest.raises(VmError, match="it took longer than 1 s, and was killed"):
        machine.results()


@pytest.mark.parametrize("machine", ['echo "qemu: no such CPU" >&2; exit 1'], indirect=True)
def test_what_qemu_says_is_told(machine: Machine) -> None:
    with machine, pytest.raises(VmError, match=r"console[\s\S]*\(nothing\)\nQEMU: qemu: no such CPU"):
        machine.results()


@pytest.mark.parametrize("machine", ["sleep 600 & echo $! >pid; wait"], indirect=True)
def test_leaving_ends_all_of_it(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "pid"
    with machine:
        until(lambda: file.exists() and file.read_text(), "the guest has started its process")
        pid = file.read_text().strip()
        assert state(pid) not in ENDED
    until(lambda: state(pid) in ENDED, "the process of the guest that was killed has ended")


def state(pid: str) -> str:
    done = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True, check=False)
    return done.stdout.strip()


@pytest.mark.parametrize("system", list(System))
def test_the_kernel_is_told_what_process_1_is(tmp_path: Path, system: System) -> None:
    machine = Machine(Image(tmp_path), tmp_path, tmp_path / "payload.tar", system=system)
    argv = machine.argv()
    assert f"j10ce.init={system.value}" in argv[argv.index("-append") + 1].split()
    assert os.access(GUEST / system.value, os.X_OK)
