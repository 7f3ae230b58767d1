"""The real kube-scheduler takes each configuration, strictly: unknown fields and wrong values are refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

pytestmark = pytest.mark.cluster

FOLDER = Path(__file__).parents[2] / "scheduler-config"


def validate(binaries: Any, path: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Read, default and validate as at a start, write what came of it, and exit."""
    return subprocess.run(
        [
            str(binaries.files["kube-scheduler"]),
            f"--config={path}",
            f"--write-config-to={out}",
            "--master=http://127.0.0.1:1",
            "--secure-port=0",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.yaml")))
def test_kube_scheduler_takes_it(name: str, binaries: Any, tmp_path: Path) -> None:
    document = YAML(typ="safe").load(FOLDER / name)
    document.get("clientConnection", {}).pop("kubeconfig", None)
    path, out = tmp_path / "in.yaml", tmp_path / "out.yaml"
    YAML(typ="safe").dump(document, path)
    done = validate(binaries, path, out)
    assert done.returncode == 0, done.stderr
    made = YAML(typ="safe").load(out)
    assert [entry.get("bindVerb", "") for entry in made["extenders"]] == ["", "bind"]
    assert [entry["httpTimeout"] for entry in made["extenders"]] == ["300ms", "2s"]
    ignorable = [entry.get("ignorable", False) for entry in made["extenders"]]
    assert ignorable == ([False, False] if name == "strict.yaml" else [True, True])


def test_it_would_refuse_a_misspelt_field(binaries: Any, tmp_path: Path) -> None:
    path = tmp_path / "in.yaml"
    path.write_text((FOLDER / "strict.yaml").read_text().replace("filterVerb", "filtersVerb"))
    done = validate(binaries, path, tmp_path / "out.yaml")
    assert done.returncode != 0
    assert "filtersVerb" in done.stderr
