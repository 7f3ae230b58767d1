"""On full nodes nobody else gets the room of an owner that goes, or that one hold makes for another."""

from __future__ import annotations

import asyncio

import pytest

from adapters.api import (
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    Conflict,
)
from qos import keys
from tests.extender.placeholder_cluster import (
    OURS,
    Scheduler,
    condition,
    gated,
    nodes_of,
    ours,
    stand,
    stand_by,
)


@pytest.mark.parametrize("named", [True, False])
async def test_on_a_full_node_nobody_gets_the_room_of_an_owner_that_goes(
    api, keeping, make_node, make_pod, make_policy, eventually, named
):
    """With a class above ordinary pods', and without one."""
    api.put(NODES, make_node("n1"))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    spec = {"priorityClassName": "high"} if named else {}
    api.put(POLICIES, make_policy(count=1, cpu="2", **spec))
    api.put(PODS, make_pod("checkout-1", cpu="2", app="checkout", node="n1"))
    api.put(PODS, make_pod("batch", cpu="2", node="n1"))
    async with keeping() as program:
        await eventually(lambda: stand_by(api) == {"n1": 1})
        api.put(PODS, make_pod("waits", cpu="2"))
        await eventually(lambda: api.get_object(PODS, "default", "waits").get("status", {}).get("conditions"))
        assert not stand(api)
        api.remove(PODS, "default", "checkout-1")
        await eventually(lambda: stand(api) == {"n1": 1} and len(ours(api)) == 1)
        assert "waits" not in program.scheduler.history


