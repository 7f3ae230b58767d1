"""When the agent says that it keeps no floors."""

from __future__ import annotations

import pytest

from agent.readiness import LASTING_SECONDS, LATE_PASS_SECONDS, Readiness

CHECK = 60.0


class Agent:
    """A reconciler and a watch for drift, as far as they are asked, on one clock."""

    def __init__(self) -> None:
        self.now, self.passes, self.why, self.checked_at = 1000.0, 0, "", 0.0
        self.ready = Readiness(self, self, CHECK, lambda: self.now)

    def problem(self) -> str:
        return self.why

    def after(self, seconds: float, *, passed: bool = True, checked: bool = True) -> None:
        self.now += seconds
        self.passes += passed
        self.checked_at = self.now if checked else self.checked_at


@pytest.fixture
def agent() -> Agent:
    return Agent()


def test_after_the_first_pass_it_is_ready(agent: Agent) -> None:
    assert "first pass" in agent.ready.problem()
    agent.after(1)
    assert agent.ready.problem() == agent.ready.lasting() == ""


def test_what_lasts_is_reported(agent: Agent) -> None:
    agent.after(1)
    assert not agent.ready.problem()
    agent.why = "the last pass failed"
    agent.after(LASTING_SECONDS - 1)
    assert agent.ready.problem() == "the last pass failed"
    assert agent.ready.lasting() == ""
    agent.after(1)
    assert agent.ready.lasting() == "the last pass failed"
    agent.why = ""
    assert agent.ready.lasting() == ""


@pytest.mark.parametrize(
    ("seconds", "passed", "checked", "why"),
    [
        (LATE_PASS_SECONDS + 1, False, True, "no pass over the pods"),
        (LATE_PASS_SECONDS - 1, False, True, ""),
        (3 * CHECK + 1, True, False, "no full check"),
        (3 * CHECK - 1, True, False, ""),
    ],
)
def test_what_is_late(agent: Agent, seconds: float, passed: bool, checked: bool, why: str) -> None:
    agent.after(1)
    assert not agent.ready.problem()
    agent.after(seconds, passed=passed, checked=checked)
    assert agent.ready.problem().startswith(why)
    assert bool(agent.ready.problem()) == bool(why)
