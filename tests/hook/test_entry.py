"""The hooks.d file: what we write fits the 1.0.0 schema, what would break a node does not."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hook.installation import entry, runtimes
from hook.installation.places import Places
from hook.installation.runtimes import Runtime

OURS = entry.oci(Path("/usr/bin/python3"), Path("/usr/libexec/j10ce/x"), Places())


def ours(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(entry.definition(OURS, entry.CONDITIONS["always"], entry.CREATE_RUNTIME)) | changes


@pytest.mark.parametrize("when", entry.CONDITIONS.values(), ids=entry.CONDITIONS)
@pytest.mark.parametrize("stage", [entry.CREATE_RUNTIME, entry.PRESTART])
def test_ours_is_valid(when: dict[str, Any], stage: str) -> None:
    assert not entry.faults(entry.text(entry.definition(OURS, when, stage)))


def test_ours_keeps_the_contract() -> None:
    assert OURS["path"] == "/usr/bin/python3"
    assert OURS["args"][:4] == ["python3", "-I", "-S", "-c"]
    assert OURS["args"][5:] == ["/usr/libexec/j10ce/x", "/run/j10ce", "/etc/j10ce/hook.conf"]
    assert OURS["timeout"] == 2
    assert OURS["env"]


def test_the_entry_compiles_and_is_ascii() -> None:
    compile(entry.ENTRY, "entry", "exec")
    assert entry.ENTRY.isascii()


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", r"\$: "),
        (ours(version="0.1.0"), r"\$\.version"),
        (ours(hook={"args": ["x"]}), r"\$\.hook: 'path' is a required property"),
        (ours(hook=OURS | {"path": "python3"}), r"\$\.hook\.path"),
        (ours(hook=OURS | {"args": []}), r"\$\.hook\.args"),
        (ours(hook=OURS | {"env": ["PATH"]}), r"\$\.hook\.env\[0\]"),
        (ours(hook=OURS | {"timeout": 0}), r"\$\.hook\.timeout"),
        (ours(hook=OURS | {"timeout": "2"}), r"\$\.hook\.timeout"),
        (ours(when={}), r"\$\.when"),
        (ours(when={"annotation": {}}), r"\$\.when: Additional properties"),
        (ours(when={"always": "yes"}), r"\$\.when\.always"),
        (ours(stages=[]), r"\$\.stages"),
        (ours(stages=["createRuntime", "createRuntime"]), r"\$\.stages"),
        (ours(stages=["create"]), r"\$\.stages\[0\]"),
        ({key: value for key, value in ours().items() if key != "stages"}, r"'stages' is a required"),
    ],
)
def test_a_malformed_file_is_named(document: object, where: str) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    faults = entry.faults(text)
    assert faults
    assert any(re.search(where, fault) for fault in faults), faults


@pytest.mark.parametrize(
    ("name", "said", "version", "old"),
    [
        ("runc", "runc version 1.1.5+ds1\nspec: 1.0.2-dev\n", (1, 1, 5), False),
        ("runc", "runc version 1.0.0-rc10\nspec: 1.0.1-dev\n", (1, 0, 0), True),
        ("runc", "runc version 1.0.0\n", (1, 0, 0), False),
        ("crun", "crun version 1.8.1\ncommit: x\nspec: 1.0.0\n", (1, 8, 1), False),
        ("crun", "crun version 0.10.6\n", (0, 10, 6), True),
        ("crun", "", (), False),
        ("podman", "podman version 0.1.0\n", (0, 1, 0), False),
        ("containerd", "containerd github.com/containerd/containerd v1.7.24 abc\n", (1, 7, 24), False),
    ],
)
def test_the_stage_follows_the_runtimes_age(
    name: str, said: str, version: tuple[int, ...], old: bool
) -> None:
    found = Runtime(name, Path("/x"), *runtimes.parse_version(said))
    assert found.version == version
    assert found.ignores_create_runtime is old
    modern = Runtime("runc", Path("/y"), (1, 2, 3))
    assert runtimes.stage([modern, found]) == (entry.PRESTART if old else entry.CREATE_RUNTIME)
