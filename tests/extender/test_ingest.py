"""What the API server shows reaches the ledger, whatever happens to connections and objects."""

from __future__ import annotations

import pytest

from adapters.api import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NODE_QOS,
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    PROFILES,
    APIError,
    NotFound,
)
from adapters.kubernetes import node_qos
from adapters.memory import MemoryAPI
from qos import keys
from qos.cluster.node_report import NodeReport, PromiseState
from qos.cluster.objects import Demand
from qos.cluster.precedence import Problem

pytestmark = pytest.mark.program


def deployment(replicas: int, cpu: str = "1") -> dict:
    template = {
        "metadata": {"labels": {"app": "checkout"}},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
    }
    return {
        "metadata": {"namespace": "default", "name": "checkout"},
        "spec": {"replicas": replicas, "template": template},
    }


def scaled(make_policy, **spec):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"}
    return make_policy(slots={"scaleTargetRef": target}, **spec)


def desired(program) -> int | str:
    one = program.catalog.resolved.get("default/checkout")
    if isinstance(one, Demand):
        return one.desired
    return one.reason if isinstance(one, Problem) else "unknown"


async def test_a_policy_follows_what_it_refers_to(running, make_node, make_policy, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1", cpu="64"))
    api.put(POLICIES, scaled(make_policy, profileName="gold"))
    async with running(api, reference_grace_seconds=0.0) as program:
        assert desired(program) == "ProfileNotFound"
        profile = {"metadata": {"name": "gold"}, "spec": {"class": "LS", "priorityClassName": "high"}}
        api.put(PROFILES, profile)
        await eventually(lambda: desired(program) == "WorkloadNotFound")
        api.put(DEPLOYMENTS, deployment(3))
        await eventually(lambda: desired(program) == "PriorityClassNotFound")
        api.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        await eventually(lambda: desired(program) == 3)
        assert program.catalog.resolved["default/checkout"].priority == 1000
        api.put(DEPLOYMENTS, deployment(5, cpu="3"))
        await eventually(lambda: desired(program) == 5)
        await eventually(lambda: program.ledger.report()["default/checkout"].held == 5)
        assert program.catalog.resolved["default/checkout"].vector["cpu"] == 3000
        api.remove(DEPLOYMENTS, "default", "checkout")
        await eventually(lambda: desired(program) == "WorkloadNotFound")
        assert not program.ledger.held_nodes()
        api.remove(POLICIES, "default", "checkout")
        await eventually(lambda: desired(program) == "unknown")
        assert "default/checkout" not in program.ledger.report()


async def test_the_lowest_global_default_counts_as_upstream_has_it(running, make_policy, eventually):
    api = MemoryAPI()
    for name, value in (("a", 500), ("b", 300)):
        api.put(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value, "globalDefault": True})
    api.put(POLICIES, make_policy())
    async with running(api, reference_grace_seconds=0.0) as program:
        assert program.catalog.resolved["default/checkout"].priority == 300
        api.remove(PRIORITY_CLASSES, "", "b")
        await eventually(lambda: program.catalog.resolved["default/checkout"].priority == 500)


async def test_a_write_of_status_alone_resolves_nothing(running, make_node, make_policy, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy())
    async with running(api) as program:
        before = program.catalog.resolved["default/checkout"]
        await eventually(lambda: api.get_object(POLICIES, "default", "checkout").get("status"))
        await eventually(lambda: program.catalog.policies["default/checkout"].status)
        assert program.catalog.resolved["default/checkout"] is before


