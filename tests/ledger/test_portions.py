"""How many nodes filter answers, and which."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.decisions import Mode
from qos.cluster.objects import Taint
from tests.ledger.builders import demand, ledger, names, node, nodes, pod


@given(st.integers(1, 30), st.integers(0, 12), st.integers(1, 40))
def test_each_pod_gets_as_many_as_wanted_and_every_node_is_named_as_often(
    count: int, most: int, pods: int
) -> None:
    made = ledger(*nodes(count, 1000), most_nodes=most)
    named: Counter[str] = Counter()
    for number in range(pods):
        found = made.filter(pod(f"p{number}"), names(count), 0.0).nodes
        assert len(found) == (min(most, count) if most else count)
        assert [name for name in names(count) if name in found] == found, "in their order"
        named.update(found)
    assert max(named.values()) - min(named[name] for name in names(count)) <= 1


def test_who_prefers_some_nodes_gets_all_and_so_do_all_where_a_taint_speaks_against_one() -> None:
    made = ledger(*nodes(6), most_nodes=2)
    assert len(made.filter(pod("p"), names(6), 0.0).nodes) == 2
    assert made.filter(pod("q"), names(6), 0.0, prefers=True).nodes == names(6)
    made.set_node(node("n5", taints=(Taint("old", "", "PreferNoSchedule"),)))
    assert made.filter(pod("r"), names(6), 0.0).nodes == names(6)
    assert len(made.filter(pod("s"), names(5), 0.0).nodes) == 2, "among the others it does not matter"
    made.set_node(node("n5", taints=(Taint("new", "", "NoSchedule"),)))
    assert len(made.filter(pod("t"), names(6), 0.0).nodes) == 2


@pytest.mark.parametrize("binds", [True, False])
def test_a_pod_is_charged_only_where_it_was_answered(binds: bool) -> None:
    made = ledger(*nodes(4), mode=Mode.GUARD, binds=binds, most_nodes=2)
    assert made.filter(pod("p", 8), names(4), 0.0).nodes == ["n0", "n1"]
    made.set_demand(demand("a", 2, 8))
    assert made.held_nodes() == {"n2", "n3"}


def test_nodes_with_holds_count_for_nobody_as_if_all_were_answered() -> None:
    made = ledger(*nodes(6), demand("a", 3, 5), most_nodes=2)
    free = sorted(set(names(6)) - made.held_nodes())
    found = [made.filter(pod(f"p{number}", 0.1), names(6), 0.0).nodes for number in range(3)]
    assert set().union(*found) == set(free)
    assert all(len(one) == 2 for one in found)
