"""Preview on an API server in memory: what is looked at, what is said, and when nothing is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest

from adapters.api import EVENTS, NODE_METRICS, NODES, POD_METRICS, PODS, NotFound
from adapters.kubernetes import decode
from adapters.kubernetes.events import EventWriter
from adapters.memory import MemoryAPI
from manager.loads import LoadSource
from manager.metrics import Metrics
from manager.rescheduling import Rounds
from manager.rescheduling_config import RescheduleMode, Rescheduling


def node(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": "10", "memory": "100Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, on: str, **meta: Any) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    return {
        "metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": [owner]} | meta,
        "spec": {"nodeName": on, "containers": [{"name": "m", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


class Desk:
    """A manager's rounds over two nodes, of which one is hot, and its three pods."""

    def __init__(self, api: MemoryAPI, time: Any, **config: Any) -> None:
        self.api, self.time, self.policies, self.skipped = api, time, {}, Counter()
        self.metrics = Metrics()
        self.events = EventWriter(api, lambda outcome: None, identity="me", clock=time, wall=time)
        pools = [{"name": "all", "anomalyCondition": {"consecutiveAbnormalities": 1}}]
        settings = Rescheduling.model_validate({"mode": "Preview", "nodePools": pools} | config)
        self.source = LoadSource(
            api,
            self.policies,
            settings.read(),
            skipped=lambda kind: self.skipped.update([kind]),
            stale_after=90,
            clock=time,
            wall=time,
        )
        self.rounds = Rounds(settings, self.source, None, self.events, self.metrics, clock=time, wall=time)
        self.hot = "7"
        for name, cpu in (("hot", self.hot), ("cool", "1")):
            api.put(NODES, node(name))
            self.uses(name, cpu)
        for name in ("a", "b", "c"):
            api.put(PODS, pod(name, "hot"))
            usage = {"usage": {"cpu": "1000000001n", "memory": "1Gi"}}
            api.put(POD_METRICS, {"metadata": {"namespace": "shop", "name": name}, "containers": [usage]})

    def uses(self, name: str, cpu: str) -> None:
        usage = {"cpu": cpu, "memory": "10Gi"}
        self.api.put(
            NODE_METRICS, {"metadata": {"name": name}, "timestamp": str(self.time()), "usage": usage}
        )

    def reports(self, name: str, cpu: str, pods: dict[str, str], /, **usage: Any) -> None:
        """A node's NodeQoS."""
        told = [{"pod": f"shop/{pod}", "cpu": used, "memory": "1Gi"} for pod, used in pods.items()]
        usage = {"measuredAt": str(self.time()), "cpu": cpu, "memory": "10Gi", "pods": told} | usage
        raw = orjson.dumps({"metadata": {"name": name}, "status": {"usage": usage}})
        self.source.usage.watch._on_set(raw)

    async def round(self) -> None:
        """A minute goes by, and all report again."""
        self.source._nodes = {
            one.name: one for one in map(decode.node, (await self.api.list_page(NODES)).items)
        }
        for raw in (await self.api.list_page(PODS)).items:
            self.source._set_pod(raw)
        self.time.now += 60
        for name, cpu in (("hot", self.hot), ("cool", "1")):
            self.uses(name, cpu)
        await self.rounds.run_when_due()
        await self.events.run_once()

    def notes(self) -> list[tuple[str, str, str]]:
        events = self.api.objects(EVENTS)
        return [(one["regarding"]["name"], one["reason"], one["note"]) for one in events]


@pytest.fixture
def desk(api: MemoryAPI, fake_time: Any) -> Desk:
    return Desk(api, fake_time)


async def test_preview_says_what_it_would_do_and_does_nothing(desk: Desk, api: MemoryAPI) -> None:
    before = api.objects(PODS)
    await desk.round()
    assert desk.notes() == []  # how old the first report was nobody knows
    await desk.round()
    assert [one.pod for one in desk.rounds.latest.migrations] == ["shop/a"]
    assert desk.notes() == [("a", "WouldMigrate", "would go from hot to cool: hot uses too much cpu")]
    assert api.objects(PODS) == before
    assert {verb for verb, resource, _ in api.calls if resource == PODS} == {"list_page"}
    assert b'j10ce_rescheduling_migrations_total{outcome="previewed"} 1.0' in desk.metrics.render()


