"""What is installed: each package has one owner, console scripts start, the wheel works away from here."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
SCRIPTS: dict[str, str] = PROJECT["project"]["scripts"]


def run(*argv: str | Path, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in argv], cwd="/", capture_output=True, text=True, timeout=seconds, check=False
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_installs_our_packages(package: str) -> None:
    owners = set()
    for distribution in metadata.distributions():
        names = {file.parts[0] for file in distribution.files or [] if len(file.parts) > 1}
        if package in names:
            owners.add(distribution.name)
    assert owners <= {"j10ce-qos"}


def test_lint_types_and_layers_know_the_same_packages() -> None:
    tool = PROJECT["tool"]
    typed = [package for package in tool["mypy"]["packages"] if package != "benchmarks"]  # not installed
    assert typed == tool["importlinter"]["root_packages"] == PACKAGES
    assert tool["ruff"]["lint"]["isort"]["known-first-party"] == PACKAGES


def test_tests_hold_no_packages() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_constraints_pin_every_dependency_and_name_no_host() -> None:
    text = (ROOT / "constraints.txt").read_text()
    pinned = {line.partition("==")[0] for line in text.splitlines()}
    wanted = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["dev"]
    assert {name.replace(".", "-") for name in wanted} <= pinned  # names as PEP 503 normalises them
    assert "://" not in text
    assert "--" not in text


@pytest.mark.parametrize("script", [name for name in SCRIPTS if not name.startswith("kubectl_complete")])
def test_console_scripts_start(script: str) -> None:
    done = run(Path(sysconfig.get_path("scripts")) / script, "--help", seconds=60)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout or "usage" in done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", folder, ROOT),
    )
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_what_programs_read(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {"lab/gomodule/go.mod", "lab/gomodule/go.sum", "lab/nodemodule/go.mod", "lab/nodemodule/go.sum"}
    modules |= {"lab/karpentermodule/go.mod", "lab/karpentermodule/go.sum"}
    programs = {"lab/nodemodule/hook-injector/main.go", "lab/karpentermodule/definitions/main.go"}
    assert modules | programs <= names
    bpf = {
        f"agent/network/bpf/objects/{name}" for name in ("objects.json", "classify.o", "count.o", "police.o")
    }
    assert bpf <= names
    assert any(name.startswith("manifests/crds/") and name.endswith(".yaml") for name in names)
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == set(PACKAGES)
