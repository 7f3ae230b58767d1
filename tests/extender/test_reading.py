"""How soon a program reads what its watches say, by what keeps its policies; and what its gate knows."""

from __future__ import annotations

import orjson
import pytest

from adapters.memory import MemoryAPI
from extender.config import ExtenderConfig
from extender.gate import Gate
from extender.program import Program
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.budget import Budget
from qos.cluster.objects import Demand, Keeper, Requirement, Selector


@pytest.mark.parametrize("both", [True, False])
def test_who_is_asked_by_kube_scheduler_reads_at_once(both: bool):
    config = ExtenderConfig(identity="me", keeper=Keeper.PLACEHOLDERS, both_keepers=both)
    keeper = Program(config, MemoryAPI()).keeper
    assert keeper is not None
    assert (keeper.rest is None) == both


def test_an_owner_is_gated_and_told_of_as_soon_as_a_budget_gives_its_policy_a_slot(metrics, make_pod):
    ledger, gated = Ledger(Mode.GUARD, cap_percent=100), []
    selector = Selector((Requirement("app", "In", ("checkout",)),))
    ledger.set_budget(Budget("all", total={"cpu": 100}))
    ledger.set_demand(Demand("default/checkout", "default", selector, {"cpu": 1_000, "pods": 1}, 1))
    for _ in iter(ledger.tend, False):
        pass
    gate = Gate(
        ledger, metrics, kept=lambda _: True, lifts=lambda: True, gated=lambda: gated.append("checkout")
    )

    def patched(pod) -> bool:
        body = orjson.dumps({"request": {"uid": "u", "namespace": "default", "object": pod}})
        return "patch" in orjson.loads(gate.review(body))["response"]

    assert not patched(make_pod("checkout-1", cpu="1", app="checkout"))
    ledger.set_budget(Budget("all", total={"cpu": 4_000}))
    assert not patched(make_pod("other", cpu="1", app="other"))
    assert gated == []
    assert patched(make_pod("checkout-2", cpu="1", app="checkout"))
    assert gated == ["checkout"]
