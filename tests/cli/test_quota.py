"""`j10ce quota tree`: what the API server has, as a picture and as JSON."""

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
from cli.quota import held
from cli.quota_table import LEGEND, bar, owed, rows, show
from qos import keys
from quota.account import Standing
from tests.quota.builders import GIB, account, pod, quota

Object = dict[str, Any]


def drawn(*quotas: Any, pods: tuple[Any, ...] = (), cpu: int = 100_000) -> list[str]:
    one = account({"cpu": cpu, "memory": 100 * GIB}, quotas)
    for each in pods:
        one.count(each)
    out = StringIO()
    show(rows(one), owed(one), Console(file=out, width=150))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_picture() -> None:
    lines = drawn(
        quota("web", {"cpu": 80_000}, {"cpu": 40_000}, is_parent=True),
        quota("shop", {"cpu": 40_000}, {"cpu": 20_000}, parent="web"),
        quota("blog", {"cpu": 40_000}, {"cpu": 20_000}, parent="web"),
        quota("data", {"cpu": 100_000}, {"cpu": 50_000}),
        pods=(
            pod("a", {"cpu": 30_000}, of="shop", node="n"),
            pod("b", {"cpu": 30_000}, of="blog"),
            pod("c", {"cpu": 60_000}, of="data", node="n"),
            pod("d", {"cpu": 5_000}, node="n"),
        ),
    )
    assert [" ".join(line.split()) for line in lines] == [
        "quota resource taken runtime min max",
        "all nodes cpu ███████████████████░ 95 100 0 100",
        "├─ quotas/data cpu ██████████|██········ 60 52778m 50 100 borrowed 10, due 7222m",
        "├─ quotas/web cpu ████████░░|░········· 30 42222m 40 80 owed 10",
        "│ ├─ quotas/blog cpu ░░░░░░░░░░|░········· 0 21111m 20 40 owed 20",
        "│ └─ quotas/shop cpu ██████████|█████····· 30 21111m 20 40 borrowed 10, due 8889m",
        "└─ koordinator-default-quota cpu 5 - 0 -",
        " ".join(LEGEND.split()),
        "",
        "quotas/data has 5 of cpu that is owed to quotas/web",
        "quotas/shop has 7778m of cpu that is owed to quotas/blog",
    ]


@pytest.mark.parametrize(
    ("standing", "picture"),
    [
        (Standing(0, 0, 0, 0, 10, 0, 0), "····················"),
        (Standing(0, 5, 0, 0, 10, 0, 5), "██████████··········"),
        (Standing(0, 2, 3, 0, 10, 0, 8), "████▓▓▓▓▓▓░░░░░░····"),
        (Standing(0, 2, 0, 5, 10, 5, 8), "████░░░░░░|░░░░░░····"),
        (Standing(0, 12, 0, 5, 10, 5, 8), "████████|████████████"),
        (Standing(0, 5, 0, 0, None, 0, None), ""),
        (Standing(0, 0, 0, 0, 0, 0, 0), ""),
    ],
)
def test_bars(standing: Standing, picture: str) -> None:
    assert bar(standing) == picture


def test_problems_are_told() -> None:
    lines = drawn(
        quota("shop", {"cpu": 40_000}, {"cpu": 50_000}), quota("blog", {"cpu": 1_000}, parent="gone")
    )
    assert "quotas/shop: spec.min.cpu: 50 is more than its max, 40: lower min, or raise max" in lines
    assert any(
        line.startswith("quotas/blog: metadata.labels[") and "gone is no quota" in line for line in lines
    )


def test_without_quotas() -> None:
    assert drawn() == ["There is no ElasticQuota."]


def test_what_policies_hold() -> None:
    def policy(slots: int, labels: Object) -> Object:
        slot = [{"resource": "cpu", "quantity": "1500m"}, {"resource": "pods", "quantity": "1"}]
        return {
            "metadata": {"namespace": "shop", "name": "checkout"},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"slots": {"held": slots}, "slot": slot},
        }

    (one,) = held([policy(3, {"app": "x", keys.QUOTA_NAME_LABEL: "gold"})])
    assert one == ("shop/checkout", ("shop", "gold"), {"cpu": 4500, "pods": 3})
    assert [origin for _, origin, _ in held([policy(1, {})])] == [("shop", "")]
    assert list(held([policy(0, {}), {"metadata": {"namespace": "a", "name": "b"}, "spec": {}}])) == []


def kubectl(folder: Path, answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers with these lists, and knows no other kind."""
    program = folder / "kubectl"
    cases = "".join(
        f"*' {kind} '*) echo '{json.dumps({'kind': 'List', 'items': items})}';;\n"
        for kind, items in answers.items()
    )
    unknown = '*) echo "error: the server doesn\'t have a resource type" >&2; exit 1;;'
    program.write_text(f'#!/bin/sh\ncase " $* " in\n{cases}{unknown}\nesac\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("J10CE_BIN", str(folder))


def test_json_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}]}
    labels = {keys.QUOTA_NAME_LABEL: "gold"}
    answers = {
        "elasticquotas.scheduling.sigs.k8s.io": [
            {
                "metadata": {"name": "gold", "namespace": "teams"},
                "spec": {"min": {"cpu": 1}, "max": {"cpu": "4"}},
            }
        ],
        "nodes": [{"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}}],
        "pods": [
            {
                "metadata": {"name": "a", "namespace": "shop", "uid": "u", "labels": labels},
                "spec": requests | {"nodeName": "n"},
            }
        ],
    }
    kubectl(tmp_path, answers, monkeypatch)
    done = CliRunner().invoke(app, ["quota", "tree", "-o", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["debts"] == []
    (one,) = json.loads(done.output)["quotas"]
    assert (one["quota"], one["tree"], one["parent"], one["problems"]) == ("teams/gold", "", "", [])
    (cpu,) = [each for each in one["resources"] if each["resource"] == "cpu"]
    assert cpu == {
        "resource": "cpu",
        "request": "500m",
        "used": "500m",
        "held": "0",
        "min": "1",
        "max": "4",
        "guaranteed": "1",
        "runtime": "500m",
        "lent": "500m",
        "borrowed": "0",
        "owed": "0",
        "due": "0",
    }


def test_a_cluster_without_such_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl(tmp_path, {"nodes": [], "pods": []}, monkeypatch)
    done = CliRunner().invoke(app, ["quota", "tree"])
    assert (done.exit_code, done.output) == (0, "There is no ElasticQuota.\n")
