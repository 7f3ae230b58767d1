"""What concerns hundreds of policies at once is done some at a time, and comes to the same."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from unittest.mock import patch

from ledger import demands, leaving, lifting, placement, risk
from ledger.daemons import Daemons
from ledger.decisions import Mode
from qos.cluster.objects import DaemonSet, NodePredicate, PlacementMode
from tests.ledger.builders import TOLERATE_ALL, demand, holds, ledger, names, node, nodes, pod
from tests.ledger.recount import check_columns

MANY = 300
GPU = "example.com/gpu"


@contextmanager
def counted(module: ModuleType, *functions: str) -> Iterator[Counter[str]]:
    """How often these are called while the block runs."""
    calls = Counter[str]()

    def counting(name: str):
        real = getattr(module, name)

        def call(*args, **others):
            calls[name] += 1
            return real(*args, **others)

        return call

    with patch.multiple(module, **{name: counting(name) for name in functions}):
        yield calls


def test_the_cap_is_asked_for_some_policies_at_a_time() -> None:
    made = ledger(*nodes(2, 1_000, memory=10_000, pods=10_000), cap_percent=1)
    for number in range(MANY):
        made.set_demand(demand(f"d{number:03}", 1, 1))
    rounds = []
    while True:
        with counted(placement, "cap_slots") as calls:
            more = made.tend()
        rounds.append(calls["cap_slots"])
        if not more:
            break
    assert (max(rounds) < MANY, sum(rounds) >= MANY) == (True, True)
    assert made.gauges()["holds"] == 20
    check_columns(made)


def test_holds_give_way_to_a_cap_some_policies_at_a_time() -> None:
    made = ledger(*nodes(100, 10), cap_percent=40)
    for number in range(MANY):
        made.set_demand(demand(f"d{number:03}", 1, 1))
    assert made.report()["default/d299"].held == 1
    for number in range(50):
        made.set_node(node(f"n{number}", 1))
    with counted(lifting, "lift_least_useful") as calls:
        made.filter(pod("p"), names(100), 0.0)
    assert 0 < calls["lift_least_useful"] < 50
    reports = made.report()
    assert [reports[f"default/d{number:03}"].held for number in range(MANY)] == [1] * 220 + [0] * 80
    check_columns(made)


def test_holds_leave_nodes_that_shrank_some_at_a_time() -> None:
    made = ledger(*nodes(600, 4), demand("a", 600, 4))
    assert made.report()["default/a"].held == 600
    for number in range(600):
        made.set_node(node(f"n{number}", 2))
    with counted(leaving, "leave_short_node") as calls:
        made.filter(pod("p"), names(600), 0.0)
    assert 0 < calls["leave_short_node"] < 300
    assert made.report()["default/a"].held == 0
    check_columns(made)


def test_only_the_holds_of_a_demand_that_goes_elsewhere_are_looked_at() -> None:
    made = ledger(*(node(f"n{number}", 8, labels={"zone": f"z{number % 2}"}) for number in range(MANY)))
    for number in range(MANY):
        made.set_demand(demand(f"d{number:03}", 1, 2))
    made.report()
    zone = NodePredicate(node_selector=(("zone", "z1"),))
    with counted(leaving, "lift_many") as calls:
        made.set_demand(demand("d007", 1, 2, where=zone))
        made.report()
    assert calls["lift_many"] <= 1
    (there,) = holds(made, "d007")
    standing = sum(there in holds(made, f"d{number:03}") for number in range(MANY))
    with counted(leaving, "lift_many") as calls:
        made.set_node(node(there, 8, labels={"zone": "z0"}))
        made.report()
    assert (calls["lift_many"], standing < MANY) == (1, True)
    assert there not in holds(made, "d007")
    check_columns(made)


def test_a_policy_that_comes_or_goes_asks_no_other_for_its_place_in_the_order() -> None:
    made = ledger(*nodes(2, 1_000), *(demand(f"d{number:03}", 1, 1) for number in range(MANY)))
    with counted(demands, "order_key") as calls:
        made.set_demand(demand("d007", 1, 2))
        made.set_demand(demand("another", 1, 1))
        made.remove_demand("default/d100")
    assert calls["order_key"] < 10
    order = [made._state.demands[number].key for number in made._state.demands.order]
    assert order == sorted(order)
    assert len(order) == MANY


def test_the_order_is_that_of_all_demands_whatever_came_changed_and_went() -> None:
    made, chance = ledger(*nodes(2, 1_000)), random.Random(7)
    for _ in range(400):
        namespace, number = f"ns{chance.randrange(3)}", chance.randrange(12)
        key = f"{namespace}/d{number}"
        if chance.random() < 0.3:
            made.remove_demand(key)
        else:
            one = demand("d", 1, 1, priority=chance.randrange(3), created=float(chance.randrange(3)))
            made.set_demand(replace(one, key=key, namespace=namespace))
        known = made._state.demands
        order = sorted(known.numbers.values(), key=lambda each: demands.order_key(known[each]))
        assert known.order == order
        assert known.position == {each: place for place, each in enumerate(order)}
        assert known.levels == sorted({known[each].priority for each in order})
        for name in ("ns0", "ns1", "ns2"):
            assert known.rivals(name) == [each for each in order if known[each].namespace == name]


def test_policies_are_arranged_once_when_a_resource_comes_or_goes() -> None:
    made = ledger(*nodes(2, 1_000))
    for number in range(MANY):
        made.set_demand(demand(f"d{number:03}", 1, 1, extra={GPU: 1}))
    made.report()
    for offered, placed in ((MANY, MANY), (0, 0)):
        with counted(demands, "order_key") as calls:
            made.set_node(node("n0", 1_000, 1_000, 1_000, extra={GPU: offered}))
        assert calls["order_key"] <= 2 * MANY
        made.report()
        assert made.gauges()["holds"] == placed
        check_columns(made)


def test_policies_are_arranged_once_when_a_node_brings_many_resources() -> None:
    resources = {f"example.com/r{number}": 1 for number in range(200)}
    made = ledger(*nodes(2, 1_000, memory=10_000, pods=10_000))
    width = made._state.table.shape[0]
    for number, resource in enumerate(resources):
        made.set_demand(demand(f"d{number:03}", 1, 1, extra={resource: 1}))
    for extra, placed in ((resources, 200), ({}, 0)):
        with counted(demands, "order_key") as calls:
            made.set_node(node("n0", 1_000, 10_000, 10_000, extra=extra))
        assert calls["order_key"] <= 2 * 200
        made.report()
        assert made.gauges()["holds"] == placed
        check_columns(made)
    assert made._state.table.shape[0] <= width + 4


def test_where_a_hold_goes_is_decided_by_its_own_resources_and_the_usual_ones() -> None:
    resources = {f"example.com/r{number}": 1 for number in range(200)}
    made = ledger(node("n0", 1_000, 1_000, 1_000, extra=resources))
    for number, resource in enumerate(resources):
        made.set_demand(demand(f"d{number:03}", 1, 1, extra={resource: 1}))
    with patch.object(placement, "slots_that_fit", wraps=placement.slots_that_fit) as fits:
        made.report()
    assert {len(call.args[0]) for call in fits.call_args_list} <= {16, 17}
    assert made.gauges()["holds"] == 200


def test_the_room_of_daemon_sets_is_judged_some_nodes_at_a_time_at_a_start() -> None:
    made = ledger(*nodes(300))
    for number in range(10):
        daemon_set = DaemonSet(f"ds{number}", f"default/ds{number}", {"cpu": 100}, TOLERATE_ALL)
        made.set_daemon_set(daemon_set)
    judged = []
    with patch.object(Daemons, "_judge", autospec=True, side_effect=Daemons._judge) as judge:
        while made.tend():
            judged.append(judge.call_count)
            judge.reset_mock()
        judged.append(judge.call_count)
    assert (max(judged), sum(judged)) == (500, 3_000)
    assert len(made._state.daemons._expecting) == 3_000


def test_holds_at_risk_are_counted_some_nodes_at_a_time() -> None:
    made = ledger(*nodes(600, 4), demand("a", 600, 4), mode=Mode.GUARD)
    assert made.report()["default/a"].held == 600
    assert len(made.filter(pod("high", 1, priority=1_000), names(600), 0.0).nodes) == 600
    steps = made.gather_report()
    seen = []
    while True:
        with counted(risk, "_at_risk_on") as calls:
            reports = next(steps, None)
        if reports is None:
            break
        seen.append(calls["_at_risk_on"])
        last = reports
    assert (max(seen), sum(seen)) == (200, 600)
    assert last["default/a"].at_risk == 600


def test_pinned_holds_at_risk_are_looked_at_some_nodes_at_a_time() -> None:
    made = ledger(*nodes(600, 4), demand("a", 600, 4, mode=PlacementMode.PINNED), mode=Mode.GUARD)
    assert made.report()["default/a"].held == 600
    made.filter(pod("high", 1, priority=1_000), names(600), 0.0)
    with counted(placement, "at_risk") as calls:
        made.tend()
    assert calls["at_risk"] == 0
    assert made.report()["default/a"].at_risk == 600


def test_a_report_in_steps_gives_a_new_policy_nothing_of_the_one_whose_number_it_gets() -> None:
    made = ledger(*nodes(600, 4), demand("a", 600, 4, mode=PlacementMode.PINNED), mode=Mode.GUARD)
    assert made.report()["default/a"].held == 600
    made.filter(pod("high", 1, priority=1_000), names(600), 0.0)
    steps = made.gather_report()
    for _ in range(3):
        next(steps)
    made.remove_demand("default/a")
    made.set_demand(demand("b", 600))
    *_, last = steps
    assert (last["default/b"].held, last["default/b"].at_risk) == (600, 0)


def test_no_verb_waits_for_a_module_of_numpy() -> None:
    code = "import sys, ledger.ledger; sys.exit('numpy.ma' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
