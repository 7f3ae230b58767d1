"""Owners get the places of placeholders, one after the other, and nobody is evicted for it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from adapters.api import (
    EVENTS,
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    APIError,
    NotFound,
    Unreachable,
)
from extender import hand_over
from qos import keys
from qos.cluster import refusals
from tests.extender.placeholder_cluster import (
    OURS,
    Scheduler,
    cpus_of,
    gated,
    nodes_of,
    ours,
    refuse,
    stand,
    wanted_node,
)


async def test_a_gated_owner_gets_the_place_of_a_placeholder(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=2, cpu="2"))
    async with keeping() as program:
        await eventually(lambda: stand(api) == {"n1": 2})
        api.put(PODS, make_pod("batch", cpu="1"))
        await eventually(lambda: api.get_object(PODS, "default", "batch").get("status", {}).get("conditions"))
        owner = make_pod("checkout-1", cpu="2", app="checkout")
        owner["spec"]["schedulingGates"] = [{"name": keys.HAND_OVER_GATE}]
        api.put(PODS, owner)
        await eventually(lambda: nodes_of(api, "checkout") == {"checkout-1": "n1"})
        assert "batch" not in program.scheduler.history
        assert stand(api) == {"n1": 1}
        await eventually(lambda: program.ledger.report()["default/checkout"].filled == 1)
        pod = api.get_object(PODS, "default", "checkout-1")
        assert pod["metadata"]["annotations"][keys.POLICY_ANNOTATION] == "default/checkout"
        assert stand(api) == {"n1": 1}


async def test_owners_get_the_places_on_one_node_one_after_the_other(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """Beside the nomination and the placeholder of another one an owner would not fit, and preempt."""
    api.put(NODES, make_node("n1", cpu="8"))
    api.put(POLICIES, make_policy(count=8, cpu="1"))
    async with keeping(cpus=8) as program:
        await eventually(lambda: stand(api) == {"n1": 8})
        for number in range(8):
            owner = make_pod(f"checkout-{number}", app="checkout")
            owner["spec"]["schedulingGates"] = [{"name": keys.HAND_OVER_GATE}]
            api.put(PODS, owner)
        await eventually(lambda: len(nodes_of(api, "checkout")) == 8)
        assert program.scheduler.most_nominated == 1
        assert not ours(api)


async def test_a_gate_of_somebody_else_is_waited_for_and_left(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=2, cpu="2"))
    async with keeping() as program:
        await eventually(lambda: stand(api) == {"n1": 2})
        owner = make_pod("checkout-1", cpu="2", app="checkout")
        owner["spec"]["schedulingGates"] = [{"name": "example.com/quota"}, {"name": keys.HAND_OVER_GATE}]
        stored = api.put(PODS, owner)
        await eventually(lambda: program.keeper.standing.gated)
        stored["spec"]["schedulingGates"].pop(0)
        assert stand(api) == {"n1": 2}
        api.put(PODS, stored)
        await eventually(lambda: nodes_of(api, "checkout") == {"checkout-1": "n1"})


async def test_a_gate_is_lifted_where_there_is_nothing_to_hand_over(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """Left by a program that died, of a policy that has gone since: it must not wait for ever."""
    api.put(NODES, make_node("n1"))
    owner = make_pod("checkout-1", cpu="2", app="checkout")
    owner["spec"]["schedulingGates"] = [{"name": keys.HAND_OVER_GATE}]
    api.put(PODS, owner)
    async with keeping():
        await eventually(lambda: nodes_of(api, "checkout") == {"checkout-1": "n1"})


class Watched(Scheduler):
    """Remembers nodes where an owner could be tried while more was nominated than there is room for."""

    def __init__(self, api, cpus: int) -> None:
        super().__init__(api, cpus)
        self.beside: list[str] = []

    async def once(self) -> None:
        asked = Counter()
        for one in self.api.objects(PODS):
            if node := one["spec"].get("nodeName") or one.get("status", {}).get("nominatedNodeName"):
                asked[node] += cpus_of(one)
        for one in self.api.objects(PODS):
            node = one.get("status", {}).get("nominatedNodeName")
            free = one["metadata"]["namespace"] != OURS and not one["spec"].get("nodeName")
            free = free and not one["spec"].get("schedulingGates")
            waits = [p for p in ours(self.api) if not p["spec"].get("nodeName")]
            if node and free and (asked[node] > self.cpus or any(wanted_node(p) == [node] for p in waits)):
                self.beside.append(node)
        await super().once()


async def test_owners_get_their_places_one_after_the_other_on_each_node(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """kube-scheduler counts one that is nominated beside its placeholder: others would seem not to fit."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=4, cpu="1"))
    async with keeping(scheduler=Watched) as program:
        await eventually(lambda: stand(api) == {"n1": 4})
        for number in range(4):
            api.put(PODS, gated(make_pod(f"checkout-{number}", cpu="1", app="checkout")))
        await eventually(lambda: len(nodes_of(api, "checkout")) == 4)
        assert program.scheduler.beside == []