async def test_pods_of_a_policy_stay(desk: Desk, make_policy: Any) -> None:
    policy = decode.policy(orjson.dumps(make_policy("checkout")))
    desk.policies[policy.key] = policy
    for name in ("a", "b", "c"):
        desk.api.put(PODS, pod(name, "hot", labels={"app": "checkout"}))
    await desk.round()
    await desk.round()
    said = [("hot", "StaysHot", "it uses 70 % of cpu (high 65): 3 pods: it has a floor")]
    assert desk.notes() == said
    desk.hot = "8"
    for _ in range(4):
        await desk.round()
    assert desk.notes() == said  # not at each new figure


async def test_without_metrics_nothing_moves_and_it_says_why(desk: Desk) -> None:
    await desk.round()
    desk.api.fail("list_page", NotFound(404, "NotFound", "no metrics"), resource=NODE_METRICS, times=9)
    await desk.round()
    assert desk.notes() == []
    why = "metrics.k8s.io does not say what nodes use: 404 NotFound: no metrics"
    assert desk.rounds.problem == f"no node has a fresh NodeQoS, and {why}"


def unserved(desk: Desk) -> None:
    """No metrics-server."""
    for resource in (NODE_METRICS, POD_METRICS):
        desk.api.fail("list_page", NotFound(404, "NotFound", "no metrics"), resource=resource, times=99)


ALIKE = {"a": "1", "b": "1", "c": "1"}


async def reported_rounds(desk: Desk, count: int, pods: dict[str, str]) -> None:
    for _ in range(count):
        desk.reports("hot", "7", pods)
        desk.reports("cool", "1", {})
        await desk.round()


async def test_without_metrics_nodes_reports_are_enough(desk: Desk) -> None:
    unserved(desk)
    await reported_rounds(desk, 1, ALIKE)
    assert "no node has a fresh NodeQoS" in desk.rounds.problem  # how old the first is nobody knows
    await reported_rounds(desk, 1, ALIKE)
    assert [one.pod for one in desk.rounds.latest.migrations] == ["shop/a"]
    assert (desk.rounds.problem, dict(desk.rounds.sources)) == (
        "",
        {"NodeQoS": 2, "metrics.k8s.io": 0, "unknown": 0},
    )


async def test_metrics_are_not_asked_where_all_nodes_report(desk: Desk) -> None:
    await reported_rounds(desk, 2, ALIKE)
    before = len(desk.api.calls)
    await reported_rounds(desk, 1, ALIKE)
    assert not {NODE_METRICS, POD_METRICS} & {resource for _, resource, _ in desk.api.calls[before:]}


async def test_a_node_that_does_not_report_is_known_from_metrics(desk: Desk) -> None:
    for _ in range(2):
        desk.reports("hot", "7", {"b": "1"})
        await desk.round()
    assert dict(desk.rounds.sources) == {"NodeQoS": 1, "metrics.k8s.io": 1, "unknown": 0}
    (only,) = desk.rounds.latest.migrations
    assert (only.pod, only.target) == ("shop/b", "cool"), "of a node that reports only what it says counts"


async def test_an_old_report_moves_nothing(desk: Desk) -> None:
    """Its heartbeat may go on: what counts is when usage was measured."""
    unserved(desk)
    await reported_rounds(desk, 2, ALIKE)
    stamp = str(desk.time())
    desk.source.usage.forget()
    for _ in range(4):
        desk.reports("hot", "7", ALIKE, measuredAt=stamp)
        desk.reports("cool", "1", {}, measuredAt=stamp)
        await desk.round()
    assert "no node has a fresh NodeQoS" in desk.rounds.problem
    assert desk.rounds.latest.pools == {}