async def test_nobody_stands_by_where_a_pod_is_nominated_that_would_be_kept_out(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """Else a preemptor evicts somebody, and who stands by has the room, again and again."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="2"))
    api.put(PODS, make_pod("checkout-1", cpu="2", app="checkout", node="n1"))
    api.put(PODS, make_pod("batch", cpu="2", node="n1"))
    async with keeping():
        await eventually(lambda: stand_by(api) == {"n1": 1})
        comes = make_pod("comes", cpu="2")
        comes["spec"]["schedulingGates"] = [
            {"name": "example.com/wait"}
        ]  # the played scheduler leaves it alone
        comes["status"] = {"phase": "Pending", "nominatedNodeName": "n1"}
        api.put(PODS, comes)
        await eventually(lambda: not ours(api))
        api.remove(PODS, "default", "comes")
        await eventually(lambda: stand_by(api) == {"n1": 1})


async def test_nobody_gets_the_room_that_one_hold_makes_for_another(
    api, keeping, make_node, make_pod, make_policy, eventually, monkeypatch
):
    """A node is lost, and the policy of lower priority gives its place up while pods wait for any room."""
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name))
    for name, value in (("high", 1000), ("low", 100)):
        api.put(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    api.put(POLICIES, make_policy("silver", count=1, cpu="4", priorityClassName="low"))
    api.put(POLICIES, make_policy("gold", count=1, cpu="4", priorityClassName="high"))
    create = api.create

    async def slowly(*args, **options):
        await asyncio.sleep(0.1)
        return await create(*args, **options)

    async with keeping() as program:
        await eventually(lambda: stand(api) == {"n1": 1, "n2": 1})
        monkeypatch.setattr(api, "create", slowly)
        api.put(PODS, make_pod("waits", cpu="4"))
        await eventually(lambda: api.get_object(PODS, "default", "waits").get("status", {}).get("conditions"))
        (lost,) = (p["spec"]["nodeName"] for p in ours(api) if p["spec"]["priority"] == 1000)
        for one in ours(api):  # as Kubernetes' garbage collector does
            if one["spec"]["nodeName"] == lost:
                api.remove(PODS, OURS, one["metadata"]["name"])
        api.remove(NODES, "", lost)
        await eventually(
            lambda: (
                [(p["spec"].get("priority"), "nodeName" in p["spec"]) for p in ours(api)] == [(1000, True)]
            )
        )
        assert "waits" not in program.scheduler.history


async def test_who_stands_by_keeps_the_room_while_others_are_still_being_made(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """Where answers are late, the next look is seconds away, and an owner may be gone by then."""
    for number in (1, 2):
        api.put(NODES, make_node(f"n{number}"))
        api.put(PODS, make_pod(f"checkout-{number}", cpu="2", app="checkout", node=f"n{number}"))
        api.put(PODS, make_pod(f"batch-{number}", cpu="2", node=f"n{number}"))
    api.put(POLICIES, make_policy(count=2, cpu="2"))
    answer = api.hang("create", resource=PODS)
    async with keeping():
        await eventually(lambda: sum(stand_by(api).values()) == 1 and len(ours(api)) == 1)
        answer.set()
        await eventually(lambda: stand_by(api) == {"n1": 1, "n2": 1})


async def test_of_many_owners_on_a_node_four_have_one_that_stands_by(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """They keep one another out: all but one leave whenever an owner goes, and come again."""
    api.put(NODES, make_node("n1", cpu="12"))
    api.put(POLICIES, make_policy(count=6, cpu="2"))
    for number in range(6):
        api.put(PODS, make_pod(f"checkout-{number}", cpu="2", app="checkout", node="n1"))
    async with keeping(cpus=12):
        await eventually(lambda: stand_by(api) == {"n1": 4})
        api.remove(PODS, "default", "checkout-0")
        await eventually(lambda: stand(api) == {"n1": 1} and stand_by(api) == {"n1": 4})
        assert len(ours(api)) == 5


async def test_who_was_bound_meanwhile_is_not_deleted_as_one_that_waits(
    api, keeping, make_node, make_pod, make_policy, eventually, monkeypatch
):
    """It has the room of an owner that went; where watches are late that is not known yet."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="2"))
    api.put(PODS, make_pod("checkout-1", cpu="2", app="checkout", node="n1"))
    api.put(PODS, make_pod("batch", cpu="2", node="n1"))
    delete, deleted = api.delete, []

    async def late(resource, namespace, name, **options):
        if not deleted:
            await api.bind(namespace, name, options["uid"], "n1", {})
        try:
            await delete(resource, namespace, name, **options)
        except Conflict:
            deleted.append("stays")
            raise
        deleted.append("gone")

    async with keeping():
        await eventually(lambda: stand_by(api) == {"n1": 1})
        monkeypatch.setattr(api, "delete", late)
        comes = make_pod("comes", cpu="2")
        comes["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        api.put(PODS, comes | {"status": {"phase": "Pending", "nominatedNodeName": "n1"}})
        await eventually(lambda: deleted == ["stays", "gone"])  # nobody needs it, as the watch shows


async def test_nobody_stands_by_for_who_is_below_ordinary_pods(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """These would not see it."""
    api.put(NODES, make_node("n1"))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "low"}, "value": -5})
    api.put(POLICIES, make_policy(count=1, cpu="2", priorityClassName="low"))
    api.put(PODS, make_pod("checkout-1", cpu="2", app="checkout", node="n1"))
    api.put(PODS, make_pod("batch", cpu="2", node="n1"))
    async with keeping() as program:
        await eventually(lambda: program.ledger.report()["default/checkout"].filled == 1)
        await eventually(lambda: condition(api, keys.GUARDED)[0] == "True")
        assert not ours(api)


