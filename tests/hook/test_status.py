"""`j10ce hook status`: what is said of a node, sound and damaged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hook.installation.install import Wishes, install
from hook.installation.places import Places
from hook.installation.status import Severity, status

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(os.geteuid() != 0, reason="the hook is root's to install"),
]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    made = Places(tmp_path / "node")
    install(made, Wishes())
    return made


def facts(places: Places, name: str) -> list[tuple[Severity, str]]:
    return [(fact.severity, fact.text) for fact in status(places) if fact.name == name]


def test_a_sound_installation(places: Places) -> None:
    found = status(places)
    assert not [fact for fact in found if fact.severity is Severity.WRONG]
    names = {fact.name for fact in found}
    assert {"code", "interpreter", "hooks.d", "settings", "entries"} <= names


def test_nothing_installed(tmp_path: Path) -> None:
    ((severity, text),) = facts(Places(tmp_path), "installed")
    assert (severity, "j10ce hook install" in text) == (Severity.WRONG, True)


@pytest.mark.parametrize(
    ("path", "content", "name", "severity", "said"),
    [
        ("tree/hook/program.py", "x", "code", Severity.WRONG, "hook/program.py missing or changed"),
        ("hooks/j10ce.json", "{", "hooks.d", Severity.WRONG, "podman and CRI-O start no container with it"),
        ("hooks/other.json", "{", "hooks.d", Severity.NOTE, "podman and CRI-O start no container with it"),
        ("etc/j10ce/hook.conf", "fail close", "settings", Severity.WRONG, "is no setting of the hook"),
        ("etc/j10ce/hook.conf", "fail closed", "settings", Severity.GOOD, "fail closed, budget 200 ms"),
        ("run/j10ce/missed/c1", "", "missed", Severity.NOTE, "1 containers started without"),
        ("run/j10ce/floors/web", "", "entries", Severity.GOOD, "0 pods, 1 floors, 0 defaults"),
        ("tree-of-old/hook/x.py", "", "older code", Severity.NOTE, "tree-of-old"),
    ],
)
def test_each_fault_is_said(
    places: Places, path: str, content: str, name: str, severity: Severity, said: str
) -> None:
    code = next(path for path in places.home.iterdir() if path.is_dir())
    folder, _, rest = path.partition("/")
    start = {"tree": code, "hooks": places.definition.parent, "tree-of-old": places.home / "tree-of-old"}
    file = start[folder] / rest if folder in start else places.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    file.chmod(0o600)
    assert any(found == severity and said in text for found, text in facts(places, name)), facts(places, name)


def test_a_missing_definition(places: Places) -> None:
    places.definition.unlink()
    assert facts(places, "hooks.d") == [
        (Severity.WRONG, f"{places.definition} is missing; `j10ce hook install`")
    ]


def test_bytecode_of_another_python(places: Places) -> None:
    """As after an upgrade of the system: the hook works, but slower."""
    next(places.home.rglob("*.bundle")).unlink()
    ((severity, text),) = facts(places, "interpreter")
    assert severity is Severity.NOTE
    assert "install again" in text


@pytest.mark.parametrize(
    "name", ["*.bundle", "hook/__pycache__/boot.*.pyc", "kernel/__pycache__/apply.*.pyc"]
)
@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_damaged_bytecode(places: Places, name: str, content: bytes) -> None:
    """The interpreter does not look at the sources beside it: no container would get its floor."""
    (path,) = places.home.glob(f"*/{name}")
    path.write_bytes(content)
    ((severity, text),) = facts(places, "code")
    assert (severity, path.name in text) == (Severity.WRONG, True)
    install(places, Wishes())
    ((severity, text),) = facts(places, "code")
    assert severity is Severity.GOOD


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda hook: hook["args"].__setitem__(5, "/usr/libexec/j10ce/gone"), "hook.args not as"),
        (lambda hook: hook["args"].__setitem__(4, "pass"), "hook.args not as"),
        (lambda hook: hook.__setitem__("path", "/usr/bin/python3.2"), "hook.path not as"),
        (lambda hook: hook.pop("timeout"), "hook.timeout not as"),
    ],
)
def test_a_definition_that_is_not_as_installed(
    places: Places, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    document = json.loads(places.definition.read_text())
    change(document["hook"])
    places.definition.write_text(json.dumps(document))
    assert any(severity is Severity.WRONG and said in text for severity, text in facts(places, "hooks.d"))


def test_a_definition_in_both_folders(places: Places) -> None:
    other = Places(places.root, "/etc/containers/oci/hooks.d").definition
    other.parent.mkdir(parents=True)
    shutil.copy(places.definition, other)
    assert any(
        severity is Severity.WRONG and "hides the other" in text
        for severity, text in facts(places, "hooks.d")
    )


def test_a_definition_as_it_was_wished(tmp_path: Path) -> None:
    places = Places(tmp_path / "node")
    install(places, Wishes(when="floor", stage="prestart"))
    assert not [fact for fact in status(places) if fact.severity is Severity.WRONG]


def test_a_folder_that_podman_does_not_read(tmp_path: Path) -> None:
    places = Places(tmp_path / "node", "/etc/containers/oci/hooks.d")
    install(places, Wishes())
    assert any("only with --hooks-dir" in text for _, text in facts(Places(places.root), "hooks.d"))
