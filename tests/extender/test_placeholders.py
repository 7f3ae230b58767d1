"""Placeholders stand where holds lie, owners get their places, and nothing is counted twice."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import Counter

import orjson
import pytest

from adapters.api import (
    CAPACITY_BUFFERS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    WEBHOOKS,
    APIError,
    Conflict,
    NotFound,
    Unreachable,
)
from adapters.webhooks.server import application
from extender import hand_over, placeholders, priority_classes
from extender.config import Autoscaling, Keeper, Placeholders, Webhook
from extender.gate import PATH, Gate
from qos import keys
from tests.waiting import running as beside

OURS = "j10ce-placeholders"


class Scheduler:
    """Binds what fits, by whole CPUs of a node; a gated pod waits. Who was nominated goes there first."""

    def __init__(self, api, cpus: int) -> None:
        self.api, self.cpus = api, cpus
        self.history: list[str] = []
        self.most_nominated = 0
        """Pods that waited for the same node at once."""

    async def run(self) -> None:
        while True:
            with contextlib.suppress(NotFound, Conflict):
                await self.once()
            await asyncio.sleep(0.002)

    async def once(self) -> None:
        for one in ours(self.api):  # as the API server does
            if "priority" not in one["spec"]:
                one["spec"]["priority"] = int(one["spec"]["priorityClassName"].rpartition("-")[2])
                self.api.put(PODS, one)
        pods = self.api.objects(PODS)
        used = Counter()
        for one in pods:
            if node := one["spec"].get("nodeName") or one.get("status", {}).get("nominatedNodeName"):
                used[node] += cpus_of(one)
        nominated = [p for p in pods if "nominatedNodeName" in p.get("status", {})]
        there = Counter(p["status"]["nominatedNodeName"] for p in nominated if not p["spec"].get("nodeName"))
        self.most_nominated = max(self.most_nominated, *there.values(), 0)
        waiting = [p for p in pods if not p["spec"].get("nodeName") and not p["spec"].get("schedulingGates")]
        for one in sorted(waiting, key=lambda p: -p["spec"].get("priority", 0)):
            nominated = one.get("status", {}).get("nominatedNodeName")
            free = dict.fromkeys([n["metadata"]["name"] for n in self.api.objects(NODES)], self.cpus)
            nodes = [nominated] if nominated else wanted_node(one) or sorted(free)
            fit = [n for n in nodes if used[n] + (0 if n == nominated else cpus_of(one)) <= self.cpus]
            name = one["metadata"]["name"]
            if fit:
                await self.api.bind(one["metadata"]["namespace"], name, one["metadata"]["uid"], fit[0], {})
                self.history.append(name)
                return
            refuse(self.api, one)


def refuse(api, pod) -> None:
    if pod["metadata"]["namespace"] != OURS and not pod.get("status", {}).get("conditions"):
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "lastTransitionTime": "2027-01-15T08:00:00Z",
        }
        api.put(PODS, pod | {"status": {"phase": "Pending", "conditions": [condition]}})


def cpus_of(pod) -> int:
    asked = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return int(asked[:-1]) // 1000 if asked.endswith("m") else int(asked)


def wanted_node(pod) -> list[str]:
    affinity = pod["spec"].get("affinity")
    if not affinity:
        return []
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return required["nodeSelectorTerms"][0]["matchFields"][0]["values"]


def ours(api):
    return [one for one in api.objects(PODS) if one["metadata"]["namespace"] == OURS]


def stand(api) -> Counter:
    return Counter(one["spec"]["nodeName"] for one in ours(api) if one["spec"].get("nodeName"))


def nodes_of(api, prefix: str) -> dict[str, str]:
    pods = [p for p in api.objects(PODS) if p["metadata"]["name"].startswith(prefix)]
    return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName")}


@pytest.fixture
def keeping(api, running):
    """keeping(cpus): a cluster whose scheduler knows nothing of us, and our program beside it."""

    @contextlib.asynccontextmanager
    async def run(cpus=4, scheduler=Scheduler, **options):
        scheduler = scheduler(api, cpus)
        async with beside(scheduler.run()), running(api, keeper=Keeper.PLACEHOLDERS, **options) as program:
            program.scheduler = scheduler
            yield program

    return run


async def test_placeholders_stand_where_holds_lie_and_follow_the_policy(
    api, keeping, make_node, make_policy, eventually
):
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name))
    api.put(POLICIES, make_policy(count=3, cpu="1"))
    async with keeping() as program:
        await eventually(lambda: sum(stand(api).values()) == 3)
        report = program.ledger.report()["default/checkout"]
        assert (report.held, report.filled, dict(report.holds)) == (3, 0, dict(stand(api)))
        await eventually(lambda: condition(api, keys.GUARDED)[:2] == ("True", "Guarded"))
        api.put(POLICIES, make_policy(count=1, cpu="1"))
        await eventually(lambda: sum(stand(api).values()) == 1)
        api.put(POLICIES, make_policy(count=1, cpu="2"))  # another form
        await eventually(lambda: [cpus_of(one) for one in ours(api)] == [2])
        api.remove(POLICIES, "default", "checkout")
        await eventually(lambda: not ours(api))


def condition(api, kind: str) -> tuple[str, str, str]:
    status = api.get_object(POLICIES, "default", "checkout").get("status", {})
    found = {
        one["type"]: (one["status"], one["reason"], one["message"]) for one in status.get("conditions", ())
    }
    return found.get(kind, ("", "", ""))


async def test_what_a_placeholder_is(api, keeping, make_node, make_policy, eventually):
    api.put(NODES, make_node("n1"))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    api.put(POLICIES, make_policy(count=1, cpu="2", priorityClassName="high"))
    async with keeping():
        await eventually(lambda: stand(api) == {"n1": 1})
    (one,) = ours(api)
    assert one["metadata"]["labels"] == {keys.PLACEHOLDER_LABEL: "true"}
    assert one["spec"]["priorityClassName"] == "j10ce-placeholder-1000"
    assert one["spec"]["terminationGracePeriodSeconds"] == 0
    assert one["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2000m"}, "limits": {}}
    made = api.get_object(PRIORITY_CLASSES, "", "j10ce-placeholder-1000")
    assert (made["value"], made["preemptionPolicy"]) == (1000, "Never")


async def test_what_owners_are_raised_to_is_said_once_its_class_is_there(
    api, keeping, make_node, make_policy, eventually, monkeypatch
):
    """The API server would refuse owners of a class that is not there."""
    monkeypatch.setattr(priority_classes, "AGAIN_SECONDS", 0.5)
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "j10ce-owner-1"}, "value": 7})
    hook = Webhook(address="127.0.0.1:0", url="https://127.0.0.1:1")
    async with keeping(placeholders=Placeholders(webhook=hook)):
        await eventually(lambda: condition(api, keys.GUARDED)[0] == "True")
        assert raised_to(api) is None  # somebody made one, with another value
        api.remove(PRIORITY_CLASSES, "", "j10ce-owner-1")
        await eventually(lambda: raised_to(api) == 1)
        made = api.get_object(PRIORITY_CLASSES, "", "j10ce-owner-1")
        assert (made["value"], made["preemptionPolicy"]) == (1, "PreemptLowerPriority")
        api.remove(PRIORITY_CLASSES, "", "j10ce-owner-1")
        await eventually(lambda: raised_to(api) == 1 and api.objects(PRIORITY_CLASSES))
        api.put(POLICIES, make_policy(count=1, suspend=True))
        await eventually(lambda: raised_to(api) is None)


async def test_without_a_webhook_that_takes_them_back_owners_are_not_raised(
    api, keeping, make_node, make_policy, eventually
):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "j10ce-owner-1"}, "value": 1})
    async with keeping():
        await eventually(lambda: condition(api, keys.GUARDED)[0] == "True")
        assert raised_to(api) is None


async def test_where_the_webhook_is_refused_owners_are_not_raised(
    api, keeping, make_node, make_policy, eventually
):
    """Nobody would take them back, while we are there."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "j10ce-owner-1"}, "value": 1})
    api.fail("patch", APIError(403, "Forbidden", "no"), resource=WEBHOOKS, times=1000)
    hook = Webhook(address="127.0.0.1:0", url="https://127.0.0.1:1")
    async with keeping(placeholders=Placeholders(webhook=hook)):
        await eventually(lambda: condition(api, keys.GUARDED)[0] == "True")
        await eventually(lambda: raised_to(api) is None)
        await asyncio.sleep(1.0)
        assert raised_to(api) is None


