"""What a ReservationBudget's status says, and who writes it when."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from adapters.api import BUDGETS
from adapters.kubernetes import decode
from adapters.kubernetes.events import EventWriter
from adapters.memory import MemoryAPI
from extender.budget_status import BudgetStatus, compute, news
from extender.catalog import Catalog
from extender.metrics import Metrics
from extender.owners import Owners
from qos.api.budget import ReservationBudgetStatus
from qos.cluster.budget import ALL_NAMESPACES, Part, ReservationBudget
from tests.ledger.builders import demand, ledger, nodes

NOW = 1_700_000_000.0


def written(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "j10ce.io/v1alpha1",
        "kind": "ReservationBudget",
        "metadata": {"name": "gold", "uid": "b1", "generation": 2, "resourceVersion": "1"},
        "spec": {"namespaceSelector": {}, **spec},
    }


def budget(**spec: Any) -> ReservationBudget:
    return decode.budget(json.dumps(written(**spec)).encode())


GOLD = budget(total={"cpu": 200, "memory": "1Ti"}, perNamespace={"cpu": "40", "slots": 100})
PARTS = {
    ALL_NAMESPACES: Part({"cpu": 50_000, "memory": 48 << 30}, 3, ["shop/a"]),
    "shop": Part({"cpu": 38_000, "pods": 19}, 2, ["shop/a"]),
    "yard": Part({"cpu": 12_000, "pods": 6}, 1),
}


def test_used_and_hard_are_shown_as_a_resource_quota_has_them() -> None:
    status = compute(GOLD, PARTS, NOW)
    ReservationBudgetStatus.model_validate(status)
    assert status["usedOfTotal"] == "cpu: 50/200, memory: 48Gi/1Ti"
    assert status["fullest"] == "shop: cpu: 38/40, slots: 19/100"
    assert (status["namespaces"], status["policies"], status["exceeding"]) == (2, 3, 1)
    assert status["total"][0] == {"resource": "cpu", "used": "50", "hard": "200", "left": "150"}
    assert [one["name"] for one in status["perNamespace"]] == ["shop", "yard"]


def test_what_is_exceeded_is_a_condition_and_an_event() -> None:
    status = compute(GOLD, PARTS, NOW)
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("Exceeded", "True")
    assert "shop/a" in condition["message"]
    assert [one.reason for one in news({}, status)] == ["PoliciesAboveBudget"]
    calm = compute(GOLD, {ALL_NAMESPACES: Part({}, 1)}, NOW)
    assert [(one.type, one.reason) for one in news(status, calm)] == [("Normal", "WithinBudget")]
    assert not news({}, calm)


def test_a_budget_that_nobody_uses_has_a_status_too() -> None:
    status = compute(budget(perNamespace={"cpu": 0}), {}, NOW)
    assert (status["usedOfTotal"], status["fullest"], status["policies"]) == ("", "", 0)


def test_only_the_fullest_hundred_namespaces_are_shown() -> None:
    parts = {f"n{n:03}": Part({"cpu": n * 100}, 1) for n in range(150)}
    shown = compute(GOLD, parts, NOW)["perNamespace"]
    assert (len(shown), shown[0]["name"], shown[-1]["name"]) == (100, "n149", "n050")


async def test_it_is_written_when_it_changes_and_only_then() -> None:
    api, account, now = MemoryAPI(), ledger(*nodes(4)), [0.0]
    events = EventWriter(api, Metrics(), identity="x", clock=lambda: now[0], wall=lambda: NOW)
    catalog = Catalog(account, lambda: None, Owners(), clock=lambda: now[0], wall=lambda: NOW, grace=0.0)
    writer = BudgetStatus(
        api, account, catalog, events, Metrics(), clock=lambda: now[0], wall=lambda: NOW + now[0]
    )
    api.put(BUDGETS, written(perNamespace={"cpu": "4"}))
    catalog.set_budget(decode.budget(await api.get(BUDGETS, "", "gold")))
    account.set_demand(demand("a", 3))
    account.report()
    await writer.run_once()
    status = json.loads(await api.get(BUDGETS, "", "gold"))["status"]
    assert status["fullest"] == "default: cpu: 4/4"
    assert status["exceeding"] == 1
    version = json.loads(await api.get(BUDGETS, "", "gold"))["metadata"]["resourceVersion"]
    now[0] += 5.0
    await asyncio.sleep(0)
    await writer.run_once()
    again = json.loads(await api.get(BUDGETS, "", "gold"))["metadata"]["resourceVersion"]
    assert again == version, "nothing changed, nothing is written"
    catalog.remove_budget("gold")
    account.report()
    await writer.run_once()