async def test_what_changed_while_nobody_looked_is_not_new(desk: Desk) -> None:
    unserved(desk)
    await reported_rounds(desk, 2, ALIKE)
    desk.time.now += 600  # the API server was away
    await reported_rounds(desk, 1, ALIKE)
    assert "no node has a fresh NodeQoS" in desk.rounds.problem
    await reported_rounds(desk, 1, ALIKE)
    assert desk.rounds.problem == ""


async def test_a_node_says_nothing_of_pods_of_others(desk: Desk) -> None:
    unserved(desk)
    for _ in range(2):
        desk.reports("cool", "1", ALIKE)  # a lie: they run on the other
        desk.reports("hot", "7", {})
        await desk.round()
    assert desk.rounds.latest.migrations == ()
    assert "nobody says what it uses" in desk.rounds.latest.hot["hot"]


async def test_a_report_without_usage_counts_as_none(desk: Desk) -> None:
    unserved(desk)
    await reported_rounds(desk, 2, ALIKE)
    for name in ("hot", "cool"):
        desk.source.usage.watch._on_set(orjson.dumps({"metadata": {"name": name}, "status": {}}))
    await desk.round()
    assert "no node has a fresh NodeQoS" in desk.rounds.problem


async def test_pods_that_cannot_be_read_of_a_report_are_counted(desk: Desk) -> None:
    unserved(desk)
    for _ in range(2):
        desk.reports("hot", "7", ALIKE, pods=[{"pod": "shop/a", "cpu": "much"}])
        desk.reports("cool", "1", {})
        await desk.round()
    assert desk.rounds.latest.migrations == ()
    assert desk.skipped == {"NodeQoS": 1}


async def test_what_pods_use_is_asked_only_where_it_matters(desk: Desk) -> None:
    def asked() -> int:
        return sum(resource == POD_METRICS for _, resource, _ in desk.api.calls)

    for _ in range(2):
        await desk.round()
    assert asked() == 1  # in the first round nobody knew of a hot node
    desk.hot = "5"
    for _ in range(2):
        await desk.round()
    assert asked() == 1


async def test_a_report_that_does_not_change_is_old(desk: Desk) -> None:
    for _ in range(2):
        await desk.round()
    desk.uses = lambda name, cpu: None  # type: ignore[method-assign]
    for _ in range(4):
        await desk.round()
    assert desk.rounds.latest.pools["all"].unknown == 2


async def test_who_leads_again_begins_anew(desk: Desk) -> None:
    for _ in range(2):
        await desk.round()
    desk.rounds.forget()
    assert desk.rounds.latest.migrations == ()
    await desk.round()
    assert desk.rounds.latest.pools["all"].unknown == 2


async def test_what_cannot_be_read_is_counted(desk: Desk) -> None:
    desk.api.put(NODE_METRICS, {"metadata": {"name": "odd"}, "usage": {"cpu": "much"}})
    await desk.round()
    assert desk.skipped == {"NodeMetrics": 1}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"highThresholds": {"cpu": 50}}, "name different resources"),
        ({"lowThresholds": {"cpu": 60, "memory": 20}}, "nodePool p: cpu: low and high are 5 apart"),
        ({"prodLowThresholds": {"cpu": 1}}, "prod low and high thresholds"),
        ({"lowThresholds": {"cpu": 101}}, "less than or equal to 100"),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Rescheduling.model_validate({"nodePools": [{"name": "p"} | config]})


def test_the_configuration_becomes_settings() -> None:
    said = Rescheduling.model_validate(
        {
            "nodePools": [
                {
                    "name": "d",
                    "useDeviationThresholds": True,
                    "nodeSelector": {
                        "matchLabels": {"a": "b"},
                        "matchExpressions": [{"key": "c", "operator": "Exists"}],
                    },
                    "lowThresholds": {"cpu": 5},
                    "highThresholds": {"cpu": 5},
                }
            ],
            "maxMigratingPerWorkload": "20%",
            "maxUnavailablePerWorkload": 3,
        }
    ).read()
    assert (said.limits.workload, said.limits.unavailable) == (0.2, 3)
    assert [one.key for one in said.pools[0].selector.requirements] == ["a", "c"]
    assert "kube-system" in said.spared
    assert Rescheduling().mode is RescheduleMode.OFF
