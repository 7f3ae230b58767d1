"""`j10ce lab vm`: what it prints, and what its exit status is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.vm import recipe

J10CE = Path(sys.executable).with_name("j10ce")


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    argv = [str(J10CE), "lab", "vm", *arguments]
    return subprocess.run(argv, env=environ or None, capture_output=True, text=True, timeout=300, check=False)


def test_packages_are_what_the_makefile_installs() -> None:
    pairs = dict(word.split("=") for word in run("packages").stdout.split())
    assert pairs == dict(recipe.COMMANDS)
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    assert ".ci/packages $$($(BIN)/j10ce lab vm packages)" in makefile


def test_what_is_missing_is_said_without_a_traceback(tmp_path: Path) -> None:
    done = run("prepare", PATH=str(tmp_path), HOME=str(tmp_path))
    assert done.returncode == 1
    assert "needs qemu-system-x86_64, mmdebstrap," in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.kernel
def test_where_the_image_is() -> None:
    files = json.loads(run("prepare", "-o", "json").stdout)
    assert set(files) == {"kernel", "initramfs", "root"}
    assert all(Path(file).is_file() for file in files.values())


@pytest.mark.kernel
def test_a_script_in_the_guest_gives_its_output_and_status() -> None:
    done = run("run", "uname -n; ls lab/vm/guest/init; echo err >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, "guest\nlab/vm/guest/init\nerr\n")
