"""When a floor that cannot be kept in whole makes a policy's pods count as not applied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent.enforcement.enforcer import Report
from agent.reporting import policy_states
from agent.state import ContainerKey
from qos.cluster.node_report import PolicyState
from qos.keys import CPU, MEMORY
from qos.plan.settings import Shortfall


@pytest.mark.parametrize(
    ("resource", "promised", "kept", "applied"),
    [
        (CPU, 2000, 1997, 1),
        (CPU, 2000, 1950, 1),
        (CPU, 2000, 1949, 0),
        (CPU, 10, 9, 0),
        (MEMORY, 2000, 1997, 0),  # bytes are no weights
    ],
)
def test_what_weights_round_off_is_no_missed_floor(
    resource: str, promised: int, kept: int, applied: int
) -> None:
    short = Shortfall(resource, 1, "/kubepods/p", promised, kept, "there is no more")
    state = reported(short)
    assert state.applied == applied
    assert bool(state.message) != bool(applied)


@pytest.mark.parametrize(
    ("network", "applied", "message"),
    [
        ("", 1, ""),
        (None, 0, ""),  # under way
        ("floor (network): LinkUnknown: why", 0, "pod web-1: floor (network): LinkUnknown: why"),
    ],
)
def test_a_pod_is_applied_when_its_network_is_too(network: str | None, applied: int, message: str) -> None:
    state = reported(network=network)
    assert (state.applied, state.verified, state.message) == (applied, applied, message)


def test_what_cpu_lacks_is_said_before_what_the_network_lacks() -> None:
    short = Shortfall(CPU, 1, "/kubepods/p", 2000, 1000, "there is no more")
    assert "there is no more" in reported(short, network="floor (network): LinkUnknown: why").message


def reported(*short: Shortfall, network: str | None = "") -> PolicyState:
    """What is said of a policy with one pod, all of whose settings are applied."""
    container = SimpleNamespace(name="main", plan=SimpleNamespace(shortfalls=short))
    policy = SimpleNamespace(key="shop/checkout", uid="u", limit={})
    decided = SimpleNamespace(policy=policy, problem="", pod=SimpleNamespace(name="web-1"), floor={})
    planned: Any = SimpleNamespace(uid="p", decided=decided, containers=(container,))
    key = ContainerKey("p", "main")
    report = Report(key, applied=True, verified_at=1.0)
    [state] = policy_states([planned], [key], {key: report}, 0.0, lambda _: 0.0, network=lambda _: network)
    return state
