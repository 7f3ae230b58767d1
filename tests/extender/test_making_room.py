"""What may happen while the leader makes room: it dies, budgets and quotas change, the API server is slow."""

from __future__ import annotations

from time import process_time

import pytest

from ledger.rooms import LEADER_SECONDS
from qos.cluster.objects import OwnerReference, Pod
from qos.cluster.quota import ElasticQuota
from tests.extender.kube_scheduler import KubeScheduler
from tests.extender.room_world import OVER, Cluster, Extender
from tests.quota.builders import pod, quota

CORE = 1000


def team(name: str, least: int, most: int = 6) -> ElasticQuota:
    return quota(name, {"cpu": most * CORE}, {"cpu": least * CORE})


QUOTAS = (team("shop", 3, 3), team("data", 1))


def one(name: str, of: str, cpu: int = 1, **others: object) -> Pod:
    made = pod(name, {"cpu": cpu * CORE, "pods": 1}, of, **others)
    made.uid = name
    return made


@pytest.fixture
def cluster() -> Cluster:
    """Two nodes that data has filled, and two CPUs that shop is owed."""
    made = Cluster({"n0": 3 * CORE, "n1": 3 * CORE})
    for number in range(6):
        made.write(one(f"data{number}", "data", node=f"n{number % 2}"))
    made.write(one("owed", "shop", cpu=2, unschedulable_since=1.0))
    return made


def seen(extender: Extender) -> Extender:
    while extender.see():
        pass
    return extender


def passes(extender: Extender, cluster: Cluster, count: int = 1) -> None:
    """Passes of the leader, a second each, whose calls are answered at once."""
    for _ in range(count):
        while extender.lead() != OVER:
            pass
        while cluster.end():
            pass
        seen(extender)
        cluster.now += 1


def to_call(extender: Extender, name: str) -> None:
    """The leader goes on until it is about to make such a call."""
    while (said := extender.lead()) != name:
        assert said != OVER


def test_as_many_end_as_are_owed(cluster: Cluster) -> None:
    extender = seen(Extender(cluster, QUOTAS))
    passes(extender, cluster, 5)
    assert len(cluster.evicted) == 2


def test_a_budget_that_changes_after_the_dry_run_costs_nobody_more(cluster: Cluster) -> None:
    extender = seen(Extender(cluster, QUOTAS))
    to_call(extender, "evict")
    to_call(extender, "evict")
    (first,) = cluster.evicted
    node = cluster.pods[first].node_name
    others = [uid for uid, one in cluster.pods.items() if one.node_name == node and uid != first]
    cluster.guarded.update(cluster.pods.keys() - {others[-1]})
    while extender.lead() != OVER:
        pass
    assert not cluster.pods["owed"].nominated_node_name, "kube-scheduler would keep a place that is not there"
    passes(extender, cluster, 40)
    assert cluster.evicted == [first, others[-1]]


def test_who_does_not_lead_any_more_evicts_nobody(cluster: Cluster) -> None:
    extender = seen(Extender(cluster, QUOTAS))
    to_call(extender, "evict dry")
    extender.leads = False
    passes(extender, cluster)
    assert not cluster.evicted
    high = one("owed", "shop", cpu=2, priority=9)
    assert extender.ledger.preempt(high, {"n0": ["data0", "data2"]}, cluster.now), (
        "it is kube-scheduler's again"
    )


def test_the_next_leader_goes_on_for_a_pod_that_was_nominated_and_nobody_evicted(cluster: Cluster) -> None:
    cluster.patch("owed", nominated_node_name="n0")
    extender = seen(Extender(cluster, QUOTAS))
    passes(extender, cluster, 20)
    assert not cluster.evicted, "kube-scheduler may make room for it"
    passes(extender, cluster, 20)
    assert len(cluster.evicted) == 2


def test_the_next_leader_counts_who_ends_already(cluster: Cluster) -> None:
    cluster.evict("data0")
    extender = seen(Extender(cluster, QUOTAS))
    while extender.lead() != OVER:
        pass
    assert len(cluster.evicted) == 2


def test_who_ends_already_leaves_the_quota_to_who_matters_more() -> None:
    cluster = Cluster({"n0": 3 * CORE, "n1": 3 * CORE})
    for number in range(2):
        cluster.write(one(f"shop{number}", "shop", node="n0"))
    cluster.write(one("urgent", "shop", priority=9, unschedulable_since=1.0))
    cluster.evict("shop0")
    extender = seen(Extender(cluster, (team("shop", 2, 2),)))
    for _ in range(5):
        while extender.lead() != OVER:
            cluster.now += 1
    assert cluster.evicted == ["shop0"]