async def test_an_owner_that_may_not_run_there_gets_no_place(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """The slot would go to whoever waits, and then the next one."""
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name, labels={"disk": name}))
    api.put(POLICIES, make_policy(count=2, cpu="2"))
    api.put(PODS, make_pod("there-1", cpu="2", node="n1"))
    api.put(PODS, make_pod("there-2", cpu="2", node="n2"))
    async with keeping():
        await eventually(lambda: stand(api) == {"n1": 1, "n2": 1})
        before = {one["metadata"]["uid"] for one in ours(api)}
        odd = gated(make_pod("checkout-1", cpu="2", app="checkout"))
        api.put(PODS, odd | {"spec": odd["spec"] | {"nodeSelector": {"disk": "n3"}}})
        await eventually(
            lambda: not api.get_object(PODS, "default", "checkout-1")["spec"].get("schedulingGates")
        )
        assert {one["metadata"]["uid"] for one in ours(api)} == before
        api.remove(PODS, "default", "checkout-1")
        fits = gated(make_pod("checkout-2", cpu="2", app="checkout"))
        api.put(PODS, fits | {"spec": fits["spec"] | {"nodeSelector": {"disk": "n2"}}})
        await eventually(lambda: nodes_of(api, "checkout-2") == {"checkout-2": "n2"})


class Misfits(Scheduler):
    """Finds no node for owners, by what the ledger knows nothing of."""

    async def once(self) -> None:
        for one in self.api.objects(PODS):
            if one["metadata"]["namespace"] != OURS:
                refuse(self.api, one)
            elif not one["spec"].get("nodeName"):
                meta = one["metadata"]
                await self.api.bind(OURS, meta["name"], meta["uid"], wanted_node(one)[0], {})


async def test_where_one_owner_got_its_place_in_vain_the_next_one_waits(
    api, keeping, make_node, make_pod, make_policy, eventually, monkeypatch
):
    """Each would cost the policy a placeholder for a while."""
    monkeypatch.setattr(hand_over, "UNGATED_SECONDS", 0.05)
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=3, cpu="1"))

    def deleted() -> int:
        return sum(call[:2] == ("delete", PODS) for call in api.calls)

    async with keeping(scheduler=Misfits):
        await eventually(lambda: stand(api) == {"n1": 3})
        for number in range(3):
            api.put(PODS, make_pod(f"checkout-{number}", cpu="1", app="checkout"))
        await eventually(lambda: deleted() and stand(api) == {"n1": 3})
        assert deleted() == 1