async def test_t15_daemon_sets_are_expected_on_new_nodes(running, make_node, make_policy, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1", cpu="4"))
    api.put(POLICIES, make_policy(count=2, cpu="2"))
    body = deployment(0)
    body["metadata"] = {"namespace": "default", "name": "agent"}
    api.put(DAEMON_SETS, body)
    async with running(api) as program:
        report = program.ledger.report()["default/checkout"]
        assert (report.held, report.at_risk) == (2, 1)  # no other node has room for the second
        api.remove(DAEMON_SETS, "default", "agent")
        await eventually(lambda: program.ledger.report()["default/checkout"].at_risk == 0)


def bad(resource, make_node, make_pod, make_policy):
    if resource is NODES:
        node = make_node("bad")
        node["status"]["allocatable"]["cpu"] = "many"
        return node
    if resource is PODS:
        return make_pod("bad", cpu="many")
    policy = make_policy("bad")
    policy["spec"]["floor"] = {"resources": {"cpu": "-1"}}
    return policy


@pytest.mark.parametrize("resource", [NODES, PODS, POLICIES])
async def test_a_bad_object_is_told_and_skipped(
    running, resource, make_node, make_pod, make_policy, eventually
):
    api = MemoryAPI()
    api.put(resource, bad(resource, make_node, make_pod, make_policy))
    api.put(NODES, make_node("n1"))
    async with running(api) as program:
        api.put(resource, bad(resource, make_node, make_pod, make_policy))
        api.put(NODES, make_node("n2"))
        await eventually(lambda: {"n1", "n2"} <= set(program.view.nodes))
        assert not program.readiness.problem()
        await eventually(lambda: api.objects(EVENTS))
        event = api.objects(EVENTS)[0]
        assert event["reason"] == "Unreadable"
        assert event["regarding"]["name"] == "bad"
        skipped = f'j10ce_objects_skipped_total{{resource="{resource.plural}"}} 2.0'
        await eventually(lambda: skipped.encode() in program.metrics.exposition())


async def test_a_bad_change_keeps_the_last_good_state(running, make_node, make_policy, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=2))
    async with running(api) as program:
        broken = make_policy(count=2)
        broken["spec"]["floor"] = {"resources": {"cpu": "nonsense"}}
        api.put(POLICIES, broken)
        await eventually(lambda: api.objects(EVENTS))
        assert program.ledger.report()["default/checkout"].held == 2


async def test_t05_a_restart_rebuilds_from_pods_and_policies_alone(
    running, make_node, make_pod, make_policy, eventually
):
    api = MemoryAPI()
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name, cpu="4"))
    api.put(POLICIES, make_policy(count=3, cpu="2"))
    api.put(PODS, make_pod("owner", cpu="2", app="checkout", node="n1"))
    reports = []
    for _ in range(2):
        async with running(api) as program:
            reports.append(program.ledger.report())
            slots = reports[-1]["default/checkout"]
            assert (slots.filled, slots.held) == (1, 2)
            await eventually(lambda: api.get_object(POLICIES, "default", "checkout").get("status"))
            policy = api.get_object(POLICIES, "default", "checkout")
            policy["status"] = {"slots": {"filled": 99}}
            api.put(POLICIES, policy)  # status is derived, never the truth
    assert reports[0] == reports[1]


async def test_dropped_connections_lose_nothing(running, make_node, make_pod, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1"))
    async with running(api) as program:
        api.cut()
        for number in range(3):
            api.put(PODS, make_pod(f"p{number}", node="n1"))
        api.remove(PODS, "default", "p1")
        await eventually(lambda: program.ledger.gauges()["claims"] == 2)


async def test_410_gone_lists_again_and_forgets_what_is_gone(running, make_node, make_pod, eventually):
    api = MemoryAPI()
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name))
    api.put(PODS, make_pod("old", node="n1"))
    async with running(api) as program:
        assert program.ledger.gauges()["claims"] == 1
        api.remove(PODS, "default", "old")
        api.remove(NODES, "", "n2")
        api.put(PODS, make_pod("new", node="n1"))
        api.expire()
        await eventually(lambda: set(program.view.nodes) == {"n1"})
        await eventually(lambda: program.ledger.gauges()["pods"] == 1)
        assert not program.readiness.problem()


