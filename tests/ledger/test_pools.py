"""The cap in each pool of nodes: a small pool cannot be held whole, whatever the cluster has."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ledger.decisions import Mode
from ledger.ledger import Ledger
from ledger.pools import MOST_POOLS
from qos.cluster.objects import Node, Pod
from tests.ledger.builders import demand, holds, ledger, node, pod

LABEL = "example.com/pool"
OTHER = "example.com/zone"


def labelled(name: str, pool: str, cpu: int = 10, **labels: str) -> Node:
    return node(name, cpu, 1000, labels={LABEL: pool, **labels})


def capped(*things: Any, cap_percent: int = 40, mode: Mode = Mode.GUARD) -> Ledger:
    return ledger(*things, cap_percent=cap_percent, mode=mode, pool_labels=(LABEL,))


def test_a_small_pool_is_not_held_whole() -> None:
    """The cluster's 40 % are 44 CPU, more than the GPU nodes have."""
    many = [labelled(f"n{i}", "general") for i in range(10)]
    gpu = node("gpu", 10, 1000, labels={LABEL: "gpu"}, extra={"example.com/gpu": 8})
    policy = demand("a", 8, 1, extra={"example.com/gpu": 1})
    assert holds(ledger(*many, gpu, policy, cap_percent=40, mode=Mode.GUARD), "a") == {"gpu": 3}
    made = capped(*many, gpu, demand("cpu", 44, 1))
    assert made.report()["default/cpu"].held == 44
    assert holds(made, "cpu")["gpu"] <= 4


def test_what_pools_keep_out_has_a_reason_of_its_own() -> None:
    made = capped(labelled("a0", "a"), labelled("b0", "b", 2), demand("x", 4, 1), cap_percent=50)
    made.set_demand(demand("big", 1, 2, memory=600))
    assert made.report()["default/x"].held == 4
    made = capped(labelled("a0", "a", 4), labelled("b0", "b", 4), demand("x", 4, 1), cap_percent=50)
    assert holds(made, "x") == {"a0": 2, "b0": 2}
    made = capped(labelled("a0", "a", 3), labelled("b0", "b", 3), demand("x", 3, 1), cap_percent=50)
    report = made.report()["default/x"]
    assert (report.held, [(u.reason, u.count) for u in report.unplaced]) == (2, [("PoolCapReached", 1)])


def test_an_earlier_policy_takes_the_place_of_a_later_one_under_the_pools_cap() -> None:
    made = capped(labelled("a0", "a"), demand("low", 4, 1))
    assert made.report()["default/low"].held == 4
    made.set_demand(demand("high", 3, 1, priority=10))
    reports = made.report()
    assert (reports["default/high"].held, reports["default/low"].held) == (3, 1)


def test_holds_leave_a_pool_that_shrinks() -> None:
    made = capped(labelled("a0", "a"), labelled("a1", "a"), labelled("b0", "b"), demand("x", 8, 1))
    assert made.report()["default/x"].held == 8
    made.set_node(labelled("a1", "b"))
    made.set_node(labelled("a0", "a", 5))
    assert holds(made, "x").get("a0", 0) == 2


def test_a_node_without_the_label_is_in_no_pool() -> None:
    made = capped(node("n0", 4, 1000), labelled("b0", "b", 16), demand("x", 8, 1))
    assert made.report()["default/x"].held == 8


def test_a_pod_moves_holds_within_a_pool_that_is_at_its_cap_but_not_into_it() -> None:
    def packed(pool: str) -> Ledger:
        made = capped(
            labelled("a0", "a"),
            labelled("a1", pool),
            demand("x", 4, 1),
            pod("other", 4, node="a1"),
            cap_percent=20,
        )
        assert made.report()["default/x"].held == 4
        return made

    made = packed("a")
    (full,) = made.held_nodes()
    other = "a1" if full == "a0" else "a0"
    free = 10 if full == "a0" else 6
    assert made.filter(pod("p", free), [full], 0.0).nodes == [full]
    assert holds(made, "x") == {other: 4}
    made = packed("b")
    assert holds(made, "x") == {"a0": 2, "a1": 2}
    assert made.filter(pod("p", 10), ["a0"], 0.0).nodes == []


