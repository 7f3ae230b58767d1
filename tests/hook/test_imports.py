"""What the hook loads: sys, posix, errno, time, _json and ours; on every Python it shall run on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hook.installation import imports
from hook.installation.entry import ENTRY
from hook.installation.errors import InstallationError

pytestmark = pytest.mark.program

PLATFORM = {"sys", "posix", "errno", "time", "_json"}
WATCH = """
import sys
before = set(sys.modules)
import posix
def end(code):
    print(code, *sorted(set(sys.modules) - before))
    sys.stdout.flush()
    leave(0)
leave, posix._exit = posix._exit, end
"""


def loaded(python: Path, code: Path, run: Path, state: str) -> tuple[int, set[str]]:
    """What is in sys.modules when the hook ends, and was not there before."""
    argv = [str(python), "-I", "-S", "-c", WATCH + ENTRY, str(code), str(run), str(run / "none")]
    done = subprocess.run(argv, input=state, capture_output=True, text=True, check=True)
    exit_code, *modules = done.stdout.split()
    return int(exit_code), set(modules)


STATE = '{"id": "c1", "pid": %d, "annotations": {"j10ce.io/floor": "none"}}'


def test_loads_nothing_else(python: Path, code: Path, tmp_path: Path) -> None:
    """A refusal goes through all of it: state, target, decision, marker."""
    exit_code, modules = loaded(python, code, tmp_path / "run", STATE % os.getpid())
    foreign = {name for name in modules if name.partition(".")[0] not in imports.OURS} - PLATFORM
    assert exit_code == 0
    assert not foreign
    assert {"hook.program", "kernel.apply", "kernel.cache", "kernel.target"} <= modules


def test_the_bundle_has_all_that_is_loaded(system_python: Path, code: Path, tmp_path: Path) -> None:
    state = STATE % os.getpid()
    _, bundled = loaded(system_python, code, tmp_path / "run", state)
    plain_code = shutil.copytree(code, tmp_path / "plain")
    next(plain_code.glob("*.bundle")).unlink()
    _, plain = loaded(system_python, plain_code, tmp_path / "run", state)
    assert plain - bundled == {imports.ENTRY_MODULE}  # which is run from the bundle, and imported without
    order = [module for module, _ in imports.load_order(imports.sources())]
    assert set(order[1:]) <= bundled
    assert (order[0], order[-1]) == (imports.ENTRY_MODULE, imports.PROGRAM)


def test_the_entry_spells_the_bundles_name_as_its_maker_does(
    python: Path, code: Path, tmp_path: Path
) -> None:
    imported, named = ENTRY.splitlines()[:2]
    assert (imported[:7], named[:9]) == ("import ", "bundle = ")
    lines = ["import sys", "sys.path.insert(0, sys.argv[1])", named, "print(bundle)"]
    naming = "\n".join([*lines, "from hook import boot", "print(boot.bundle())"])
    argv = [str(python), "-I", "-S", "-B", "-c", naming, str(code)]
    spelled, made = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert spelled == f"{code}/{made}"


def test_marshal_is_there_before_us(python: Path) -> None:
    argv = [str(python), "-I", "-S", "-c", "import sys; print('marshal' in sys.modules)"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "True\n"


def test_every_source_is_found_and_no_other() -> None:
    files = imports.sources()
    assert {"hook/__init__.py", "hook/boot.py", "hook/program.py", "kernel/__init__.py"} <= set(files)
    assert not [path for path in files if "installation" in path or "commands" in path]


def test_a_foreign_import_stops_the_installation(tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "__init__.py").write_text("")
    for text in ("import json", "def f():\n    from os import path", "from . import x"):
        (tmp_path / "hook" / "boot.py").write_text(text)
        with pytest.raises(InstallationError, match=r"hook\.boot imports .*, which the hook must not"):
            imports.sources(tmp_path)


def test_an_import_for_types_only_does_not(tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "__init__.py").write_text("")
    (tmp_path / "hook" / "boot.py").write_text(
        "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    import typing\n"
    )
    assert set(imports.sources(tmp_path)) == {"hook/__init__.py", "hook/boot.py"}
