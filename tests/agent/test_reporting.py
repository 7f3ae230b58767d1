"""When a floor that cannot be kept in whole makes a policy's pods count as not applied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent.enforcement.enforcer import Report
from agent.reporting import policy_states
from agent.state import ContainerKey
from qos.cluster.node_report import PolicyState
from qos.keys import CPU, EGRESS_BANDWIDTH, INGRESS_BANDWIDTH, MEMORY
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
    state = reported({}, {}, short)
    assert state.applied == applied
    assert bool(state.message) != bool(applied)


@pytest.mark.parametrize(
    ("floor", "limit", "named"),
    [
        ({CPU: 1000}, {}, ""),
        ({EGRESS_BANDWIDTH: 1}, {}, EGRESS_BANDWIDTH),
        ({}, {INGRESS_BANDWIDTH: 1}, INGRESS_BANDWIDTH),
        ({EGRESS_BANDWIDTH: 1}, {INGRESS_BANDWIDTH: 1}, f"{EGRESS_BANDWIDTH} and {INGRESS_BANDWIDTH}"),
    ],
)
def test_bandwidth_that_nothing_keeps_is_not_applied(
    floor: dict[str, int], limit: dict[str, int], named: str
) -> None:
    state = reported(floor, limit)
    said = f"pod web-1: {named}: held by scheduling, not kept on the node yet" if named else ""
    assert (state.applied, state.message) == (0 if named else 1, said)


def reported(floor: dict[str, int], limit: dict[str, int], *short: Shortfall) -> PolicyState:
    """What is said of a policy with one pod, all of whose settings are applied."""
    container = SimpleNamespace(name="main", plan=SimpleNamespace(shortfalls=short))
    policy = SimpleNamespace(key="shop/checkout", uid="u", limit=limit)
    decided = SimpleNamespace(policy=policy, problem="", pod=SimpleNamespace(name="web-1"), floor=floor)
    planned: Any = SimpleNamespace(uid="p", decided=decided, containers=(container,))
    key = ContainerKey("p", "main")
    report = Report(key, applied=True, verified_at=1.0)
    [state] = policy_states([planned], [key], {key: report}, 0.0, lambda _: 0.0)
    return state
