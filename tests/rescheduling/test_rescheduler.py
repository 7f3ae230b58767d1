"""One round: what is hot, what moves, what keeps it from moving, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from qos.cluster.objects import NodePredicate, OwnerReference, Requirement, Selector, Taint
from qos.cluster.running import NEVER, PROD, Moved, NodeUsage
from rescheduling.records import Failure, Migration
from rescheduling.rescheduler import Rescheduler
from rescheduling.settings import Limits, Pool, Settings, Thresholds
from tests.rescheduling.clusters import NOW, changed, decide, node, running, settings, three, world

HOT, COOL = (7000, 20), (1000, 20)


def test_a_hot_nodes_pod_goes_to_the_node_that_uses_least() -> None:
    found = decide(world({"hot": HOT, "cool": COOL, "cooler": (500, 20)}, three()))
    assert [(one.source, one.target) for one in found.migrations] == [("hot", "cooler")]
    one = found.migrations[0]
    assert one.usage == {"cpu": 1000, "memory": 5}
    assert one.expected["cpu"] >= 1500
    assert one.why == "hot uses too much cpu"
    assert found.hot == {}
    assert (found.pools["all"].low, found.pools["all"].high) == (2, 1)


def test_no_more_leave_than_it_takes() -> None:
    found = decide(world({"hot": (8200, 20), "cool": COOL}, three(cpu=1000), at=NOW))
    assert len(found.migrations) == 1  # a workload of three: one at a time
    assert "of 3 pods of its workload are being moved" in found.hot["hot"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"controller": None}, "nothing would make it anew"),
        ({"controller": OwnerReference("DaemonSet", "d", "d")}, "it is of a DaemonSet"),
        ({"mirror": True}, "it is a static pod"),
        ({"priority": 2_000_000_000}, "it is critical"),
        ({"floor": True}, "it has a floor"),
        ({"local": True}, "it has local storage"),
        ({"tied": "it has a port of its node"}, "it has a port of its node"),
        ({"eviction_cost": NEVER}, "its eviction cost forbids it"),
        ({"ready": False}, "it is not ready"),
        ({"deleting": True}, "it is not ready"),
    ],
)
def test_pods_that_stay(change: dict[str, Any], why: str) -> None:
    found = decide(world({"hot": HOT, "cool": COOL}, three(**change)))
    assert found.migrations == ()
    assert found.hot["hot"] == f"it uses 70 % of cpu (high 65): 3 pods: {why}"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"spared": frozenset("a")}, "its namespace is left alone"),
        ({"namespaces": frozenset("b")}, "its namespace is left alone"),
        ({"selectors": (Selector((Requirement("x", "Exists"),)),)}, "no selector of pods matches it"),
    ],
)
def test_pods_that_the_settings_leave_alone(more: dict[str, Any], why: str) -> None:
    found = decide(world({"hot": HOT, "cool": COOL}, three()), settings(**more))
    assert found.migrations == ()
    assert why in found.hot["hot"]


def test_claims_stay_where_the_settings_say_so() -> None:
    given = world({"hot": HOT, "cool": COOL}, three(claims=True))
    assert decide(given).migrations
    assert "it mounts claims" in decide(given, settings(claims=False)).hot["hot"]


def test_the_only_pod_of_a_workload_stays() -> None:
    found = decide(world({"hot": HOT, "cool": COOL}, {"p": (running("p", "hot"), (1000, 5))}))
    assert "it is the only pod of its workload" in found.hot["hot"]


def test_a_pod_that_nobody_measures_stays() -> None:
    given = changed(world({"hot": HOT, "cool": COOL}, three()), usage={})
    assert "nobody says what it uses" in decide(given).hot["hot"]


def test_a_pod_that_uses_little_of_what_is_scarce_stays() -> None:
    found = decide(world({"hot": HOT, "cool": COOL}, three(cpu=50)))
    assert "it uses too little of what is scarce" in found.hot["hot"]


@pytest.mark.parametrize(
    "cool",
    [
        node("cool", taints=(Taint("t", "", "NoSchedule"),)),
        node("cool", memory=10),  # what it uses, 5 more, would be above high
        node("cool", cpu=1100),  # hot by one more
    ],
)
def test_never_to_a_node_that_does_not_take_it_or_would_become_hot(cool: Any) -> None:
    found = decide(world({"hot": HOT, "cool": (100, 4)}, three(), nodes=[cool]))
    assert found.migrations == ()
    assert "no low node takes it and stays below high" in found.hot["hot"]


def test_an_unschedulable_node_is_not_low() -> None:
    given = world({"hot": HOT, "cool": COOL}, three(), nodes=[node("cool", unschedulable=True)])
    assert decide(given).pools["all"].stopped == "0 nodes are low, more than 0 must be"


def test_requests_must_fit_as_well_as_usage() -> None:
    big = {"requests": {"cpu": 9500, "memory": 1, "pods": 1}}
    full = {"x": (running("x", "cool", "other", requests={"cpu": 1000, "memory": 1, "pods": 1}), (10, 1))}
    found = decide(world({"hot": HOT, "cool": COOL}, three(**big) | full))
    assert found.migrations == ()


def test_placement_is_honoured() -> None:
    where = NodePredicate(node_selector=(("disk", "ssd"),))
    given = world({"hot": HOT, "cool": COOL}, three(where=where))
    assert decide(given).migrations == ()
    given = world(
        {"hot": HOT, "cool": COOL}, three(where=where), nodes=[node("cool", labels={"disk": "ssd"})]
    )
    assert decide(given).migrations


def test_pods_not_measured_yet_are_charged() -> None:
    fresh = {
        "new": (running("new", "cool", "n", scheduled=NOW - 10, requests={"cpu": 4000, "memory": 1}), (0, 0))
    }
    assert decide(world({"hot": HOT, "cool": COOL}, three() | fresh)).pools["all"].low == 0


class TestWhenNothingMoves:
    def test_stale_usage(self) -> None:
        given = world({"hot": HOT, "cool": COOL}, three())
        found = decide(given, now=NOW + 181)
        assert found.pools["all"].stopped == "2 of 2 nodes have not reported what they use"

    def test_partial_usage_of_a_node(self) -> None:
        given = world({"hot": HOT, "cool": COOL}, three())
        reports = {**given.reports, "cool": NodeUsage(NOW, {"cpu": 10})}
        stopped = decide(changed(given, reports=reports)).pools["all"].stopped
        assert stopped == "1 of 2 nodes have not reported what they use"

    def test_a_node_that_is_silent_is_no_target(self) -> None:
        usage = {f"n{number}": (9999, 99) for number in range(8)} | {"hot": HOT, "cool": COOL}
        given = world(usage, three())
        reports = dict(given.reports)
        del reports["cool"]
        assert decide(changed(given, reports=reports)).migrations == ()

    def test_no_usage_at_all(self) -> None:
        given = changed(world({"hot": HOT, "cool": COOL}, three()), reports={})
        assert decide(given).migrations == ()

    def test_all_are_low(self) -> None:
        assert decide(world({"a": COOL, "b": COOL})).pools["all"].stopped == "no node is high"

    def test_too_few_are_low(self) -> None:
        found = decide(world({"hot": HOT, "cool": COOL}, three()), settings(fewest_low=1))
        assert found.pools["all"].stopped == "1 nodes are low, more than 1 must be"

    def test_before_it_has_been_high_for_long_enough(self) -> None:
        one = Rescheduler(settings({"abnormal": 3}))
        times = [NOW + 60 * turn for turn in range(5) for _ in range(3)]  # the same report counts once
        worlds = [world({"hot": HOT, "cool": COOL}, three(), at=at) for at in times]
        begun = [len(one.decide(*each).migrations) for each in zip(worlds, times, strict=True)]
        assert begun[:9] == [0] * 9
        assert begun[9] == 1

    def test_a_budget_of_the_minute_is_spent(self) -> None:
        given = world({"hot": HOT, "cool": COOL}, three(), begun=(NOW - 30, NOW - 59, NOW - 61))
        assert decide(given, settings(limits=Limits(minute=3))).migrations
        found = decide(given, settings(limits=Limits(minute=2)))
        assert found.pools["all"].stopped == "2 migrations began in the last minute"


class TestBudgets:
    def moving(self, **more: Any) -> Migration:
        return replace(Migration("a/x", "x", "other", "elsewhere", "there", {"cpu": 1}, {}, {}), **more)

    def test_of_a_node(self) -> None:
        under_way = [self.moving(source="n", target="cool"), self.moving(uid="y", source="n", target="cool")]
        found = decide(world({"hot": HOT, "cool": COOL}, three(), under_way=under_way))
        assert found.migrations == ()

    def test_of_a_namespace(self) -> None:
        given = world({"hot": HOT, "cool": COOL}, three(), under_way=[self.moving()])
        found = decide(given, settings(limits=Limits(namespace=1)))
        assert "1 migrations of its namespace are under way" in found.hot["hot"]

    def test_of_a_workload_with_unready_pods(self) -> None:
        pods = three()
        pods["p9"] = (running("p9", "cool", ready=False), (1, 1))
        found = decide(world({"hot": HOT, "cool": COOL}, pods), settings(limits=Limits(unavailable=1)))
        assert "1 of 4 pods of its workload are not available" in found.hot["hot"]

    def test_a_failed_workload_waits_twice_as_long_each_time(self) -> None:
        for failures, wait in (([0.0], 300), ([0.0, 0.0], 600), ([0.0, 0.0, 0.0], 1200)):
            said = [Failure("web", NOW - wait + 1 + more) for more in failures]
            given = world({"hot": HOT, "cool": COOL}, three(), failures=said)
            assert "failed not long ago" in decide(given).hot["hot"]
            said = [Failure("web", NOW - wait) for _ in failures]
            assert decide(changed(given, failures=said)).migrations


class TestNotTwice:
    def moved(self, cpu: int, ago: float = 5000.0, times: int = 1) -> dict[str, Any]:
        return {"moved": Moved(NOW - ago, times, {"cpu": 1000, "memory": 5}, {"cpu": cpu, "memory": 20})}

    def test_unless_the_node_uses_more_than_was_expected(self) -> None:
        found = decide(world({"hot": HOT, "cool": COOL}, three(**self.moved(6100))))
        assert "it was moved, and the load has not changed since" in found.hot["hot"]
        found = decide(world({"hot": HOT, "cool": COOL}, three(**self.moved(5900))))
        assert found.migrations[0].times == 2

    def test_the_cooldown_doubles(self) -> None:
        for times, wait in ((1, 300), (2, 600), (5, 4800)):
            pods = three(**self.moved(5000, ago=wait - 1, times=times))
            found = decide(world({"hot": HOT, "cool": COOL}, pods))
            assert found.migrations == ()
            pods = three(**self.moved(5000, ago=wait, times=times))
            assert decide(world({"hot": HOT, "cool": COOL}, pods)).migrations

    def test_after_a_day_it_begins_anew(self) -> None:
        pods = three(**self.moved(5000, ago=86_400, times=5))
        assert decide(world({"hot": HOT, "cool": COOL}, pods)).migrations[0].times == 1

    def test_what_later_migrations_brought_is_no_change(self) -> None:
        pods = three(**self.moved(5000))
        for most, decided in ((6500, 1.0), (6500, 0.0)):  # later, and in the same round but arrived before
            late = Moved(NOW - 6000, 1, {"cpu": 1000}, {"cpu": most, "memory": 20}, decided)
            pods["late"] = (running("late", "hot", "late", moved=late), (10, 1))
            assert decide(world({"hot": HOT, "cool": COOL}, pods)).migrations == ()

    def test_a_node_is_left_alone_until_its_report_shows_what_was_moved(self) -> None:
        one = Rescheduler(settings())
        pods = three()
        assert len(one.decide(world({"hot": HOT, "cool": COOL}, pods), NOW).migrations) == 1
        for after, count in ((60, 0), (119, 0), (120, 1)):
            at = NOW + after
            assert len(one.decide(world({"hot": HOT, "cool": COOL}, pods, at=at), at).migrations) == count


class TestProd:
    def prods(self, **more: Any) -> dict[str, Any]:
        return {"prod": Thresholds(low={"cpu": 30.0}, high={"cpu": 50.0}), **more}

    def test_prod_pods_have_thresholds_of_their_own(self) -> None:
        pods = three(cpu=1900)
        pods["b"] = (running("b", "hot", "b", band=1), (200, 1))
        found = decide(world({"hot": (6000, 20), "cool": COOL}, pods), settings(self.prods()))
        assert [one.prod for one in found.migrations] == [True]
        assert found.pools["all"].stopped == "no node is high"
        assert found.pools["all/prod"].high == 1

    def test_never_to_a_node_that_would_become_hot_of_prod_pods(self) -> None:
        pods = three(cpu=1900)
        pods |= {f"c{n}": (running(f"c{n}", "cool", "c"), (1250, 1)) for n in range(2)}
        found = decide(world({"hot": (6000, 20), "cool": (2500, 20)}, pods), settings(self.prods()))
        assert found.migrations == ()
        assert "prod pods use 57 % of cpu (high 50)" in found.hot["hot"]

    def test_others_stay_when_only_prod_pods_are_too_many(self) -> None:
        pods = {f"p{n}": (running(f"p{n}", "hot", floor=True), (1900, 1)) for n in range(3)}
        pods |= {f"b{n}": (running(f"b{n}", "hot", "b", band=1), (200, 1)) for n in range(3)}
        found = decide(world({"hot": (6300, 20), "cool": COOL}, pods), settings(self.prods()))
        assert found.migrations == ()
        assert PROD == 3


def test_deviation_is_from_what_all_use_of_all_that_they_have() -> None:
    deviation = {"deviation": True, "all": Thresholds({"cpu": 10.0}, {"cpu": 10.0})}
    small = node("small", cpu=1000)
    usage = {"hot": (5000, 20), "cool": (3000, 20), "small": (400, 20)}
    given = world(usage, three(cpu=500), nodes=[small])
    # 8400 of 21000 is 40 %: hot has 50, which is not above 50
    assert decide(given, settings(deviation)).pools["all"].stopped == "no node is high"
    given = world({**usage, "hot": (5600, 20), "cool": (2400, 20)}, three(cpu=500), nodes=[small])
    assert [one.target for one in decide(given, settings(deviation)).migrations] == ["cool"]


def test_a_node_is_in_the_first_pool_that_selects_it() -> None:
    def pool(name: str, most: float, *requirements: Requirement) -> Pool:
        thresholds = Thresholds({"cpu": 20.0}, {"cpu": most})
        return Pool(name, Selector(requirements), thresholds, abnormal=1)

    pools = (pool("batch", 95.0, Requirement("batch", "Exists")), pool("rest", 65.0))
    given = world({"hot": HOT, "cool": COOL}, three(), nodes=[node("hot", labels={"batch": ""})])
    found = decide(given, Settings(pools))
    assert (found.pools["batch"].nodes, found.pools["rest"].nodes) == (1, 1)
    assert found.migrations == ()