async def test_no_placeholder_waits_for_the_place_that_an_owner_is_to_get(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """An owner that does not name its policy's class is lower than who stands by, of any policy."""
    api.put(NODES, make_node("n1"))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    api.put(POLICIES, make_policy(count=2, cpu="2", priorityClassName="high"))
    api.put(PODS, make_pod("checkout-1", cpu="2", app="checkout", node="n1"))
    async with keeping(scheduler=Watched) as program:
        await eventually(lambda: stand(api) == {"n1": 1} and len(ours(api)) == 2)  # one stands by
        api.put(PODS, gated(make_pod("checkout-2", cpu="2", app="checkout")))
        await eventually(lambda: len(nodes_of(api, "checkout")) == 2)
        assert program.scheduler.beside == []


async def test_an_owner_waits_for_the_placeholder_that_is_on_its_way(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """Were its gate lifted, it would preempt, and evict somebody else."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="2"))
    api.put(PODS, gated(make_pod("checkout-1", cpu="2", app="checkout")))
    async with keeping():
        await eventually(lambda: nodes_of(api, "checkout") == {"checkout-1": "n1"})
        pod = api.get_object(PODS, "default", "checkout-1")
        assert pod["metadata"]["annotations"][keys.POLICY_ANNOTATION] == "default/checkout"
        assert pod["status"]["nominatedNodeName"] == "n1"


async def test_an_owner_inherits_the_place_of_its_predecessor_that_is_ending(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """On a full node, beside a pod that waits for the room: a rollout evicts nobody, and loses no slot."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="2"))
    before = make_pod("checkout-1", cpu="2", app="checkout", node="n1")
    before["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    api.put(PODS, before)
    api.put(PODS, make_pod("there", cpu="2", node="n1"))
    api.put(PODS, make_pod("batch", cpu="2"))
    async with keeping() as program:
        await eventually(lambda: program.ledger.report()["default/checkout"].filled == 1)
        api.put(PODS, gated(make_pod("checkout-2", cpu="2", app="checkout")))
        await eventually(
            lambda: (
                api.get_object(PODS, "default", "checkout-2").get("status", {}).get("nominatedNodeName")
                == "n1"
            )
        )
        assert api.get_object(PODS, "default", "checkout-2")["spec"]["schedulingGates"]
        api.remove(PODS, "default", "checkout-1")
        await eventually(lambda: nodes_of(api, "checkout") == {"checkout-2": "n1"})
        assert program.scheduler.history == ["checkout-2"]


async def test_a_placeholder_that_somebody_else_deleted_gives_no_place(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """Its place may be taken: the owner gets another one."""
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name))
    api.put(POLICIES, make_policy(count=2, cpu="3"))
    async with keeping():
        await eventually(lambda: stand(api) == {"n1": 1, "n2": 1})
        api.fail("delete", NotFound(404, "NotFound", "gone"), resource=PODS)
        api.put(PODS, gated(make_pod("checkout-1", cpu="3", app="checkout")))
        await eventually(lambda: nodes_of(api, "checkout"))
        (node,) = nodes_of(api, "checkout").values()
        await eventually(lambda: stand(api) == {other: 1 for other in ("n1", "n2") if other != node})


@pytest.mark.parametrize(
    ("verb", "applied"), [("patch", False), ("patch", True), ("delete", False), ("delete", True)]
)
async def test_a_hand_over_that_fails_is_done_again(
    api, keeping, make_node, make_pod, make_policy, eventually, verb, applied
):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=2, cpu="2"))
    async with keeping() as program:
        await eventually(lambda: stand(api) == {"n1": 2})
        api.fail(verb, Unreachable("cut"), resource=PODS, applied=applied)
        owner = make_pod("checkout-1", cpu="2", app="checkout")
        owner["spec"]["schedulingGates"] = [{"name": keys.HAND_OVER_GATE}]
        api.put(PODS, owner)
        await eventually(lambda: nodes_of(api, "checkout") == {"checkout-1": "n1"})
        await eventually(lambda: program.ledger.report()["default/checkout"].filled == 1)
        await eventually(lambda: stand(api) == {"n1": 1})


