"""What a placeholder that nobody binds costs: only those look again whose own may have to make room."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from adapters.loops import Changes
from adapters.memory import MemoryAPI
from extender.metrics import Metrics
from extender.overcommitted import Overcommitted
from extender.placeholders import Placeholders
from extender.standing import PATIENCE_SECONDS, Standing
from extender.standing_by import StandingBy
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Demand, Node, Requirement, Selector
from qos.cluster.placeholders import Placeholder, Steps, form_of, priority_of
from qos.cluster.placeholders import decide as decide_really


def policies(count: int) -> Iterable[Demand]:
    for number in range(count):
        selector = Selector((Requirement("app", "In", (f"p{number}",)),))
        yield Demand(f"default/p{number}", "default", selector, {"cpu": 1_000}, 2, 1_000)


async def test_one_that_waits_has_no_other_policy_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def decide(wanted: Any, form: Any, there: Iterable[Placeholder], *others: Any) -> Steps:
        there = [*there]
        looked.extend({one.policy for one in there})
        return decide_really(wanted, form, there, *others)

    monkeypatch.setattr("extender.placeholders.decide", decide)
    now, ledger = [1_000.0], Ledger(Mode.GUARD, cap_percent=100, binds=False)
    for number in range(10):
        ledger.set_node(Node(f"n{number}", f"u{number}", {"cpu": 4_000}))
    for demand in policies(5):
        ledger.set_demand(demand)
    ledger.report()
    standing, changes = Standing("holds", lambda: None, lambda: now[0]), Changes(0.0)
    keeper = Placeholders(
        MemoryAPI(),
        ledger,
        standing,
        StandingBy(ledger, kept=lambda _: True, changed=changes.note, clock=lambda: now[0]),
        Overcommitted(ledger, standing, lambda _: True),
        Metrics(),
        changes,
        namespace="holds",
        scheduler="default-scheduler",
        image="",
        ordinary=lambda: 0,
        kept=lambda _: True,
        awaited=lambda _: 0,
        closed=set,
        serves=lambda *_: True,
        busy=set,
        clock=lambda: now[0],
    )
    for holding in [one for one in ledger.gather_holdings() if one is not None]:
        form = form_of(holding.demand, priority_of(holding.demand))
        key = holding.demand.key
        for node in [name for name, slots in holding.nodes for _ in range(slots)]:
            uid = f"u{standing.count(bound=True)}"
            standing.put(Placeholder(uid, uid, key, form, node, bound=True))
    await keeper.run_once()
    assert len(looked) == 5
    (one, *_) = standing.of("default/p3")
    standing.drop(one.uid)
    standing.put(Placeholder("waits", "waits", one.policy, one.form, one.node, bound=False))
    await keeper.run_once()
    looked.clear()
    now[0] += 2 * PATIENCE_SECONDS
    for _ in range(3):
        await keeper.run_once()
    assert standing.late() == {"waits"}
    assert set(looked) == {"default/p3"}
