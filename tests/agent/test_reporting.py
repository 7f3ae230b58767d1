"""When a floor that cannot be kept in whole makes a policy's pods count as not applied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent.enforcement.enforcer import Report
from agent.reporting import policy_states
from agent.state import ContainerKey
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
    container = SimpleNamespace(name="main", plan=SimpleNamespace(shortfalls=(short,)))
    policy = SimpleNamespace(key="shop/checkout", uid="u")
    decided = SimpleNamespace(policy=policy, problem="", pod=SimpleNamespace(name="web-1"))
    planned: Any = SimpleNamespace(uid="p", decided=decided, containers=(container,))
    key = ContainerKey("p", "main")
    report = Report(key, applied=True, verified_at=1.0)
    [state] = policy_states([planned], [key], {key: report}, 0.0, lambda _: 0.0)
    assert state.applied == applied
    assert bool(state.message) != bool(applied)
