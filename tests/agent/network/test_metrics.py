"""Counters for /metrics: read in a thread, as fresh as the scrape."""

from __future__ import annotations

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry

from agent.network import metrics
from agent.network.counting import Counts
from agent.network.metrics import NetworkCollector
from agent.network.records import Counters
from agent.network.shaper import Round
from agent.network.shaping import Shaped
from qos.network.bands import DEFAULT
from qos.network.minors import ROOT
from qos.network.wanted import Link, Wanted

LINK = Link(2, "eth0", 125_000_000, 0)
LAST = Round(Wanted(), Shaped(0, {}), 0.0, {}, LINK, DEFAULT, {})
LABELS = {"direction": "egress", "class": "link"}


async def test_scrapes_at_one_time_share_a_reading_and_the_next_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry, goes_on, readings = CollectorRegistry(), threading.Event(), 0

    def read(_: str) -> Counts:
        nonlocal readings
        readings += 1
        assert threading.current_thread() is not threading.main_thread()
        goes_on.wait(60)
        return Counts({LINK.index: {ROOT: Counters(readings, 0, 0, 0, 0, 0)}}, {})

    monkeypatch.setattr(metrics, "_read", read)
    collector = NetworkCollector(lambda: LAST, dict, registry)

    def shown() -> float | None:
        return registry.get_sample_value("j10ce_agent_network_class_bytes_total", LABELS)

    assert shown() is None
    first, second = (asyncio.create_task(collector.refresh()) for _ in range(2))
    await asyncio.sleep(0)
    goes_on.set()
    await asyncio.gather(first, second)
    assert (readings, shown()) == (1, 1)
    await collector.refresh()
    assert (readings, shown()) == (2, 2)


async def test_before_the_first_round_nothing_is_read() -> None:
    collector = NetworkCollector(lambda: None, dict, CollectorRegistry(), bpf_root="/nowhere")
    await collector.refresh()
    assert not any(family.samples for family in collector.collect())
