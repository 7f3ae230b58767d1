"""How long a pod that starts waits for its network, and what is counted."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from agent.network.starting import Starts, is_awaited
from qos.bandwidth import Band, Bounds
from qos.pods.traffic import Traffic


def outcomes(registry: CollectorRegistry) -> dict[str, float]:
    name = "j10ce_agent_network_starts_total"
    found = {
        one: registry.get_sample_value(name, {"outcome": one})
        for one in ("shaped", "unkept", "late", "failed", "too_early")
    }
    return {one: count for one, count in found.items() if count}


@pytest.mark.parametrize(
    ("traffic", "awaited"),
    [
        (Traffic(Band.L0), False),
        (Traffic(Band.L1), True),
        (Traffic(Band.L2), True),
        (Traffic(Band.L0, egress=Bounds(1)), True),
        (Traffic(Band.L0, egress=Bounds(0, 1)), True),
        (Traffic(Band.L0, ingress=Bounds(0, 1)), True),
        (Traffic(Band.L0, ingress=Bounds(1)), True),
    ],
)
def test_who_is_waited_for(traffic: Traffic, *, awaited: bool) -> None:
    assert is_awaited(traffic) is awaited


@pytest.mark.parametrize("outcome", ["shaped", "unkept", "too_early"])
async def test_a_round_that_comes_to_its_end(outcome: str) -> None:
    registry = CollectorRegistry()

    async def shape() -> str:
        return outcome

    await Starts(registry).wait("one", shape)
    assert outcomes(registry) == {outcome: 1}
    assert registry.get_sample_value("j10ce_agent_network_start_seconds_count") == 1


async def test_one_that_fails_keeps_no_pod_from_starting(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()

    async def shape() -> str:
        raise OSError(1, "not permitted")

    await Starts(registry).wait("one", shape)
    assert outcomes(registry) == {"failed": 1}
    assert "not permitted" in caplog.text


async def test_one_that_takes_long_goes_on_without_being_waited_for() -> None:
    registry = CollectorRegistry()
    may_end, ended = asyncio.Event(), asyncio.Event()

    async def shape() -> str:
        await may_end.wait()
        ended.set()
        raise OSError(1, "nobody is told")

    await Starts(registry, at_most=0.01).wait("one", shape)
    assert outcomes(registry) == {"late": 1}
    may_end.set()
    await asyncio.wait_for(ended.wait(), 10)
