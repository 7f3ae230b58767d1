"""j10ce dev generate."""

from __future__ import annotations

import shutil
from pathlib import Path

from typer.testing import CliRunner

from agent.network.bpf import objects
from cli.dev import app, out_of_date


def test_writes_what_is_missing_and_then_finds_nothing_to_do(tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["generate", "--check", "--root", str(tmp_path)]).exit_code == 1
    assert not list(tmp_path.iterdir())
    assert runner.invoke(app, ["generate", "--root", str(tmp_path)]).exit_code == 0
    assert runner.invoke(app, ["generate", "--check", "--root", str(tmp_path)]).exit_code == 0


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    runner = CliRunner()
    runner.invoke(app, ["generate", "--root", str(tmp_path)])
    changed = next((tmp_path / "manifests" / "crds").glob("*.yaml"))
    changed.write_text(changed.read_text() + "# by hand\n")
    done = runner.invoke(app, ["generate", "--check", "--root", str(tmp_path)])
    assert done.exit_code == 1
    assert changed.name in done.output
    assert "-# by hand" in done.output


def test_out_of_date_compares_content(tmp_path: Path) -> None:
    (tmp_path / "same").write_text("a")
    (tmp_path / "other").write_text("b")
    wanted = {"same": "a", "other": "a", "missing": "a"}
    assert set(out_of_date(wanted, tmp_path)) == {"other", "missing"}


def test_a_changed_bpf_source_is_named_without_a_compiler(tmp_path: Path) -> None:
    folder = tmp_path / "agent" / "network" / "bpf"
    for name in (objects.SOURCES, objects.OBJECTS):
        shutil.copytree(objects.FOLDER / name, folder / name)
    runner = CliRunner(env={"PATH": ""})
    assert runner.invoke(app, ["bpf", "--check", "--root", str(tmp_path)]).exit_code == 0
    source = folder / objects.SOURCES / "classify.c"
    source.write_text(source.read_text() + "\n")
    done = runner.invoke(app, ["bpf", "--check", "--root", str(tmp_path)])
    assert done.exit_code == 1
    assert "sources/classify.c; run `make bpf`" in done.output
