"""Which Python runs the hook: the system's, never a shim or a virtual environment, changed by root alone."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from hook.installation import interpreter
from hook.installation.errors import InstallationError

pytestmark = pytest.mark.program

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root owns what the hook may run")


@root_only
def test_the_systems_python_is_chosen() -> None:
    found = interpreter.choose(None)
    assert str(found.path) in interpreter.CANDIDATES
    assert found.version >= interpreter.OLDEST
    assert str(found) == f"{found.path} ({'.'.join(map(str, found.version))})"


@root_only
def test_each_python_can_be_asked_for(python: Path) -> None:
    found = interpreter.choose(python)
    assert python.name == f"python{found.version[0]}.{found.version[1]}"


@root_only
def test_a_virtual_environment_is_refused() -> None:
    with pytest.raises(InstallationError, match="is a virtual environment's"):
        interpreter.examine(Path(sys.prefix) / "bin" / "python")


@root_only
def test_a_version_shim_is_refused(tmp_path: Path) -> None:
    shim = tmp_path / "python3"
    shim.write_text('#!/bin/sh\nexec /usr/bin/python3 "$@"\n')
    shim.chmod(0o755)
    with pytest.raises(InstallationError, match="starts another Python"):
        interpreter.examine(shim)


@root_only
def test_what_others_could_change_is_refused(tmp_path: Path) -> None:
    copy = Path(shutil.copy(interpreter.choose(None).path.resolve(), tmp_path / "python3"))
    copy.chmod(0o777)
    with pytest.raises(InstallationError, match="can be changed by others"):
        interpreter.examine(copy)


@root_only
def test_an_old_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    path = interpreter.choose(None).path
    monkeypatch.setattr(interpreter, "OLDEST", (99, 0))
    with pytest.raises(InstallationError, match=r"is Python 3\.\d+\.\d+: the hook needs"):
        interpreter.examine(path)


@pytest.mark.parametrize(("path", "why"), [("python3", "no absolute path"), ("/no/such", "No such file")])
def test_what_is_not_there_is_refused(path: str, why: str) -> None:
    with pytest.raises(InstallationError, match=why):
        interpreter.examine(Path(path))


def test_nothing_fit_names_every_fault(tmp_path: Path) -> None:
    shim = tmp_path / "python3"
    shim.write_text("#!/bin/sh\n")
    with pytest.raises(InstallationError, match=r"no Python for the hook: .*starts another.*--python"):
        interpreter.choose(None, [str(shim)])
    with pytest.raises(InstallationError, match="none of /no/python3 is there"):
        interpreter.choose(None, ["/no/python3"])
