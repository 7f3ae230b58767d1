"""docs/monitoring.md says what the code says. UPDATE_DOCS=1 writes the generated tables anew."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from ruamel.yaml import YAML

from agent.deficit import budget, judge
from agent.deficit.tally import Tally
from agent.monitor import delays, monitor, node
from agent.monitor.metrics import MonitorCollector
from agent.monitor.monitor import Monitor
from agent.network import metering
from agent.network.metrics import NetworkCollector

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Metrics as a fresh agent has them, by the name that /metrics shows."""
    registry = CollectorRegistry()
    empty = Monitor({"": "/"}, str(tmp_path_factory.mktemp("proc")))
    MonitorCollector(empty, Tally(), registry)
    NetworkCollector(lambda: None, dict, registry)
    found = {f"{one.name}_total" if one.type == "counter" else one.name: one for one in registry.collect()}
    empty.close()
    return found


def with_tables(text: str, families: dict[str, Any]) -> str:
    metrics = [
        (f"`{name}`", one.type, ", ".join(f"`{label}`" for label in one._labelnames), one.documentation)
        for name, one in sorted(families.items())
    ]
    levels = [(name, f"{some:.0%}", f"{high:.0%}") for name, (some, high) in node.LEVELS.items()]
    for name, content in (
        ("metrics", table(("metric", "type", "labels", "what it is"), metrics)),
        ("levels", table(("resource", "Some from", "High from"), levels)),
    ):
        place = re.search(rf"<!-- {name}: [^>]*-->\n(.*?)<!-- end -->", text, re.DOTALL)
        assert place, f"no place for {name} in {PAGE}"
        text = f"{text[: place.start(1)]}{content}\n{text[place.end(1) :]}"
    return text


def test_the_generated_tables_are_up_to_date(families: dict[str, Any]) -> None:
    text = PAGE.read_text()
    expected = with_tables(text, families)
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(expected)
    else:
        assert text == expected, "run UPDATE_DOCS=1 pytest tests/agent/monitor/test_documentation.py"


def rules() -> list[dict[str, Any]]:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (group,) = YAML(typ="safe").load(block)["groups"]
    assert set(group) == {"name", "rules"}
    return list(group["rules"])


def test_the_alerts_use_metrics_that_there_are(families: dict[str, Any]) -> None:
    assert {rule["alert"] for rule in rules()} == {
        "FloorBudgetBurnsFast",
        "FloorBudgetBurns",
        "FloorsNotMeasured",
    }
    for rule in rules():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        named = set(re.findall(r"j10ce_\w+", rule["expr"]))
        assert named
        assert named <= set(families)
        assert rule["expr"].count("(") == rule["expr"].count(")")
    assert set(re.findall(r"j10ce_agent_\w+", PAGE.read_text())) <= set(families)


def test_the_figures_are_those_of_the_code() -> None:
    text = " ".join(PAGE.read_text().split())
    for said in (
        f"less than {judge.RECEIVED:.0%} of it".replace("%", " %"),
        f"at least {judge.WANTED:.0%} of the part of its floor".replace("%", " %"),
        f"less than {judge.RECEIVED_NETWORK:.0%} of the floor".replace("%", " %"),
        f"every {metering.GLANCE_SECONDS * 1000:g} ms or so",
        f"more than {judge.LONGEST_SECONDS:g} s without a look",
        f"at least {judge.STALLED:.0%} of the interval".replace("%", " %"),
        f"at least {judge.REFAULTS:g} pages a second",
        f"at most every {delays.SETTLE_SECONDS:g} s",
        f"below {delays.QUIET:.0%}".replace("%", " %"),
        f"{delays.MOST_AT_ONCE} threads a tick",
        f"one of {budget.ONE_IN:,} wanted seconds",
        f"At most {budget.MOST_POLICIES} policies",
    ):
        assert said in text, said
    assert monitor.SELDOM_SECONDS == 10
