"""What concerns hundreds of policies at once is done some at a time, and comes to the same."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from unittest.mock import patch

from ledger import demands, lifting, placement
from tests.ledger.builders import demand, ledger, names, node, nodes, pod
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
    with counted(placement, "_leave_short_node") as calls:
        made.filter(pod("p"), names(600), 0.0)
    assert 0 < calls["_leave_short_node"] < 300
    assert made.report()["default/a"].held == 0
    check_columns(made)


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


def test_no_verb_waits_for_a_module_of_numpy() -> None:
    code = "import sys, ledger.ledger; sys.exit('numpy.ma' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
