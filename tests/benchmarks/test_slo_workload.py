"""The cluster that is played for `make bench-quota`, and what it is judged by."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.played_cluster import Controller, PlayedCluster
from benchmarks.slo_workload import KINDS, PRIORITY, QOS_DRIVEN, arrivals, judged, missed, quotas
from qos.cluster.quota import ElasticQuota

NODE = {"cpu": "2", "memory": "8Gi", "pods": "110"}
POD = {"cpu": "1"}


def controller(name: str, of: str = "web", priority: int = 0, arrives: int = 0) -> Controller:
    return Controller(name, of, priority, POD, arrives)


def quota(name: str, least: int, most: int, turn: int = 0) -> ElasticQuota:
    amounts = [{"cpu": 1000 * amount} for amount in (least, most)]
    return ElasticQuota("q", name, min=amounts[0], max=amounts[1], weight=amounts[1], turn_seconds=turn)


def lives(cluster: PlayedCluster) -> dict[str, float]:
    return {name: round(one.qos, 2) for name, one in cluster.controllers.items()}


def test_by_priority_those_that_came_first_run_on() -> None:
    cluster = PlayedCluster(1, NODE)
    pods = [controller("a"), controller("b"), controller("c"), controller("high", priority=9, arrives=50)]
    cluster.play(pods, 100)
    assert cluster.evictions == 1
    assert sorted(lives(cluster).values()) == pytest.approx([0.0, 0.5, 0.97, 0.99], abs=0.02)
    assert set(cluster.used) == {2}


def test_those_that_take_turns_have_the_same() -> None:
    cluster = PlayedCluster(1, NODE, [quota("web", 1, 1, turn=10)])
    cluster.play([controller("a"), controller("b")], 400)
    assert all(0.35 <= qos <= 0.5 for qos in lives(cluster).values())
    assert 25 <= cluster.evictions <= 400 / 10


def test_what_is_lent_comes_back_after_the_grace() -> None:
    cluster = PlayedCluster(1, NODE, [quota("web", 1, 2), quota("data", 1, 2)])
    cluster.play([controller("a", "data"), controller("b", "data"), controller("c", arrives=10)], 100)
    assert cluster.evictions == 1
    assert cluster.controllers["c"].bound == pytest.approx(10 + 30, abs=3)


def test_the_workload_is_theirs() -> None:
    made = list(arrivals(1))
    assert [one.arrives for one in made] == list(range(256))
    assert Counter(one.of for one in made) == {"prod": 80, "batch": 80, "free": 96}
    assert [one.of for one in made] != [one.of for one in arrivals(2)]
    assert sum(one.min["cpu"] for one in quotas()) == 20 * 3750, "SLOs come to all there is"
    assert [one.turn_seconds for one in quotas()] == [one.turn for one in KINDS]


def test_goals_are_theirs_of_both_together() -> None:
    assert missed(PRIORITY) == ["deficit"]
    assert missed(QOS_DRIVEN) == ["fulfilled", "recreations"]
    assert missed(replace(PRIORITY, deficit=2.3, recreations=310)) == []


def test_depth_is_what_free_controllers_lack() -> None:
    cluster = PlayedCluster(1, NODE)
    for number, (of, runs) in enumerate([("prod", 999), ("batch", 899), ("free", 300), ("free", 700)]):
        cluster.controllers[str(number)] = replace(controller(str(number), of), lives=1000, runs=runs)
    cluster.used = [10]
    found = judged(cluster, KINDS)
    assert found.deficit == pytest.approx(0.2)
    assert (found.fulfilled, found.free_fulfilled) == (0.5, 0.5)