@pytest.mark.parametrize("call", ["get", "evict dry"])
@pytest.mark.parametrize("change", ["less", "gone"])
def test_a_quota_that_is_owed_less_by_then_costs_nobody(cluster: Cluster, change: str, call: str) -> None:
    extender = seen(Extender(cluster, QUOTAS))
    to_call(extender, call)
    if change == "less":
        extender.ledger.set_quota(team("shop", 1, 3))
    else:
        extender.ledger.remove_quota("quotas/shop")
    passes(extender, cluster, 3)
    assert not cluster.evicted


def test_a_quota_that_is_owed_more_by_then_has_no_more_evicted_for_the_same_pod(cluster: Cluster) -> None:
    extender = seen(Extender(cluster, QUOTAS))
    to_call(extender, "evict")
    extender.ledger.set_quota(team("shop", 3, 6))
    passes(extender, cluster, 5)
    assert len(cluster.evicted) == 2


def test_while_calls_take_long_kube_scheduler_preempts_nobody_beside(cluster: Cluster) -> None:
    extender = seen(Extender(cluster, QUOTAS))
    high = one("owed", "shop", cpu=2, priority=9)
    to_call(extender, "evict dry")
    said = ""
    while said != OVER:
        assert extender.ledger.preempt(high, {"n0": ["data0", "data2"]}, cluster.now) == []
        cluster.now += LEADER_SECONDS * 0.9 if said.startswith("evict") else 0
        said = extender.lead()
    assert len(cluster.evicted) == 2


def test_more_than_may_end_in_a_minute_end_for_one_pod_after_a_minute_without(cluster: Cluster) -> None:
    extender = seen(Extender(cluster, QUOTAS, a_minute=1))
    passes(extender, cluster, 3)
    assert len(cluster.evicted) == 2
    cluster.patch("owed", node_name="n0")
    cluster.write(one("next", "shop", unschedulable_since=2.0))
    seen(extender)
    passes(extender, cluster, 60)
    assert len(cluster.evicted) == 2
    passes(extender, cluster, 70)
    assert len(cluster.evicted) == 3


def test_who_comes_back_at_once_in_another_quota_has_nobody_else_end(cluster: Cluster) -> None:
    extender = seen(Extender(cluster, (*QUOTAS, team("more", 0))))
    passes(extender, cluster, 2)
    scheduler = KubeScheduler(cluster, extender.ledger)
    for uid in [uid for uid in cluster.pods if uid.endswith("+")]:
        del cluster.pods[uid]
        cluster.write(one(f"more-{uid}", "more"))
    for _ in range(40):
        while scheduler.see() or extender.see():
            pass
        for who in reversed(scheduler.waiting()):
            scheduler.attempt(who)
        while scheduler.tasks:
            scheduler.tasks.pop(0)()
        passes(extender, cluster)
    assert cluster.pods["owed"].node_name
    assert len(cluster.evicted) == 2


def test_the_grace_begins_anew_when_a_quota_is_owed_again(cluster: Cluster) -> None:
    extender = seen(Extender(cluster, QUOTAS, grace=10))
    passes(extender, cluster, 5)
    cluster.patch("owed", unschedulable_since=0.0)
    seen(extender)
    passes(extender, cluster, 20)
    cluster.patch("owed", unschedulable_since=30.0)
    seen(extender)
    passes(extender, cluster, 8)
    assert not cluster.evicted
    passes(extender, cluster, 8)
    assert len(cluster.evicted) == 2


def test_nobody_is_looked_for_while_nobody_more_may_end(cluster: Cluster) -> None:
    extender = seen(Extender(cluster, QUOTAS, a_minute=2))
    passes(extender, cluster, 2)
    cluster.patch("owed", node_name="n0")
    cluster.write(one("next", "shop", unschedulable_since=2.0))
    seen(extender)
    said = ""
    while said != OVER:
        said = extender.lead()
        assert said != "get", "that would cost a look at every pod"


