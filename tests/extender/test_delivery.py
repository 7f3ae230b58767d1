"""Applied and Verified of a policy, one row a case."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.kubernetes.node_qos import NodeNews
from agent.enforcement.enforcer import Report
from agent.reporting import policy_states
from agent.state import ContainerKey
from extender.delivery import Delivery, applied, verified
from extender.node_reports import NodeReports
from kernel.apply import Refusal
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.needs import Enforcement
from tests.extender.conftest import Clock

REFUSED = "n1: memory.min of pod x: EBUSY"
CASES = [
    # what the nodes say, pods that are bound, Applied, Verified
    ("no agent", Delivery(0), 2, ("Unknown", "NoAgent"), ("Unknown", "NoAgent")),
    ("nothing runs", Delivery(3), 0, ("Unknown", "NoPods"), ("Unknown", "NoPods")),
    ("not reported", Delivery(3, 1, 1, 1), 2, ("Unknown", "NotReported"), ("Unknown", "NotReported")),
    ("being set up", Delivery(3, 2, 1, 1), 2, ("Unknown", "InProgress"), ("Unknown", "InProgress")),
    ("not read yet", Delivery(3, 2, 2, 1), 2, ("True", "AllApplied"), ("Unknown", "NotReadBack")),
    ("all is well", Delivery(3, 2, 2, 2), 2, ("True", "AllApplied"), ("True", "AllReadBack")),
    ("a pod that is ending", Delivery(3, 3, 3, 3), 2, ("True", "AllApplied"), ("True", "AllReadBack")),
    (
        "refused",
        Delivery(3, 2, 1, 1, refused=REFUSED),
        4,
        ("False", "PlanNotApplied"),
        ("Unknown", "PlanNotApplied"),
    ),
    (
        "changed by somebody",
        Delivery(3, 2, 2, 1, differing="n2: cpu.weight is 100"),
        2,
        ("True", "AllApplied"),
        ("False", "ReadBackDiffers"),
    ),
]


@pytest.mark.parametrize(
    ("sums", "bound", "is_applied", "is_verified"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_conditions(
    sums: Delivery, bound: int, is_applied: tuple[str, str], is_verified: tuple[str, str]
) -> None:
    assert applied(sums, bound)[:2] == is_applied
    assert verified(sums, bound)[:2] == is_verified


def test_a_fight_is_a_policy_that_reads_back_otherwise(clock: Clock) -> None:
    """From what the agent's repairer leaves of a fight to the condition: written, and known not to be so."""
    key = ContainerKey("p", "main")
    fight = Refusal("/kubepods/p", "cpu.weight", "79", 0, "other keeps changing it back to 100")
    report = Report(key, applied=True, verified_at=-math.inf, refusals=(fight,))
    policy = SimpleNamespace(key="shop/checkout", uid="u", limit={})
    decided = SimpleNamespace(policy=policy, problem="", pod=SimpleNamespace(name="web-1"), floor={})
    planned: Any = SimpleNamespace(uid="p", decided=decided, containers=())
    state = policy_states([planned], [key], {key: report}, 0.0, lambda _: 0.0)
    reports = NodeReports(Ledger(Mode.GUARD), clock=clock, changed=lambda: None)
    reports.set(NodeNews("n1", "1", Enforcement(), state))
    sums = reports.delivery(policy.key, policy.uid)
    assert applied(sums, 1)[:2] == ("True", "AllApplied")
    assert verified(sums, 1)[:2] == ("False", "ReadBackDiffers")
    assert "n1: pod web-1: " in verified(sums, 1).message
    assert "keeps changing it back to 100" in verified(sums, 1).message


def test_the_message_names_the_node_and_its_problem() -> None:
    text = "1 of 2 pods lack settings: n1: memory.min of pod x: EBUSY"
    assert applied(Delivery(3, 2, 1, 1, refused=REFUSED), 2).message == text
