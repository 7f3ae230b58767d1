"""What scheduler-config/ sets agrees with what the extender does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from extender.config import ExtenderConfig
from extender.connection import KEEP_ALIVE_SECONDS

FILES = sorted((Path(__file__).parents[2] / "scheduler-config").glob("*.yaml"))
GO_IDLE_SECONDS = 90


def entries(path: Path) -> list[dict[str, Any]]:
    return YAML(typ="safe").load(path.read_text())["extenders"]


def seconds(text: str) -> float:
    return float(text.removesuffix("ms")) / 1000 if text.endswith("ms") else float(text.removesuffix("s"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_t07_a_hung_extender_costs_little(path):
    """It costs httpTimeout for each pod in turn; bind runs beside the cycle and may take longer."""
    for entry in entries(path):
        if "filterVerb" in entry or "prioritizeVerb" in entry or "preemptVerb" in entry:
            assert seconds(entry["httpTimeout"]) <= 0.3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_t04_the_binds_deadline_is_below_the_http_timeout(path):
    deadline = ExtenderConfig().bind_deadline_seconds
    assert all(seconds(entry["httpTimeout"]) > deadline for entry in entries(path) if "bindVerb" in entry)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_t07_only_strict_is_not_ignorable(path):
    assert {bool(entry.get("ignorable")) for entry in entries(path)} == {path.stem != "strict"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_t11_no_resource_is_made_up(path):
    """managedResources would hide owners from autoscalers, whose node templates offer no such resource."""
    assert not any(entry.get("managedResources") for entry in entries(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_t02_every_pod_binds_through_the_extender(path):
    assert sum("bindVerb" in entry for entry in entries(path)) == 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_t23_who_filters_also_preempts(path):
    for entry in entries(path):
        if "filterVerb" in entry and path.stem != "observe":
            assert entry["preemptVerb"] == "preempt"


def test_connections_outlive_gos_idle_ones():
    assert KEEP_ALIVE_SECONDS > GO_IDLE_SECONDS
