"""Placeholders stand where holds lie, and nothing is counted twice."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

from adapters.api import (
    CAPACITY_BUFFERS,
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    APIError,
)
from extender import placeholders
from extender.config import Autoscaling, Placeholders
from extender.roaming import MOST
from qos import keys
from tests.extender.placeholder_cluster import (
    OURS,
    before_each_pod,
    condition,
    cpus_of,
    gated,
    nodes_of,
    ours,
    requested,
    stand,
)
from tests.waiting import running as beside


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


async def test_a_policy_whose_placeholders_are_refused_keeps_nobody_elses_from_being_made(
    api, keeping, make_node, make_policy, eventually, monkeypatch
):
    """A LimitRange or admission refuses them always; more of them than one round takes come first."""
    refused = []

    async def admitted(body):
        if cpus_of(body) == 3:
            refused.append(body)
            raise APIError(403, "Forbidden", "maximum cpu usage per Container is 2")

    before_each_pod(api, monkeypatch, admitted)
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


async def test_a_policy_that_is_edited_all_the_time_keeps_nobody_elses_from_being_made(
    api, keeping, make_node, make_policy, eventually, monkeypatch
):
    """Each edit of its floor makes all of its placeholders anew, and they are more than one round takes."""
    monkeypatch.setattr(placeholders, "_A_ROUND", 5)
    for number in range(8):
        api.put(NODES, make_node(f"n{number}", cpu="16"))
    api.put(POLICIES, make_policy("first", count=40, cpu="1"))

    edited = []

    async def edits():
        for number in itertools.count(1001):
            cpu = f"{number}m"
            api.put(POLICIES, make_policy("first", count=40, cpu=cpu))
            await eventually(lambda cpu=cpu: any(requested(one) == cpu for one in ours(api)))
            edited.append(cpu)

    async with keeping(cpus=16):
        await eventually(lambda: sum(stand(api).values()) == 40)
        async with beside(edits()):
            await eventually(lambda: len(edited) >= 3)
            api.put(POLICIES, make_policy("other", count=1, cpu="3"))
            await eventually(lambda: 3 in [cpus_of(one) for one in ours(api) if one["spec"].get("nodeName")])


async def test_policies_that_are_edited_all_the_time_keep_no_later_one_waiting(
    api, keeping, make_node, make_policy, eventually, monkeypatch
):
    """They ask in each round for more than it takes, and all of them come first."""
    monkeypatch.setattr(placeholders, "_A_ROUND", 5)
    for number in range(8):
        api.put(NODES, make_node(f"n{number}", cpu="16"))
    made = []

    async def told(body):
        made.append(requested(body))

    def edit(cpu):
        for number in range(20):
            api.put(POLICIES, make_policy(f"p{number:02}", count=1, cpu=cpu))

    async def edits():
        for number in itertools.count(1001):
            edit(f"{number}m")
            await eventually(lambda cpu=f"{number}m": cpu in made)

    before_each_pod(api, monkeypatch, told)
    edit("1000m")
    async with keeping(cpus=16) as program:
        await eventually(lambda: sum(stand(api).values()) == 20)
        async with beside(edits()):
            await eventually(lambda: len(made) >= 40)
            api.put(POLICIES, make_policy("zz", count=1, cpu="3"))
            await eventually(lambda: "default/zz" in program.ledger.report())
            before = len(made)
            await eventually(lambda: {"3", "3000m"} & {*made} or len(made) - before > 200)
            assert len(made) - before <= 100


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
        assert all(roams(one) for one in ours(api))
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


def roams(body) -> bool:
    return "affinity" not in body["spec"]


async def test_what_is_held_does_not_wait_behind_those_that_roam(
    api, keeping, make_node, make_policy, eventually, monkeypatch
):
    """On an API server that takes long for each: 50 are still to be made when a policy comes."""
    roaming, held, done = [], asyncio.Event(), asyncio.Event()

    async def slow(body):
        if roams(body):
            roaming.append(body)
            await (held if len(roaming) <= placeholders._ROAMING_A_ROUND else done).wait()

    before_each_pod(api, monkeypatch, slow)
    api.put(NODES, make_node("n1"))
    async with keeping() as program:
        api.put(POLICIES, make_policy("large", count=50, cpu="8"))
        await eventually(lambda: roaming)
        api.put(POLICIES, make_policy(count=2, cpu="1"))
        await eventually(lambda: sum(program.ledger.holds_on("n1").values()) == 2)
        held.set()
        await eventually(lambda: stand(api) == {"n1": 2})
        assert len(roaming) < 50
        done.set()
        await eventually(lambda: len(ours(api)) == 52)


async def test_what_is_held_does_not_wait_because_those_that_roam_are_refused(
    api, keeping, make_node, make_policy, eventually, monkeypatch
):
    refused = []

    async def limited(body):
        if roams(body):
            refused.append(body)
            raise APIError(403, "Forbidden", "exceeded quota: pods=2")

    before_each_pod(api, monkeypatch, limited)
    api.put(NODES, make_node("n1", cpu="4"))
    api.put(POLICIES, make_policy(count=3, cpu="2"))
    async with keeping():
        await eventually(lambda: stand(api) == {"n1": 2})
        await eventually(lambda: len(refused) >= 3)  # the pause is four seconds now
        before = len(refused)
        gone = ours(api)[0]["metadata"]
        api.remove(PODS, gone["namespace"], gone["name"])
        await eventually(lambda: stand(api) == {"n1": 2})
        assert len(refused) == before
        assert condition(api, keys.GUARDED)[1] == "Guarded"


async def test_policies_share_what_may_wait_before_any_is_made(
    api, keeping, make_node, make_policy, eventually, monkeypatch
):
    made = []

    async def told(body):
        made.append(body)

    before_each_pod(api, monkeypatch, told)

    def waits():
        return Counter(one["metadata"]["annotations"][keys.PLACEHOLDER_OF_ANNOTATION] for one in ours(api))

    api.put(NODES, make_node("n1"))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    for name in "bc":
        api.put(POLICIES, make_policy(name, count=100, cpu="8"))
    async with keeping():
        await eventually(lambda: sorted(waits().values()) == [50, 50])
        assert len(made) == MOST
        api.put(POLICIES, make_policy("a", count=100, cpu="8", priorityClassName="high"))
        await eventually(lambda: sorted(waits().values()) == [25, 25, 50])
        assert len(made) == MOST + 50


async def test_observe_makes_none(api, keeping, make_node, make_policy, eventually):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="1"))
    async with keeping(mode="Observe"):
        await eventually(lambda: condition(api, keys.GUARDED)[1] == "ObserveMode")
        assert not ours(api)


async def test_observe_takes_away_what_another_mode_left(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """It refuses nobody, so no placeholder may stand in anyone's way, and no owner wait for a hand-over."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=4, cpu="1"))
    async with keeping():
        await eventually(lambda: stand(api) == {"n1": 4})
    api.put(PODS, gated(make_pod("checkout-1", cpu="1", app="checkout")))
    async with keeping(mode="Observe"):
        api.put(PODS, make_pod("batch", cpu="1"))
        await eventually(lambda: not ours(api))
        await eventually(lambda: nodes_of(api, "") == {"batch": "n1", "checkout-1": "n1"})
