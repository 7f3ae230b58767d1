"""`j10ce budgets`: what budgets' and policies' status says, as tables and as JSON."""

from __future__ import annotations

import json
import stat
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cli.app import app
from cli.budgets import exceeding, rows, show

AMOUNT = {"resource": "cpu", "used": "38", "hard": "40", "left": "2"}
GOLD: dict[str, Any] = {
    "metadata": {"name": "gold"},
    "status": {
        "total": [AMOUNT | {"hard": "200", "left": "162"}],
        "perNamespace": [{"name": "shop", "amounts": [AMOUNT]}, {"name": "yard", "amounts": [AMOUNT]}],
    },
}
FRESH = {"metadata": {"name": "fresh"}}
TEXT = "budget gold, namespace shop: cpu: 8 asked, 38 of 40 used by policies that come first, 2 left"
UNPLACED = [
    {"count": 3, "reason": "BudgetExceeded", "resource": "cpu", "missing": "6", "message": TEXT},
    {"count": 1, "reason": "Insufficient"},
]
POLICY = {"metadata": {"namespace": "shop", "name": "a"}, "status": {"unplaced": UNPLACED}}


def test_all_together_first_then_each_namespace() -> None:
    found = [(row.budget, row.namespace, row.hard) for row in rows([GOLD, FRESH])]
    assert found == [("gold", "", "200"), ("gold", "shop", "40"), ("gold", "yard", "40")]
    assert [row.namespace for row in rows([GOLD, FRESH], "yard")] == ["yard"]


def test_who_asks_for_more_and_why() -> None:
    (one,) = exceeding([POLICY, {"metadata": {"namespace": "shop", "name": "b"}}])
    assert (one.policy, one.slots, one.message) == ("shop/a", 3, TEXT)


def test_tables_are_readable() -> None:
    out = StringIO()
    show(list(rows([GOLD])), list(exceeding([POLICY])), Console(file=out, width=100))
    said = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert said[1:] == [
        "gold (all) cpu 38 200 162",
        "gold shop cpu 38 40 2",
        "gold yard cpu 38 40 2",
        f"shop/a: 3 slots not given: {TEXT}",
    ]


def test_json_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = tmp_path / "kubectl"
    answers = {
        "reservationbudgets": {"kind": "List", "items": [GOLD]},
        "minimal": {"kind": "List", "items": [POLICY]},
    }
    lines = [f"case \"$*\" in *{word}*) echo '{json.dumps(said)}';; esac" for word, said in answers.items()]
    kubectl.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("J10CE_BIN", str(tmp_path))
    done = CliRunner().invoke(app, ["budgets", "-o", "json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert document["budgets"][0] == {
        "budget": "gold",
        "namespace": "",
        "resource": "cpu",
        "used": "38",
        "hard": "200",
        "left": "162",
    }
    assert document["exceeding"][0]["policy"] == "shop/a"
