"""What is packed for the guest."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from lab.vm import payload
from lab.vm.recipe import VmError


def packed(target: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(target) as tar:
        return {entry.name: entry for entry in tar}


def test_the_needed_part_of_the_repository(tmp_path: Path) -> None:
    payload.write(tmp_path / "tar", {payload.COMMAND: "true\n"}, {})
    names = packed(tmp_path / "tar")
    wanted = {
        "kernel/apply.py",
        "qos/plan/planning.py",
        "hook/boot.py",
        "tests/kernel/conftest.py",
        "lab/vm/guest/init",
    }
    assert wanted <= set(names)
    assert not {"tests/conftest.py", "qos/api/policy.py", "cli/app.py"} & set(names)
    assert not [name for name in names if "__pycache__" in name]
    assert names["lab/vm/guest/init"].mode & 0o111
    assert {(entry.uid, entry.uname) for entry in names.values()} <= {(0, "root"), (0, "")}


def test_what_a_run_brings_along(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "containerd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    payload.write(tmp_path / "tar", {"a/text": "hé\n"}, {".guest/node": tmp_path / "bin"}, parts=())
    names = packed(tmp_path / "tar")
    assert list(names) == [".guest/node", ".guest/node/containerd", "a/text"]
    assert names[".guest/node/containerd"].mode == 0o755
    with tarfile.open(tmp_path / "tar") as tar:
        text = tar.extractfile("a/text")
        assert text is not None
        assert text.read().decode() == "hé\n"


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside", "a/../../b", ""])
def test_nothing_outside_of_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(VmError, match="give a path below /work"):
        payload.write(tmp_path / "tar", {name: ""}, {}, parts=())
