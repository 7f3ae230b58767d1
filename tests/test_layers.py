"""The import contracts of pyproject.toml are not vacuous: each is seen to fail on a planted violation."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
PACKAGES: list[str] = CONFIGURATION["root_packages"]

VIOLATIONS = {
    "layers": ("qos/keys.py", "import adapters.api"),
    "programs": ("extender/__init__.py", "import lab.cluster"),
    "checker": ("lab/checker.py", "import ledger.decisions"),
    "pure": ("ledger/decisions.py", "import time"),
    "api": ("ledger/decisions.py", "import qos.api.policy"),
    "kubernetes": ("lab/nodes.py", "import kubernetes"),
    "pydantic": ("lab/nodes.py", "import pydantic"),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's packages and configuration, free to be changed."""
    folder = tmp_path_factory.mktemp("layers")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "gomodule")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(folder: Path, contract: str) -> subprocess.CompletedProcess[str]:
    program = Path(sysconfig.get_path("scripts")) / "lint-imports"
    argv = [str(program), "--no-cache", "--no-logo", "--contract", contract]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_every_contract_has_a_planted_violation() -> None:
    assert {contract["id"] for contract in CONFIGURATION["contracts"]} == set(VIOLATIONS)


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_a_planted_violation_breaks_its_contract(copy: Path, contract: str) -> None:
    name, line = VIOLATIONS[contract]
    module = copy / name
    before = module.read_text()
    module.write_text(f"{before}\n{line}\n")
    try:
        done = lint(copy, contract)
    finally:
        module.write_text(before)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 broken" in done.stdout