def raised_to(api) -> int | None:
    return api.get_object(POLICIES, "default", "checkout").get("status", {}).get("ownerPriority")


async def test_placeholders_run_the_image_that_is_named(api, keeping, make_node, make_policy, eventually):
    """Those of the form before go once the new ones stand."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=2, cpu="1"))
    async with keeping():
        await eventually(lambda: stand(api) == {"n1": 2})
        assert {one["spec"]["volumes"][0]["configMap"]["name"] for one in ours(api)} == {"never-there"}
    async with keeping(placeholders=Placeholders(image="registry.example/pause:3")):
        await eventually(lambda: {image_of(one) for one in ours(api)} == {"registry.example/pause:3"})
        await eventually(lambda: stand(api) == {"n1": 2} and len(ours(api)) == 2)
    for one in ours(api):
        assert one["spec"]["volumes"] == one["spec"]["containers"][0]["volumeMounts"] == []
        assert one["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
        assert one["spec"]["securityContext"]["runAsNonRoot"]


def image_of(pod) -> str:
    return pod["spec"]["containers"][0]["image"]


async def test_a_pod_with_the_label_elsewhere_is_a_claim(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """Else whoever may set a label takes capacity that nobody counts."""
    api.put(NODES, make_node("n1"))
    api.put(PODS, make_pod("stranger", cpu="3", node="n1", labels={keys.PLACEHOLDER_LABEL: "true"}))
    api.put(PODS, make_pod("unlabelled", cpu="1", node="n1", namespace=OURS))
    api.put(POLICIES, make_policy(count=1, cpu="1"))
    async with keeping() as program:
        await eventually(lambda: "default/checkout" in program.ledger.report())
        assert program.ledger.report()["default/checkout"].held == 0


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


def gated(pod):
    pod["spec"]["schedulingGates"] = [{"name": keys.HAND_OVER_GATE}]
    return pod


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


async def test_holds_move_out_of_a_refused_pods_way(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name))
    api.put(PODS, make_pod("there", cpu="2", node="n1"))
    api.put(POLICIES, make_policy(count=1, cpu="1"))
    async with keeping(warmup_seconds=0) as program:
        await eventually(lambda: stand(api) == {"n1": 1})  # the fuller one
        api.put(PODS, make_pod("wide", cpu="3"))  # n2
        await eventually(lambda: nodes_of(api, "wide") == {"wide": "n2"})
        api.put(PODS, make_pod("large", cpu="2"))
        await eventually(lambda: nodes_of(api, "large") == {"large": "n1"})
        await eventually(lambda: stand(api) == {"n2": 1})
        assert dict(program.ledger.report()["default/checkout"].holds) == {"n2": 1}


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


def stand_by(api) -> Counter:
    waiting = [one for one in ours(api) if not one["spec"].get("nodeName")]
    nominated = (one.get("status", {}).get("nominatedNodeName") for one in waiting)
    return Counter(node for node in nominated if node)


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
        await eventually(lambda: stand_by(api) == {"n1": 3})
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


async def test_after_a_restart_holds_lie_where_placeholders_stand(
    api, keeping, make_node, make_policy, eventually
):
    for name in ("n1", "n2", "n3"):
        api.put(NODES, make_node(name))
    api.put(POLICIES, make_policy(count=2, cpu="1"))
    async with keeping():
        await eventually(lambda: sum(stand(api).values()) == 2)
    for one in ours(api):
        if one["spec"].get("nodeName"):
            one["spec"]["nodeName"] = "n3"
            api.put(PODS, one)
    names = {one["metadata"]["name"] for one in ours(api)}
    async with keeping() as program:
        await eventually(lambda: condition(api, keys.GUARDED)[0] == "True")
        assert dict(program.ledger.report()["default/checkout"].holds) == {"n3": 2}
    assert {one["metadata"]["name"] for one in ours(api)} == names


async def test_a_placeholder_that_kubelet_refused_is_made_again(
    api, keeping, make_node, make_policy, eventually
):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="1"))
    async with keeping():
        await eventually(lambda: stand(api) == {"n1": 1})
        (one,) = ours(api)
        api.put(PODS, one | {"status": {"phase": "Failed", "reason": "OutOfcpu"}})
        await eventually(
            lambda: stand(api) == {"n1": 1} and ours(api)[0]["metadata"]["uid"] != one["metadata"]["uid"]
        )


async def test_a_node_that_refuses_always_is_asked_ever_less(
    api, keeping, make_node, make_policy, eventually
):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=2, cpu="1"))
    refused = set()

    async def kubelet():
        while True:
            for one in ours(api):
                if one["spec"].get("nodeName") and not one.get("status", {}).get("phase"):
                    refused.add(one["metadata"]["uid"])
                    api.put(PODS, one | {"status": {"phase": "Failed", "reason": "OutOfcpu"}})
            await asyncio.sleep(0.002)

    async with keeping(), beside(kubelet()):
        await eventually(lambda: condition(api, keys.GUARDED)[0] == "False")
        await eventually(lambda: len(refused) >= 4)  # a second later
        assert len(refused) == 4
        await eventually(lambda: "on node n1 (OutOfcpu)" in condition(api, keys.GUARDED)[2])
        await eventually(lambda: not ours(api))


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


async def test_a_policy_whose_placeholders_are_refused_keeps_nobody_elses_from_being_made(
    api, keeping, make_node, make_policy, eventually, monkeypatch
):
    """A LimitRange or admission refuses them always; more of them than one round takes come first."""
    refused, create = [], api.create

    async def admitted(resource, namespace, body):
        if resource is PODS and cpus_of(body) == 3:
            refused.append(body)
            raise APIError(403, "Forbidden", "maximum cpu usage per Container is 2")
        return await create(resource, namespace, body)

    monkeypatch.setattr(api, "create", admitted)
    for number in range(110):
        api.put(NODES, make_node(f"n{number}"))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    api.put(POLICIES, make_policy(count=105, cpu="3", priorityClassName="high"))
    async with keeping():
        await eventually(lambda: refused)
        api.put(POLICIES, make_policy("other", count=2, cpu="1"))
        await eventually(lambda: sum(stand(api).values()) == 2)
        await eventually(lambda: "maximum cpu usage" in condition(api, keys.GUARDED)[2])
        assert len(refused) <= 3 * placeholders.AT_ONCE


async def test_where_autoscalers_are_asked_a_placeholder_waits_for_an_unplaced_slot(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """It comes before what waits as soon as there is room, on whatever node; no buffer is made."""
    api.put(NODES, make_node("n1"))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    api.put(PODS, make_pod("there", cpu="3", node="n1"))
    api.put(POLICIES, make_policy(count=2, cpu="2", priorityClassName="high"))
    async with keeping(autoscaling=Autoscaling(buffers=True)) as program:
        await eventually(lambda: len(ours(api)) == 2)
        assert not stand(api)
        assert not any("affinity" in one["spec"] for one in ours(api))
        await eventually(lambda: condition(api, keys.PROVISIONED)[1] == "PlaceholdersWait")
        for number in range(4):
            api.put(PODS, make_pod(f"batch-{number}", cpu="2"))
        names = {one["metadata"]["name"] for one in ours(api)}
        api.put(NODES, make_node("n2"))
        await eventually(lambda: stand(api) == {"n2": 2})
        await eventually(lambda: program.ledger.report()["default/checkout"].held == 2)
        await eventually(lambda: condition(api, keys.PROVISIONED)[1] == "NothingAsked")
        assert {one["metadata"]["name"] for one in ours(api)} == names
        assert not nodes_of(api, "batch")
        assert not api.objects(CAPACITY_BUFFERS[0])


async def test_one_that_roams_to_where_it_is_not_wanted_goes_and_is_not_made_again_at_once(
    api, keeping, make_node, make_policy, eventually
):
    api.put(NODES, make_node("n1", cpu="1"))
    api.put(POLICIES, make_policy(count=1, cpu="2"))
    made = set()

    async def strange_scheduler():
        while True:
            for one in ours(api):
                made.add(one["metadata"]["uid"])
                if not one["spec"].get("nodeName"):
                    one["spec"]["nodeName"] = "n1"
                    api.put(PODS, one)
            await asyncio.sleep(0.002)

    async with keeping(cpus=0, autoscaling=Autoscaling(buffers=True)), beside(strange_scheduler()):
        await eventually(lambda: len(made) == 2)
        await eventually(lambda: not ours(api))
        await asyncio.sleep(0.5)
        assert len(made) == 2  # the second pause is two seconds


async def test_observe_makes_none(api, keeping, make_node, make_policy, eventually):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="1"))
    async with keeping(mode="Observe"):
        await eventually(lambda: condition(api, keys.GUARDED)[1] == "ObserveMode")
        assert not ours(api)


async def test_the_webhook_is_registered_for_namespaces_with_policies(
    api, keeping, make_node, make_policy, eventually
):
    hook = Webhook(address="127.0.0.1:0", url="https://127.0.0.1:1")
    async with keeping(placeholders=Placeholders(webhook=hook)):
        api.put(NODES, make_node("n1"))
        api.put(POLICIES, make_policy())
        await eventually(lambda: registered(api) == ["default"])
        (one,) = api.objects(WEBHOOKS)[0]["webhooks"]
        assert (one["failurePolicy"], one["timeoutSeconds"]) == ("Ignore", 1)
        assert one["clientConfig"]["url"] == "https://127.0.0.1:1/gate"
        assert base64.b64decode(one["clientConfig"]["caBundle"]).startswith(b"-----BEGIN CERTIFICATE")
        api.remove(POLICIES, "default", "checkout")
        await eventually(lambda: registered(api) == [])
    assert api.objects(LEASES)


def registered(api) -> list[str] | None:
    found = api.objects(WEBHOOKS)
    if not found:
        return None
    return [v for h in found[0]["webhooks"] for v in h["namespaceSelector"]["matchExpressions"][0]["values"]]


async def asked(gate: Gate, body: bytes) -> bytes:
    """The webhook's answer over HTTP."""
    sent, parts = [], [body[at : at + 65536] for at in range(0, len(body), 65536)]

    async def receive():
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    await application({PATH: gate.review})({"path": PATH, "method": "POST"}, receive, send)
    assert sent[0]["status"] == 200
    return sent[1]["body"]


