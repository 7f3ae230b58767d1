"""/metrics: what only rises is a counter and ends in _total, what does not is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from tests.agent.plain_node import PlainNode

RISES = re.compile(r"\b(since the start|by outcome|writes of|times that)\b", re.IGNORECASE)


async def test_counters_and_gauges_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with PlainNode(tmp_path, monkeypatch).agent() as agent:
        text = generate_latest(agent.registry).decode()
    kinds = dict(
        re.findall(r"^# TYPE (\S+?(?<!_created)) (\S+)$", text, re.MULTILINE)
    )  # the program has none
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    assert len(kinds) > 20
    assert not [name for name, kind in kinds.items() if (kind == "counter") != name.endswith("_total")]
    assert not [name for name, kind in kinds.items() if kind == "gauge" and RISES.search(helps[name])]
    assert float(re.search(r"^j10ce_agent_passes_total (\S+)$", text, re.MULTILINE)[1]) >= 2
    assert 'j10ce_agent_sync_rejected_objects_total{resource="pods"} 0.0' in text