async def test_where_the_api_server_refuses_the_hand_over_the_gate_is_lifted(
    api, keeping, make_node, make_pod, make_policy, eventually, monkeypatch
):
    """Without the right to nominate, say: it waited for ever, although there was room elsewhere."""
    monkeypatch.setattr(hand_over, "PATIENCE_SECONDS", 1.0)
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name))
    api.put(POLICIES, make_policy(count=2, cpu="2"))
    patch = api.patch

    async def narrowed(resource, namespace, name, body, *, subresource=""):
        if resource is PODS and subresource == "status":
            raise APIError(403, "Forbidden", "cannot patch resource pods/status")
        return await patch(resource, namespace, name, body, subresource=subresource)

    monkeypatch.setattr(api, "patch", narrowed)
    async with keeping():
        await eventually(lambda: sum(stand(api).values()) == 2)
        api.put(PODS, gated(make_pod("checkout-1", cpu="2", app="checkout")))
        await eventually(lambda: nodes_of(api, "checkout"))


async def test_owners_whose_gates_may_not_be_lifted_keep_nobody_elses_from_being_lifted(
    api, keeping, make_node, make_pod, make_policy, eventually, monkeypatch
):
    """A tenant's admission is against it: each of them was tried without a pause, and others came behind."""
    refused, patch = [], api.patch

    async def admitted(resource, namespace, name, body, **options):
        if name.startswith("bad"):
            refused.append(name)
            raise APIError(403, "Forbidden", "admission is against it")
        return await patch(resource, namespace, name, body, **options)

    api.put(NODES, make_node("n1"))
    api.put(PODS, make_pod("there", cpu="4", node="n1"))
    api.put(POLICIES, make_policy(count=1, cpu="1"))
    monkeypatch.setattr(api, "patch", admitted)
    async with keeping():
        for number in range(200):
            api.put(PODS, gated(make_pod(f"bad-{number}", cpu="1", app="checkout")))
        await eventually(lambda: len({*refused}) == 200)
        refused.clear()
        api.put(PODS, gated(make_pod("good", cpu="1", app="checkout")))
        await eventually(lambda: not gates_of(api, "good"))
        assert len(refused) <= 200  # one pause may have ended
        await eventually(lambda: len({*refused}) == 200)  # they are tried again


def gates_of(api, name: str) -> list[dict[str, str]]:
    return api.get_object(PODS, "default", name)["spec"].get("schedulingGates") or []


async def test_an_owner_whose_gate_may_not_be_lifted_still_gets_a_place(
    api, keeping, make_node, make_pod, make_policy, eventually, monkeypatch
):
    """Admission may ask for what the hand-over writes beside it."""
    refused, patch = [], api.patch

    async def admitted(resource, namespace, name, body, *, subresource=""):
        if resource is PODS and not subresource and not body["metadata"].get("annotations"):
            refused.append(name)
            raise APIError(403, "Forbidden", "it has no policy")
        return await patch(resource, namespace, name, body, subresource=subresource)

    monkeypatch.setattr(api, "patch", admitted)
    monkeypatch.setattr(refusals, "FIRST_SECONDS", 600.0)
    async with keeping():
        api.put(POLICIES, make_policy(count=1, cpu="2"))
        api.put(PODS, gated(make_pod("checkout-1", cpu="2", app="checkout")))
        await eventually(lambda: refused)
        api.put(NODES, make_node("n1"))
        await eventually(lambda: nodes_of(api, "checkout") == {"checkout-1": "n1"})
        assert len(refused) == 1


