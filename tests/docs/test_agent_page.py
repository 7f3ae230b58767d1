"""docs/agent.md: names every option and variable, and the files that it names are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import typer.main

from agent import commands
from agent.enforcement.originals import NAME as ORIGINALS
from agent.measuring import BUDGETS
from agent.sync.store import NAME as KNOWN

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "agent.md").read_text()


def test_it_names_every_option_and_variable() -> None:
    parameters = typer.main.get_command(commands.app).params
    names = {name for one in parameters for name in one.opts}
    names |= {str(one.envvar) for one in parameters if one.envvar}
    assert not {name for name in names if f"`{name}`" not in PAGE}


def test_the_options_of_the_unit_are_options() -> None:
    known = {name for one in typer.main.get_command(commands.app).params for name in one.opts}
    lines = re.findall(r"^(?:# )?J10CE_AGENT_OPTIONS=(.*)$", PAGE, re.MULTILINE)
    assert len(lines) == 2
    given = {word for line in lines for word in shlex.split(line) if word.startswith("--")}
    assert given == {"--node", "--kubeconfig", "--standalone"}
    assert given <= known


def test_the_files_it_names_are_those_of_the_code() -> None:
    for name in (f"/run/j10ce/{ORIGINALS}", f"/agent/{KNOWN}", f"/agent/{BUDGETS}"):
        assert f"{name}`" in PAGE
    parts = set(re.findall(r"`((?:agent|qos|manifests)/[\w./-]+)`", PAGE))
    assert len(parts) > 10
    assert not {part for part in parts if not (ROOT / part).exists()}