def test_one_for_whom_many_are_to_end_waits_behind_nobody_who_matters_less() -> None:
    """Evictions are saved for it, and nobody is asked about meanwhile."""
    cluster = Cluster({"n0": 12 * CORE})
    for number in range(12):
        cluster.write(one(f"data{number}", "data", node="n0"))
    for number in range(3):
        cluster.write(one(f"first{number}", "shop", unschedulable_since=1.0))
    extender = seen(Extender(cluster, (team("shop", 12, 12), team("data", 0, 12)), a_minute=3))
    passes(extender, cluster, 2)
    for number in range(3):
        cluster.patch(f"first{number}", node_name="n0")
        cluster.write(one(f"next{number}", "shop", unschedulable_since=1.0))
    cluster.write(one("large", "shop", cpu=3, priority=9, unschedulable_since=1.0))
    passes(seen(extender), cluster, 50)
    assert len(cluster.evicted) == 3
    passes(extender, cluster, 15)
    assert (len(cluster.evicted), cluster.pods["large"].nominated_node_name) == (6, "n0")


def test_one_that_ends_elsewhere_for_the_quota_leaves_no_room_here() -> None:
    """b ends for the quota alone, and a for the room: neither is spared because of the other."""
    cluster = Cluster({"n0": 2 * CORE, "n1": 3 * CORE})
    cluster.write(one("a", "shop", node="n0", priority=1))
    cluster.write(one("b", "shop", cpu=2, node="n1", priority=1))
    cluster.write(one("other", "data", cpu=2, node="n1"))  # no room on n1 without b either
    cluster.write(one("urgent", "shop", cpu=2, priority=9, unschedulable_since=1.0))
    extender = seen(Extender(cluster, (team("shop", 0, 4), team("data", 2))))
    passes(extender, cluster)
    assert sorted(cluster.evicted) == ["a", "b"]


def test_many_for_whom_others_take_long_to_end_cost_no_more_than_as_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hundreds are under way where pods are given minutes to end."""
    cluster = Cluster({"n0": 40 * CORE})
    for number in range(40):
        cluster.write(one(f"data{number}", "data", node="n0"))
        cluster.write(one(f"owed{number}", "shop", unschedulable_since=1.0))
    extender = seen(Extender(cluster, (team("shop", 40, 40), team("data", 0, 40)), a_minute=600))
    told, make_room = list[str](), extender.ledger.make_room

    def counted(pod: Pod, node: str, now: float) -> bool:
        told.append(pod.uid)
        return make_room(pod, node, now)

    monkeypatch.setattr(extender.ledger, "make_room", counted)
    for _ in range(11):
        told.clear()
        while extender.lead() != OVER:
            pass
        seen(extender)
        cluster.now += 1
    assert (len(cluster.evicted), len(told)) == (40, 40)


def test_one_that_is_made_again_has_nobody_else_end_where_some_did_in_vain(cluster: Cluster) -> None:
    """kube-scheduler has a reason against it, such as pod affinity: its next one comes no sooner."""
    controller = OwnerReference("ReplicaSet", "owed", "owed")
    cluster.patch("owed", controller=controller)
    extender = seen(Extender(cluster, QUOTAS))
    passes(extender, cluster, 40)
    assert len(cluster.evicted) == 2
    for name in [*cluster.pods]:
        if name.endswith("+"):
            cluster.patch(name, node_name="n0" if name in ("data0+", "data2+", "data4+") else "n1")
    cluster.remove("owed")
    cluster.write(one("again", "shop", cpu=2, unschedulable_since=41.0, controller=controller))
    passes(seen(extender), cluster, 30)
    assert len(cluster.evicted) == 2
    passes(extender, cluster, 40)
    assert len(cluster.evicted) == 4, "later it is tried once more"


def test_a_flood_that_waits_leaves_room_for_verbs() -> None:
    """Steps of some milliseconds, whatever waits and ends: verbs are answered between them."""
    cluster = Cluster({f"n{number}": 3 * CORE for number in range(1000)})
    for number in range(3000):
        cluster.write(one(f"data{number}", "data", node=f"n{number % 1000}", deleting=number < 900))
    for number in range(3000):
        cluster.write(one(f"owed{number}", "shop", cpu=2, unschedulable_since=1.0, created=float(number)))
    extender = seen(Extender(cluster, (team("shop", 1500, 3000), team("data", 1, 3000))))
    longest, said = 0.0, ""
    while said != OVER:
        began = process_time()
        said = extender.lead()
        longest = max(longest, process_time() - began)
    assert longest < 0.1, "more than ten times what is typical"
    assert 0 < len(cluster.evicted) <= 8