async def test_t05_a_slow_list_keeps_it_unready(running, make_node, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1"))
    gate = api.hang("list_page", resource=NODES)
    async with running(api, ready=False) as program:
        await eventually(lambda: program.reflectors["pods"].synced.is_set())
        assert program.readiness.problem() == "not listed yet: nodes"
        gate.set()
        await eventually(lambda: not program.readiness.problem())


async def test_a_server_that_is_away_at_first_is_waited_for(running, eventually):
    api = MemoryAPI()
    api.fail("list_page", times=12)
    async with running(api, ready=False) as program:
        await eventually(lambda: not program.readiness.problem())


async def test_t13_of_two_only_the_leader_writes_and_the_other_takes_over(
    running, make_node, make_policy, eventually
):
    api = MemoryAPI()
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy())
    async with running(api, identity="one") as first:
        await eventually(lambda: first.elector.is_leader)
        async with running(api, identity="two") as second:
            await eventually(lambda: api.get_object(POLICIES, "default", "checkout").get("status"))
            assert not second.elector.is_leader
            assert b'j10ce_status_writes_total{outcome="written"}' not in second.metrics.exposition()
            assert not second.readiness.problem(), "it answers verbs all the same"
            bad_policy = make_policy("bad")
            bad_policy["spec"]["floor"] = {"resources": {"cpu": "-1"}}
            api.put(POLICIES, bad_policy)
            await eventually(lambda: b'skipped_total{resource="min' in second.metrics.exposition())
            await eventually(lambda: api.objects(EVENTS))
            instances = {one["reportingInstance"] for one in api.objects(EVENTS)}
            assert instances == {"one"}, "events are said once"


async def test_t13_a_standby_makes_room_by_moves_too(running, make_node, make_pod, make_policy, eventually):
    """Nobody asks a standby for status or holds; it searches moves all the same."""
    api = MemoryAPI()
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name, cpu="4"))
        api.put(PODS, make_pod(f"on-{name}", cpu="2", node=name))
    api.put(POLICIES, make_policy("a", count=1, cpu="2"))
    api.put(POLICIES, make_policy("b", count=1, cpu="4"))
    async with running(api, identity="one") as first:
        await eventually(lambda: first.elector.is_leader)
        async with running(api, identity="two") as second:
            assert second.ledger.gauges()["unplaced"] == 1
            api.remove(PODS, "default", "on-n1")
            await eventually(lambda: second.ledger.gauges()["claims"] == 1)
            await eventually(lambda: second.ledger.gauges()["unplaced"] == 0)
            assert second.ledger.gauges()["moves_total"] == 1
            assert not second.elector.is_leader


