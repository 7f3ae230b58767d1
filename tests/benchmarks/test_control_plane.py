"""The flood on a real control plane: what it counts, and what it makes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol

from benchmarks import bound_pods, control_plane
from benchmarks.clusters import Size
from benchmarks.contenders import (
    CONTENDERS,
    GO,
    NONE,
    OURS,
    OWNING,
    PLACEHOLDERS,
    PYTHON,
    WATCHER,
    Found,
    figures,
)


def message(kind: bytes, size: int) -> bytes:
    event = b"\n" + bytes([len(kind)]) + kind + b"\x12" + b"x" * size
    return len(event).to_bytes(4) + event


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 11, 100, 10_000])
async def test_counts_what_a_watch_adds_however_its_bytes_are_cut(cut: int) -> None:
    sent = b"".join([message(b"ADDED", 300), message(b"MODIFIED", 5), message(b"ADDED", 70_000)] * 3)
    stream = aiohttp.StreamReader(BaseProtocol(asyncio.get_running_loop()), 2**20)
    for at in range(0, len(sent), cut):
        stream.feed_data(sent[at : at + cut])
    stream.feed_eof()
    assert [count async for count in bound_pods.added(stream)][-1] == 6


def test_figures_are_medians_of_rounds_and_name_what_they_are_beside() -> None:
    rates = {NONE: [90.0, 100.0, 400.0], GO: [50.0, 10.0, 80.0], PYTHON: [40.0] * 3, OURS: [60.0, 1.0, 70.0]}
    rates[PLACEHOLDERS], rates[WATCHER] = [98.0, 1.0, 200.0], [196.0]
    found = {one: Found(rates[one.kind], {"extender": [0.002, 0.001, 0.001]}) for one in CONTENDERS}
    found[OWNING[0]].waits, found[OWNING[1]].waits = [0.01, 0.02, 0.03], [0.03, 0.03, 9.0]
    found[OWNING[2]].waits = [0.05]
    lines = figures(found)
    ratios = {name: one["value"] / one["against"] for name, one in lines.items() if one["against"]}
    assert ratios["flood, ours, filter and bind, score 0 (x no extender)"] == 0.6
    assert ratios["flood, filter only (x Go that accepts all), score 5"] == 1.2
    assert ratios["flood, filter and bind (x Python that accepts all), score 5"] == 1.5
    assert ratios["owner, creation to bind, p50 (x ordinary without us)"] == 1.5
    assert ratios["owner, creation to bind, p50, placeholders (x ordinary without us)"] == 2.5
    assert ratios["flood, placeholders on 1,000 nodes (x no floors)"] == 0.98
    assert ratios["flood, placeholders on 32 nodes (x a watch alone)"] == 0.5
    assert ratios["flood, a watch alone (x no floors)"] == 1.96
    assert lines["flood, ours, filter only, score 5, CPU of extender"]["value"] == 1.0


def test_who_has_no_round_has_no_figures_and_the_others_have() -> None:
    found = {one: Found([] if one.kind == OURS else [50.0]) for one in CONTENDERS}
    lines = figures(found)
    assert not [name for name in lines if "ours" in name or "owner" in name]
    assert lines["flood, Go that accepts all, filter only, score 5 (x no extender)"]["against"] == 50.0


def test_says_how_to_get_the_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("J10CE_BIN", ""), ("PATH", ""), ("XDG_CACHE_HOME", str(tmp_path))):
        monkeypatch.setenv(name, value)
    assert "make programs" in control_plane.measure(Size(1, 1, 0), 1, 1.0)["missing"]
