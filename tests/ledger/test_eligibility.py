"""Which nodes a placement admits: all nodes at once give what each gives alone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ledger.ledger import Ledger
from qos.cluster.objects import (
    Node,
    NodePredicate,
    NodeSelectorTerm,
    Requirement,
    Taint,
    Toleration,
)
from tests.ledger.builders import demand, holds, ledger, node
from tests.ledger.recount import check_columns

_KEY = st.sampled_from(("pool", "zone"))
_VALUE = st.sampled_from(("", "a", "b", "1", "7"))
_EFFECT = st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule"))
_NAME = st.sampled_from(("n0", "n1", "n2"))
_NODE = st.builds(
    lambda name, labels, taints, unschedulable, ready: node(
        name, labels=labels, taints=tuple(taints), unschedulable=unschedulable, ready=ready
    ),
    _NAME,
    st.dictionaries(_KEY, _VALUE),
    st.lists(st.builds(Taint, _KEY, _VALUE, _EFFECT), max_size=2),
    st.booleans(),
    st.sampled_from((True, True, False)),
)
_OPERATOR = st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Else"))
_VALUES = st.lists(_VALUE, max_size=2).map(tuple)
_FIELDS = st.builds(
    Requirement,
    st.sampled_from(("metadata.name", "other")),
    _OPERATOR,
    st.lists(_NAME, max_size=2).map(tuple),
)
_TERM = st.builds(
    NodeSelectorTerm,
    st.lists(st.builds(Requirement, _KEY, _OPERATOR, _VALUES), max_size=2).map(tuple),
    st.lists(_FIELDS, max_size=1).map(tuple),
)
_TOLERATION = st.builds(
    Toleration,
    st.sampled_from(("", "pool", "zone", "node.kubernetes.io/unschedulable")),
    st.sampled_from(("Exists", "Equal")),
    _VALUE,
    st.one_of(st.just(""), _EFFECT),
)
_WHERE = st.builds(
    NodePredicate,
    st.lists(st.tuples(_KEY, _VALUE), max_size=2).map(tuple),
    st.one_of(st.none(), st.lists(_TERM, max_size=2).map(tuple)),
    st.lists(_TOLERATION, max_size=2).map(tuple),
)
_CHANGE = st.one_of(_NODE, _NAME, st.tuples(st.sampled_from(("a", "b")), _WHERE))


def _take(made: Ledger, change: Node | str | tuple[str, NodePredicate]) -> None:
    match change:
        case Node():
            made.set_node(change)
        case str():
            made.remove_node(change)
        case (app, where):
            made.set_demand(demand(app, 1, where=where))


@given(st.lists(_CHANGE, max_size=12))
def test_all_nodes_at_once_give_what_each_gives_alone(
    changes: list[Node | str | tuple[str, NodePredicate]],
) -> None:
    made = ledger()
    for change in changes:
        _take(made, change)
        check_columns(made)


def test_holds_leave_a_node_whose_labels_changed() -> None:
    where = NodePredicate(node_selector=(("pool", "a"),))
    made = ledger(node("n0", labels={"pool": "a"}), demand("a", 1, where=where))
    assert made.held_nodes() == {"n0"}
    made.set_node(node("n0", labels={"pool": "b"}))
    assert made.held_nodes() == set()


def test_a_scale_of_a_demand_leaves_the_holds_where_they_are() -> None:
    made = ledger(*(node(f"n{i}") for i in range(4)), demand("a", 4, 4))
    before = dict(made.report()["default/a"].holds)
    made.set_demand(demand("a", 6, 4))
    after = dict(made.report()["default/a"].holds)
    assert sum(after.values()) == 6
    assert all(after[name] >= count for name, count in before.items())
    made.set_demand(replace(demand("a", 6, 4), vector={"cpu": 8000, "memory": 1, "pods": 1}))
    assert made.report()["default/a"].held == 4
    check_columns(made)


def test_values_of_nodes_that_are_gone_and_keys_that_nobody_names_are_forgotten() -> None:
    asks = Requirement("host", "NotIn", ("h7",))
    made = ledger(demand("a", 1, where=NodePredicate(affinity=(NodeSelectorTerm(labels=(asks,)),))))
    for number in range(1_000):
        made.set_node(
            node(f"n{number}", labels={"host": f"h{number}"}, taints=(Taint("t", str(number), "X"),))
        )
        if number >= 20:
            made.remove_node(f"n{number - 20}")
    for number in range(1_000):
        key = NodePredicate(node_selector=((f"key-{number}", "x"),))
        made.set_demand(demand("b", 1, where=key))
    known = made._state.demands._nodes
    rows = made._state.table.shape[1]
    assert len(known._labels) <= 256
    assert len(known._taints.values) <= 2 * rows + 1
    made.set_demand(demand("c", 20, 1, where=NodePredicate(node_selector=(("host", "h999"),))))
    assert holds(made, "c") == {"n999": 8}
    check_columns(made)
