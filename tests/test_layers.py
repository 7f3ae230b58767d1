"""The import contracts of pyproject.toml are not vacuous: each is seen to fail on a planted violation."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONFIGURATION = PROJECT["tool"]["importlinter"]
PACKAGES: list[str] = CONFIGURATION["root_packages"]

VIOLATIONS = {
    "layers": ("qos/keys.py", "import adapters.api"),
    "rooms": ("qos/cluster/selectors.py", "import qos.plan.node"),
    "plan": ("extender/view.py", "import qos.plan.node"),
    "agent": ("agent/state.py", "import numpy"),
    "programs": ("extender/__init__.py", "import lab.cluster"),
    "checker": ("lab/checker.py", "import ledger.decisions"),
    "pure": ("ledger/decisions.py", "import time"),
    "api": ("ledger/decisions.py", "import qos.api.policy"),
    "kubernetes": ("lab/nodes.py", "import kubernetes"),
    "hook": ("kernel/lists.py", "import os"),
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


def test_the_hooks_contract_names_all_that_the_hook_runs_and_all_dependencies() -> None:
    contract = next(contract for contract in CONFIGURATION["contracts"] if contract["id"] == "hook")
    modules = {f"hook.{path.stem}" for path in (ROOT / "hook").glob("*.py")}
    assert set(contract["source_modules"]) == modules - {"hook.__init__", "hook.commands"} | {"kernel"}
    dependencies = {name.partition(".")[0].replace("-", "_") for name in PROJECT["project"]["dependencies"]}
    assert dependencies <= set(contract["forbidden_modules"])


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