async def test_t15_pods_that_bypass_degrade_the_policy(running, make_node, make_pod, make_policy, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1", cpu="4"))
    api.put(POLICIES, make_policy(count=2, cpu="2"))

    def condition(kind):
        found = (api.get_object(POLICIES, "default", "checkout").get("status") or {}).get("conditions", [])
        return next(((one["status"], one["reason"]) for one in found if one["type"] == kind), None)

    async with running(api) as program:
        await eventually(lambda: condition(keys.HELD) == ("True", "EverySlotHeld"))
        api.put(PODS, make_pod("intruder", cpu="3", node="n1", scheduler="other"))
        await eventually(lambda: condition(keys.HELD) == ("False", "SlotsUnplaced"))
        await eventually(lambda: condition(keys.GUARDED) == ("False", "PodsBypass"))
        slots = api.get_object(POLICIES, "default", "checkout")["status"]["slots"]
        assert {name: count for name, count in slots.items() if count} == {"desired": 2, "unplaced": 2}
        assert program.ledger.gauges()["overcommitted_nodes"] == 0


async def test_a_bug_costs_one_object_not_the_watch(running, make_node, make_pod, eventually, monkeypatch):
    api = MemoryAPI()
    api.put(NODES, make_node("n1"))
    async with running(api) as program:
        take, drop = program.ledger.set_pod, program.ledger.remove_pod

        def fail(call):
            def failing(what):
                if getattr(what, "name", what) in ("bad", bad_uid):
                    raise RuntimeError("a bug")
                return call(what)

            return failing

        bad_uid = api.put(PODS, make_pod("other"))["metadata"]["uid"]
        monkeypatch.setattr(program.ledger, "set_pod", fail(take))
        monkeypatch.setattr(program.ledger, "remove_pod", fail(drop))
        api.put(PODS, make_pod("bad", node="n1"))
        api.remove(PODS, "default", "other")
        api.put(PODS, make_pod("good", node="n1"))
        await eventually(lambda: program.ledger.gauges()["claims"] == 1)
        text = program.metrics.exposition()
        assert b'j10ce_objects_skipped_total{resource="pods"} 2.0' in text


async def test_a_ledger_that_cannot_be_built_ends_the_process(running, make_policy, eventually, monkeypatch):
    api = MemoryAPI()
    api.put(POLICIES, make_policy())
    async with running(api, ready=False) as program:
        monkeypatch.setattr(program.ledger, "set_demand", lambda demand: 1 / 0)
        await eventually(lambda: program.failed)
        assert program.readiness.problem() == "starting"


async def test_t21_after_a_restart_all_that_wait_ask_again_once(running, make_node, make_pod, eventually):
    """Only the process before knew which pods it had refused."""
    api = MemoryAPI()
    api.put(NODES, make_node("n1"))
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    for name, scheduler in (("ours", "default-scheduler"), ("theirs", "other")):
        pod = make_pod(name, scheduler=scheduler)
        pod["status"]["conditions"] = [unschedulable | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]
        api.put(PODS, pod)

    def woken(name):
        return keys.WAKE_ANNOTATION in (
            api.get_object(PODS, "default", name)["metadata"].get("annotations") or {}
        )

    async with running(api):
        await eventually(lambda: woken("ours"))
        assert not woken("theirs")


NO_CRD = NotFound(404, "NotFound", "the server could not find the requested resource")
NO_RIGHT = APIError(403, "Forbidden", "nodeqoses.j10ce.io is forbidden")


@pytest.mark.parametrize("error", [NO_CRD, NO_RIGHT], ids=["no CRD", "no right"])
async def test_without_node_qos_all_but_strict_policies_go_on_until_it_is_there(
    running, make_node, make_policy, eventually, caplog, error
):
    api = MemoryAPI()
    api.put(NODES, make_node("n1", cpu="64"))
    api.put(POLICIES, make_policy("plain"))
    api.put(POLICIES, make_policy("strict", nodeEnforcement="Strict"))
    api.fail("list_page", error, resource=NODE_QOS, times=4)

    def held(program) -> list[int]:
        report = program.ledger.report()
        return [report[f"default/{name}"].held for name in ("plain", "strict")]

    async with running(api) as program:
        assert not program.reflectors["nodeqoses"].synced.is_set()
        assert held(program) == [2, 0]
        (why,) = program.ledger.report()["default/strict"].unplaced
        assert (why.reason, why.detail) == ("NodeCannotEnforce", "n1: has no NodeQoS: no agent has reported")
        report = NodeReport("0.1.0", "6.12.0", "v2", "c", (PromiseState("floor (cpu)", True),))
        status = node_qos.status_of(report, (), 1.0)
        api.put(NODE_QOS, node_qos.new("n1", "u") | {"status": status})
        await eventually(lambda: held(program) == [2, 2])
    assert caplog.text.count("watch=nodeqoses") == 1
    assert caplog.text.count("nodeqoses not listed") == 1


async def test_a_node_that_is_gone_takes_its_report_along(running, make_node, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1"))
    api.put(NODE_QOS, node_qos.new("n1", "u"))
    async with running(api) as program:
        assert program.reports.agents == 1
        api.remove(NODES, "", "n1")
        await eventually(lambda: not program.reports.agents)
