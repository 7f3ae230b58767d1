"""The monitor and the account at work: budgets are kept, and nobody waits for the disk."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from adapters.machine import ThisMachine
from agent.config import AgentConfig
from agent.measuring import BUDGETS, SAVE_SECONDS, Measuring


async def test_a_slow_disk_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime waits two seconds for what the same loop answers."""
    disk, at_work, saves, now = threading.Event(), threading.Event(), [], [0.0]

    def slow(fd: int) -> None:
        saves.append(fd)
        at_work.set()
        assert disk.wait(60)

    config = AgentConfig(state=tmp_path)
    measuring = Measuring(ThisMachine().mounts, config, CollectorRegistry(), clock=lambda: now[0])
    monkeypatch.setattr(os, "fsync", slow)
    for _ in range(3):
        now[0] += SAVE_SECONDS + 1
        measuring.tick()  # returns; one save at a time
        assert await asyncio.to_thread(at_work.wait, 60)
    assert len(saves) == 1
    disk.set()
    await measuring.close()
    assert (tmp_path / BUDGETS).exists()