async def test_only_owners_whose_policy_can_hand_over_are_gated(
    api, keeping, make_node, make_pod, make_policy, eventually, metrics
):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="2"))

    def review_of(pod, namespace="default") -> bytes:
        return orjson.dumps({"request": {"uid": "u", "namespace": namespace, "object": pod}})

    def reviewed(gate: Gate, pod, namespace="default"):
        answer = orjson.loads(gate.review(review_of(pod, namespace)))["response"]
        assert (answer["uid"], answer["allowed"]) == ("u", True)
        return orjson.loads(base64.b64decode(answer["patch"])) if "patch" in answer else None

    async with keeping() as program:
        await eventually(lambda: program.keeper.standing.count(bound=True) == 1)
        there = program.ledger, metrics
        gate, alone = (Gate(*there, kept=lambda _: True, lifts=lambda up=up: up) for up in (True, False))
        owner = make_pod("checkout-1", cpu="2", app="checkout")
        (patch,) = reviewed(gate, owner)
        assert patch == {
            "op": "add",
            "path": "/spec/schedulingGates",
            "value": [{"name": keys.HAND_OVER_GATE}],
        }
        owner["spec"]["schedulingGates"] = [{"name": "example.com/other"}]
        (patch,) = reviewed(gate, owner)
        assert [one["name"] for one in patch["value"]] == ["example.com/other", keys.HAND_OVER_GATE]
        gang = make_pod("checkout-4", cpu="2", app="checkout")
        gang["spec"]["schedulingGates"] = [{"name": keys.GANG_GATE}]
        assert reviewed(gate, gang) is None, "each gate would wait for the other"
        assert reviewed(alone, owner) is None  # nobody would lift it
        assert reviewed(gate, owner, "elsewhere") is None
        assert reviewed(gate, make_pod("batch", cpu="2")) is None
        assert reviewed(gate, make_pod("checkout-2", cpu="2", app="checkout", node="n1")) is None
        mark, note = "j10ce.io~1raised-priority", "j10ce.io~1own-priority"
        removed = [f"/metadata/labels/{mark}", f"/metadata/annotations/{note}"]
        back = [{"op": "remove", "path": path} for path in removed]
        for own, name in (("1000 high", "high"), ("0 ", "")):
            raised = make_pod("checkout-3", cpu="2", app="checkout")
            raised["metadata"]["labels"][keys.RAISED_PRIORITY_LABEL] = "true"
            raised["metadata"]["annotations"] = {keys.OWN_PRIORITY_ANNOTATION: own}
            raised["spec"]["priorityClassName"] = f"j10ce-owner-{int(own.split()[0]) + 1}"
            *patch, gated = reviewed(gate, raised)
            path = "/spec/priorityClassName"
            assert patch == [
                *back,
                {"op": "replace", "path": "/spec/priority", "value": int(own.split()[0])},
                {"op": "replace", "path": path, "value": name} if name else {"op": "remove", "path": path},
            ]
            assert gated["path"] == "/spec/schedulingGates"
            assert reviewed(alone, raised) is None  # nobody hands over: it stays as the API server made it
        unread = raised | {"spec": raised["spec"] | {"resources": {"requests": {"cpu": "x"}}}}
        assert len(reviewed(gate, unread)) == 4  # what we cannot read stays above nobody, too
        raised["spec"]["containers"][0]["args"] = ["<" * 600_000]
        # The API server writes each by six bytes.
        answer = await asked(gate, review_of(raised).replace(b"<", b"\\u003c"))
        assert orjson.loads(answer)["response"]["patchType"] == "JSONPatch"
        del raised["spec"]["containers"][0]["args"]
        for forged in ("2000001000 system-node-critical", "9" * 5000):  # by whom nobody raised
            raised["metadata"]["annotations"] = {keys.OWN_PRIORITY_ANNOTATION: forged}
            assert len(reviewed(gate, raised)) == 1
        raised["metadata"]["annotations"] = {keys.OWN_PRIORITY_ANNOTATION: "0 "}
        raised["metadata"]["labels"][keys.RAISED_PRIORITY_LABEL] = "forged"
        assert len(reviewed(gate, raised)) == 1
        api.put(POLICIES, make_policy(count=0, cpu="2"))
        await eventually(lambda: not ours(api))
        assert reviewed(gate, owner) is None