async def test_a_burst_of_one_policys_owners_takes_no_place_from_another_while_writes_are_slow(
    api, keeping, make_node, make_pod, make_policy, eventually, monkeypatch
):
    """The second owner of a node waits for the first, and that one behind all the others."""
    monkeypatch.setattr(hand_over, "AT_ONCE", 1)
    monkeypatch.setattr(hand_over, "BEGUN", 2)
    monkeypatch.setattr(hand_over, "PATIENCE_SECONDS", 0.5)
    patch = api.patch

    async def slowly(resource, namespace, name, body, **options):
        if resource is PODS:
            await asyncio.sleep(0.15)
        return await patch(resource, namespace, name, body, **options)

    for number in range(6):
        api.put(NODES, make_node(f"n{number}"))
    api.put(POLICIES, make_policy("a", count=5, cpu="4"))
    api.put(POLICIES, make_policy("b", count=2, cpu="2"))
    async with keeping():
        await eventually(lambda: sorted(stand(api).values()) == [1, 1, 1, 1, 1, 2])
        monkeypatch.setattr(api, "patch", slowly)
        for app, cpu, count in (("a", "4", 5), ("b", "2", 2)):
            for number in range(count):
                api.put(PODS, gated(make_pod(f"{app}-{number}", cpu=cpu, app=app)))
        await eventually(lambda: len(nodes_of(api, "a-") | nodes_of(api, "b-")) == 7)
    for one in [p for p in api.objects(PODS) if p["metadata"]["namespace"] != OURS]:
        policy = f"default/{one['metadata']['labels']['app']}"
        assert one["metadata"]["annotations"][keys.POLICY_ANNOTATION] == policy


async def test_evictions_for_owners_are_counted_once_and_told(
    api, keeping, make_node, make_pod, make_policy, eventually, metrics
):
    """The owner came while nobody was there; kube-scheduler's Event tells of it, also after a restart."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="2"))
    owner = api.put(PODS, make_pod("checkout-1", cpu="2", app="checkout", node="n1"))
    stranger = api.put(PODS, make_pod("stranger", cpu="1", node="n1"))
    for number, preemptor in enumerate((owner, stranger)):
        note = f"Preempted by pod {preemptor['metadata']['uid']} on node n1"
        victim = {"kind": "Pod", "namespace": "default", "name": f"batch-{number}"}
        event = {"reason": "Preempted", "note": note, "regarding": victim}
        api.put(EVENTS, {"metadata": {"name": f"preempted-{number}", "namespace": "default"}, **event})

    def told() -> list[str]:
        return [one["note"] for one in api.objects(EVENTS) if one["reason"] == "EvictedForOwner"]

    async with keeping():
        await eventually(told)
    async with keeping() as program:
        await eventually(lambda: program.ledger.report().get("default/checkout") is not None)
        await program.keeper.evictions.run_once()
    assert told() == [
        "pod default/batch-0 was evicted from node n1 for default/checkout-1: no place was handed over to it"
    ]


async def test_an_owner_of_another_scheduler_is_told_of(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """That one does not heed a nomination: others take the room meanwhile, or are evicted for the owner."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=2, cpu="1"))

    def guarded() -> tuple[str, str]:
        conditions = api.get_object(POLICIES, "default", "checkout").get("status", {}).get("conditions", ())
        found = {one["type"]: one for one in conditions}.get("Guarded", {})
        return found.get("status", ""), found.get("reason", "")

    owner = make_pod("checkout-1", cpu="1", app="checkout", node="n1")
    owner["spec"]["schedulerName"] = "batch"
    async with keeping() as program:
        api.put(PODS, make_pod("checkout-0", cpu="1", app="checkout", node="n1"))
        await eventually(lambda: guarded()[0] == "True")
        note = f"Preempted by pod {api.put(PODS, owner)['metadata']['uid']} on node n1"
        victim = {"kind": "Pod", "namespace": "default", "name": "batch-0"}
        event = {"reason": "Preempted", "note": note, "regarding": victim}
        await eventually(lambda: guarded() == ("False", "OwnersOfAnotherScheduler"))
        api.put(EVENTS, {"metadata": {"name": "preempted", "namespace": "default"}, **event})
        await program.keeper.evictions.run_once()
        (told,) = [one["note"] for one in api.objects(EVENTS) if one["reason"] == "EvictedForOwner"]
        assert told.endswith("it is of batch, and places are kept for owners of default-scheduler alone")
        api.remove(PODS, "default", "checkout-1")
        await eventually(lambda: guarded()[0] == "True")
