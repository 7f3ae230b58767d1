"""Who wrote a file, by its process's name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.enforcement.writers import WRITERS, seen, writer_of


@pytest.mark.parametrize(
    ("comm", "writer"),
    [
        ("kubelet", "kubelet"),
        ("k3s-server", "kubelet"),
        ("containerd", "runtime"),
        ("containerd-shim", "runtime"),  # cut at 15 characters, as the kernel does
        ("runc:[2:INIT]", "runtime"),
        ("crun", "runtime"),
        ("crio", "runtime"),
        ("conmon", "runtime"),
        ("podman", "runtime"),
        ("systemd", "systemd"),
        ("systemd-udevd", "systemd"),
        ("j10ce-agent", "agent"),
        ("python3", "other"),
        ("bash", "other"),
        ("", "other"),
    ],
)
def test_names(comm: str, writer: str) -> None:
    assert writer_of(comm) == writer
    assert writer in WRITERS


def test_an_interpreter_is_ours_by_its_command_line() -> None:
    hook = "/usr/bin/python3\0-I\0-S\0-c\0...\0/usr/libexec/j10ce/0.1.0\0/run/j10ce"
    assert writer_of("python3", hook) == "agent"
    assert writer_of("bash", hook) == "other"


def test_a_process_that_is_there_and_one_that_is_not(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "/run/j10ce"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert seen(child.pid) == "agent"
    assert seen(child.pid, str(tmp_path)) == ""
    assert seen(0) == ""
    assert seen(os.getppid()) in WRITERS
