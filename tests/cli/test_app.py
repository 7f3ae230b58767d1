"""The root command: lazy, one line for expected errors, kubectl's plugin."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from cli import app
from lab.cluster import LabError

pytestmark = pytest.mark.program

J10CE = Path(sysconfig.get_path("scripts")) / "j10ce"


def run(*arguments: str, program: Path = J10CE) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_help_lists_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(entry.name in done.stdout for entry in app.ENTRIES)


def test_help_imports_no_program() -> None:
    code = (
        "import sys, json; sys.argv = ['j10ce', '--help']\n"
        "from cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.stderr.write(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stderr)}
    assert not loaded & {
        "lab",
        "extender",
        "adapters",
        "kubernetes",
        "pydantic",
        "numpy",
        "aiohttp",
        "fastapi",
    }


@pytest.mark.parametrize("entry", app.ENTRIES, ids=lambda entry: entry.name)
def test_every_command_can_be_loaded(entry: app.Entry) -> None:
    assert app.load(entry.target) is not None


def test_version() -> None:
    assert run("--version").stdout.startswith("j10ce-qos ")


@pytest.mark.parametrize("arguments", [["no-such-command"], ["lab", "up", "--no-such-option"]])
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""


def test_an_expected_error_is_one_line_and_ends_with_1() -> None:
    done = run("lab", "down", "--name", "no-such-cluster")
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no lab cluster 'no-such-cluster'")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("module", "name"), app.EXPECTED)
def test_every_expected_error_exists(module: str, name: str) -> None:
    assert issubclass(getattr(importlib.import_module(module), name), Exception)


def test_expected_and_unexpected_errors() -> None:
    assert app.is_expected(LabError("x"))
    assert not app.is_expected(KeyError("x"))


def test_named_as_it_was_called() -> None:
    assert app.program_name("/usr/bin/kubectl-j10ce") == "kubectl j10ce"
    assert app.program_name("/usr/bin/j10ce") == "j10ce"


@pytest.mark.parametrize(
    ("words", "expected"),
    [([""], "lab"), (["lab", ""], "status"), (["lab", "up", "--sch"], "--scheduler-config")],
)
def test_kubectl_completes_its_plugin(words: list[str], expected: str) -> None:
    done = run(*words, program=J10CE.with_name("kubectl_complete-j10ce"))
    lines = done.stdout.splitlines()
    assert expected in lines
    assert lines[-1] == ":4"