_NAMES = ("n0", "n1", "n2", "n3")
_STEP = st.one_of(
    st.tuples(
        st.just("node"),
        st.sampled_from(_NAMES),
        st.sampled_from(("a", "b", "")),
        st.integers(2, 16),
        st.booleans(),
    ),
    st.tuples(st.just("gone"), st.sampled_from(_NAMES)),
    st.tuples(
        st.just("demand"), st.sampled_from("xyz"), st.integers(0, 8), st.integers(1, 4), st.integers(0, 1)
    ),
    st.tuples(st.just("undemand"), st.sampled_from("xyz")),
    st.tuples(st.just("pod"), st.sampled_from("xyz-"), st.integers(1, 6)),
    st.tuples(st.just("leave"), st.integers(0, 5)),
)


class _Story:
    """A ledger with two kinds of pools, and what it was told of nodes."""

    def __init__(self) -> None:
        self.made = ledger(cap_percent=50, mode=Mode.GUARD, pool_labels=(LABEL, OTHER))
        self.nodes: dict[str, Node] = {}
        self.pods: list[Pod] = []

    def tell(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("node", name, pool, cpu, ready):
                labels = {OTHER: name[-1]} | ({LABEL: pool} if pool else {})
                self.nodes[name] = node(name, cpu, 1000, labels=labels, ready=ready)
                self.made.set_node(self.nodes[name])
            case ("gone", name):
                self.nodes.pop(name, None)
                self.made.remove_node(name)
            case ("demand", app, desired, cpu, priority):
                self.made.set_demand(demand(app, desired, cpu, priority=priority))
            case ("undemand", app):
                self.made.remove_demand(f"default/{app}")
            case ("pod", app, cpu):
                who = pod(f"p{len(self.pods)}", cpu, app=app)
                answer = self.made.filter(who, _NAMES, 0.0)
                if answer.nodes and not self.made.bind(who, answer.nodes[0], 0.0).refusal:
                    self.pods.append(who)
            case ("leave", number) if self.pods:
                self.made.remove_pod(self.pods.pop(number % len(self.pods)).uid)


@given(st.lists(_STEP, max_size=30))
def test_whatever_happens_no_pool_holds_more_than_its_cap(steps: list[tuple[Any, ...]]) -> None:
    story = _Story()
    for step in steps:
        story.tell(step)
        reports = story.made.report()
        state = story.made._state
        vectors = {state.demands[n].key: state.demands[n].vector["cpu"] for n in state.demands.order}
        held: dict[tuple[str, str], int] = {}
        offered: dict[tuple[str, str], int] = {}
        for name, there in story.nodes.items():
            for label in (LABEL, OTHER):
                pool = (label, there.labels.get(label, ""))
                offered[pool] = offered.get(pool, 0) + there.allocatable["cpu"] * there.ready
                amount = sum(dict(r.holds).get(name, 0) * vectors[key] for key, r in reports.items())
                held[pool] = held.get(pool, 0) + amount
        for pool, amount in held.items():
            assert not pool[1] or amount * 100 <= offered[pool] * 50, (pool, amount, offered[pool])
        counted = {
            (demand_number, pool): sum(
                int(state.holds.count[demand_number, row])
                for row in range(state.table.shape[1])
                if (state.pools.of[:, row] == pool).any()
            )
            for demand_number in state.demands.order
            for pool in range(1, len(state.pools._members))
        }
        assert all(state.pools.count[key] == count for key, count in counted.items())


def test_a_label_with_a_value_for_each_node_makes_no_pool_for_each() -> None:
    """The nodes beyond the bound are one pool, in which the cap holds all the same."""
    made = capped(
        *[labelled(f"n{i:03}", f"v{i}") for i in range(200)], demand("x", 10_000, 1), cap_percent=40
    )
    there = holds(made, "x")
    assert [there[f"n{i:03}"] for i in range(MOST_POOLS)] == [4] * MOST_POOLS
    assert sum(there.values()) == 4 * 200
    assert made.gauges()["lumped_nodes"] == 200 - MOST_POOLS
    for i in range(MOST_POOLS, 200):
        made.remove_node(f"n{i:03}")
    assert made.gauges()["lumped_nodes"] == 0
    made.remove_node("n000")
    made.set_node(labelled("late", "late"))
    assert made.gauges()["lumped_nodes"] == 0
