"""Budgets and namespaces, from the API server to what is held and to their status; with and without a CRD."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.api import BUDGETS, NAMESPACES, NODES, POLICIES, APIError
from adapters.memory import MemoryAPI


def budget(selector: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "gold"}, "spec": {"namespaceSelector": selector or {}, **spec}}


def namespace(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "default", "labels": labels}}


def held(program: Any) -> int:
    return program.ledger.report()["default/checkout"].held


async def test_budgets_and_labels_take_effect_without_a_restart(running, make_node, make_policy, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1", cpu="64"))
    api.put(NAMESPACES, namespace(tier="gold"))
    api.put(POLICIES, make_policy(slots={"count": 4}))
    api.put(BUDGETS, budget({"matchLabels": {"tier": "gold"}}, perNamespace={"slots": 1}))
    async with running(api) as program:
        assert held(program) == 1, "also just after the start"
        api.put(BUDGETS, budget({"matchLabels": {"tier": "gold"}}, perNamespace={"slots": 3}))
        await eventually(lambda: held(program) == 3)
        api.put(NAMESPACES, namespace(tier="tin"))
        await eventually(lambda: held(program) == 4)
        api.put(NAMESPACES, namespace(tier="gold"))
        await eventually(lambda: held(program) == 3)
        api.remove(BUDGETS, "", "gold")
        await eventually(lambda: held(program) == 4)


async def test_used_and_hard_and_why_a_policy_is_not_held_are_written(
    running, make_node, make_policy, eventually
):
    api = MemoryAPI()
    api.put(NODES, make_node("n1", cpu="64"))
    api.put(POLICIES, make_policy(slots={"count": 4}))
    api.put(BUDGETS, budget(total={"slots": 1}))

    def status(resource: Any, space: str, name: str) -> dict[str, Any]:
        return api.get_object(resource, space, name).get("status", {})

    def reported() -> bool:
        told = status(POLICIES, "default", "checkout")
        given = status(BUDGETS, "", "gold")
        return bool(told.get("unplaced")) and given.get("usedOfTotal") == "slots: 1/1"

    async with running(api):
        await eventually(reported)
        told = status(POLICIES, "default", "checkout")
        (why,) = told["unplaced"]
        assert (why["count"], why["reason"], why["resource"], why["missing"]) == (
            3,
            "BudgetExceeded",
            "slots",
            "3",
        )
        assert "budget gold, all namespaces: slots: 4 asked, 0 of 1 used" in why["message"]
        feasible = next(one for one in told["conditions"] if one["type"] == "Feasible")
        assert (feasible["status"], feasible["reason"]) == ("False", "BudgetExceeded")
        given = status(BUDGETS, "", "gold")
        assert (given["policies"], given["exceeding"], given["conditions"][0]["status"]) == (1, 1, "True")


@pytest.mark.parametrize("resource", [BUDGETS, NAMESPACES])
async def test_a_half_done_upgrade_goes_on_without_budgets(
    running, make_node, make_policy, eventually, resource
):
    api = MemoryAPI()
    api.put(NODES, make_node("n1", cpu="64"))
    api.put(POLICIES, make_policy(slots={"count": 2}))
    api.fail("list_page", APIError(403, "Forbidden", "no right"), resource=resource, times=100_000)
    async with running(api) as program:
        assert not program.readiness.problem()
        await eventually(lambda: held(program) == 2)
        assert b"j10ce_budgets_heard 0.0" in program.metrics.render()


async def test_the_status_says_what_is_held_as_soon_as_a_label_changes(
    running, make_node, make_policy, eventually, monkeypatch
):
    """Not with the next look at all policies, seconds later: here that never comes."""
    api = MemoryAPI()
    api.put(NODES, make_node("n1", cpu="64"))
    api.put(NAMESPACES, namespace(tier="gold"))
    api.put(POLICIES, make_policy(slots={"count": 4}))
    api.put(BUDGETS, budget({"matchLabels": {"tier": "gold"}}, perNamespace={"slots": 1}))
    monkeypatch.setattr("extender.program.HOLDS_SECONDS", 3600.0)
    monkeypatch.setattr("extender.program.IDLE_SECONDS", 3600.0)

    def said() -> int:
        return api.get_object(POLICIES, "default", "checkout").get("status", {}).get("slots", {}).get("held")

    async with running(api):
        await eventually(lambda: said() == 1)
        api.put(NAMESPACES, namespace(tier="tin"))
        await eventually(lambda: said() == 4)