async def test_two_owners_of_one_node_go_one_after_the_other(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """Two that stand by keep each other out: one goes when a slot is wanted there, and comes again."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=2, cpu="2"))
    for number in (1, 2):
        api.put(PODS, make_pod(f"checkout-{number}", cpu="2", app="checkout", node="n1"))
    async with keeping() as program:
        await eventually(lambda: stand_by(api) == {"n1": 2})
        api.put(PODS, make_pod("waits", cpu="1"))
        await eventually(lambda: api.get_object(PODS, "default", "waits").get("status", {}).get("conditions"))
        api.remove(PODS, "default", "checkout-1")
        await eventually(lambda: stand(api) == {"n1": 1} and stand_by(api) == {"n1": 1})
        api.remove(PODS, "default", "checkout-2")
        await eventually(lambda: stand(api) == {"n1": 2} and len(ours(api)) == 2)
        assert "waits" not in program.scheduler.history


async def test_who_stands_by_steps_aside_for_an_owner_and_comes_back(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """Beside them it would not fit, and preempt."""
    api.put(NODES, make_node("n1", cpu="8"))
    api.put(POLICIES, make_policy(count=3, cpu="2"))
    for number in (1, 2):
        api.put(PODS, make_pod(f"checkout-{number}", cpu="2", app="checkout", node="n1"))
    api.put(PODS, make_pod("batch", cpu="2", node="n1"))
    async with keeping(cpus=8) as program:
        await eventually(lambda: stand(api) == {"n1": 1} and stand_by(api) == {"n1": 2})
        before = {one["metadata"]["uid"] for one in ours(api) if not one["spec"].get("nodeName")}
        api.put(PODS, make_pod("waits", cpu="1"))
        api.put(PODS, gated(make_pod("checkout-3", cpu="2", app="checkout")))
        await eventually(lambda: nodes_of(api, "checkout-3") == {"checkout-3": "n1"})
        await eventually(lambda: not stand(api) and stand_by(api) == {"n1": 2})
        assert before <= {one["metadata"]["uid"] for one in ours(api)}
        assert "waits" not in program.scheduler.history


async def test_an_owner_is_given_the_place_of_one_that_is_not_bound_yet(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    class Holds(Scheduler):
        """Has no time for placeholders."""

        async def once(self) -> None:
            for one in ours(self.api):
                if not one["spec"].get("nodeName") and not one["spec"].get("schedulingGates"):
                    one["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
                    self.api.put(PODS, one)
            await super().once()

    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="2"))
    api.put(PODS, make_pod("checkout-1", cpu="2", app="checkout", node="n1"))
    api.put(PODS, make_pod("batch", cpu="2", node="n1"))
    async with keeping(scheduler=Holds):
        await eventually(lambda: stand_by(api) == {"n1": 1})
        api.remove(PODS, "default", "checkout-1")
        api.put(PODS, gated(make_pod("checkout-2", cpu="2", app="checkout")))
        await eventually(lambda: nodes_of(api, "checkout") == {"checkout-2": "n1"})
        assert not stand(api)


async def test_a_nomination_that_was_taken_away_is_given_again(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """kube-scheduler does so for whom it evicts somebody there; before 1.35 after each attempt."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="2"))
    api.put(PODS, make_pod("checkout-1", cpu="2", app="checkout", node="n1"))
    api.put(PODS, make_pod("batch", cpu="2", node="n1"))
    async with keeping():
        await eventually(lambda: stand_by(api) == {"n1": 1})
        (one,) = ours(api)
        api.put(PODS, one | {"status": {}})
        await eventually(lambda: stand_by(api) == {"n1": 1})
        assert [pod["metadata"]["uid"] for pod in ours(api)] == [one["metadata"]["uid"]]


async def test_who_stands_by_makes_way_for_a_pod_that_fits_beside_owners(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """Room for less than a slot is not theirs to keep."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="2"))
    api.put(PODS, make_pod("checkout-1", cpu="2", app="checkout", node="n1"))
    api.put(PODS, make_pod("batch", cpu="1", node="n1"))
    async with keeping():
        await eventually(lambda: stand_by(api) == {"n1": 1})
        api.put(PODS, make_pod("fits", cpu="1"))
        await eventually(lambda: nodes_of(api, "fits") == {"fits": "n1"})
        await eventually(lambda: stand_by(api) == {"n1": 1})
