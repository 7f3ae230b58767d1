"""Changes that concern shares elsewhere in the tree: each is seen the next time somebody asks."""

from __future__ import annotations

from dataclasses import replace

from qos import keys
from tests.quota.builders import account, ask, pod, quota, runtimes, standing

MUCH = {"cpu": 1_000}


def test_a_pod_of_no_quota_that_gets_its_node() -> None:
    one = account({"cpu": 100}, [quota("a", MUCH)])
    ask(one, {"a": MUCH})
    waiting = pod("waiting", {"cpu": 10})
    one.count(waiting)
    assert runtimes(one, "cpu", "a") == [100]
    one.count(waiting, bound=True)
    assert runtimes(one, "cpu", "a") == [90]
    one.forget(waiting.uid)
    assert runtimes(one, "cpu", "a") == [100]


def test_a_floor_in_a_quota_that_asks_for_its_max_already() -> None:
    one = account({"cpu": 100}, [quota(name, MUCH, {"cpu": 100}) for name in ("a", "b")])
    ask(one, {"a": MUCH, "b": MUCH})
    assert runtimes(one, "cpu", "a", "b") == [50, 50]
    one.hold("n/policy", ("pods", "a"), {"cpu": 60})
    # 40 are left for what is not held of the mins, 40 and 100; the one that is left over goes by weight.
    assert [standing(one, name).guaranteed for name in ("a", "b")] == [71, 28]
    assert runtimes(one, "cpu", "a", "b") == [72, 28]


def test_a_quota_that_stops_naming_a_resource() -> None:
    both = {"cpu": 1_000, "memory": 1_000}
    one = account({"cpu": 100, "memory": 100}, [quota("a", both), quota("b", both)])
    ask(one, {"a": {"cpu": 1, "memory": 40}, "b": both}, bound=True)
    assert runtimes(one, "memory", "a", "b") == [40, 60]
    one.change([quota("a", {"cpu": 1_000})])
    assert runtimes(one, "memory", "a", "b") == [None, 60], "what it has is not shared any more"
    ask(one, {"a": {"memory": 10}}, bound=True)
    assert runtimes(one, "memory", "b") == [50]
    one.change([quota("a", both)])
    assert runtimes(one, "memory", "a", "b") == [50, 50]


def test_a_parent_that_stops_limiting_a_resource() -> None:
    parent = quota("top", {"cpu": 50, "memory": 50})
    child = quota("leaf", {"cpu": 80, "memory": 80}, parent="top")
    for where in ("", "other"):
        one = account({"cpu": 100, "memory": 100}, [parent, child, quota("other", MUCH)])
        ask(one, {"leaf": {"cpu": 80, "memory": 80}})
        assert runtimes(one, "memory", "top", "leaf") == [50, 50]
        one.change([quota("top", {"cpu": 50}, parent=where)])
        assert runtimes(one, "memory", "top", "leaf") == [None, 80]
        assert runtimes(one, "cpu", "leaf") == [50]


def test_a_parent_that_moves_to_where_there_is_nothing() -> None:
    rich = quota("rich", {"cpu": 100}, tree="rich", is_root=True, total={"cpu": 100})
    one = account({}, [rich, quota("top", MUCH, parent="rich"), quota("leaf", MUCH, parent="top")])
    ask(one, {"leaf": MUCH})
    assert runtimes(one, "cpu", "rich", "top", "leaf") == [100, 100, 100]
    one.change([quota("top", MUCH)])
    assert runtimes(one, "cpu", "top", "leaf") == [0, 0]


def test_a_new_sibling_that_takes_all() -> None:
    quotas = [quota("top", {"cpu": 10}), quota("leaf", {"cpu": 10}, parent="top")]
    one = account({"cpu": 10}, quotas)
    ask(one, {"leaf": {"cpu": 10}, "new": {"cpu": 10}})
    assert runtimes(one, "cpu", "top", "leaf") == [10, 10]
    one.change([quota("new", {"cpu": 10}, {"cpu": 10})])
    assert runtimes(one, "cpu", "leaf", "new") == [0, 10]


def test_pods_of_a_parent_are_taken_from_what_its_children_share() -> None:
    one = account({"cpu": 100}, [quota("top", {"cpu": 50}), quota("leaf", MUCH, parent="top")])
    ask(one, {"leaf": MUCH})
    assert runtimes(one, "cpu", "leaf") == [50]
    ask(one, {"top": {"cpu": 20}}, bound=True)
    assert runtimes(one, "cpu", "top", "leaf") == [50, 30]


def test_what_is_taken_without_having_been_asked_for() -> None:
    one = account({"cpu": 100}, [quota("a", MUCH)])
    ask(one, {"a": MUCH})
    assert runtimes(one, "cpu", "a") == [100]
    one.tree.add(f"/{keys.DEFAULT_QUOTA}", {}, {"cpu": 10}, {}, {}, 1)
    assert runtimes(one, "cpu", "a") == [90]


def test_a_tree_that_gets_more() -> None:
    rich = quota("rich", MUCH, tree="rich", is_root=True, total={"cpu": 30})
    one = account({"cpu": 100}, [rich, quota("leaf", MUCH, parent="rich"), quota("poor", MUCH)])
    ask(one, {"leaf": MUCH, "poor": MUCH})
    assert runtimes(one, "cpu", "leaf", "poor") == [30, 70]
    one.change([replace(rich, total={"cpu": 60})])
    assert runtimes(one, "cpu", "leaf", "poor") == [60, 40]
    one.change([replace(rich, total={"cpu": 60}, beside=True)])
    assert runtimes(one, "cpu", "leaf", "poor") == [60, 100]
    one.change(drop=[rich.key])
    assert runtimes(one, "cpu", "leaf", "poor") == [50, 50], (
        "it is in the default tree now, without its parent"
    )


def test_a_pod_that_asks_for_something_else() -> None:
    one = account({"cpu": 100}, [quota("a", MUCH)])
    one.count(pod("p", {"cpu": 10}, of="a", node="n"))
    one.count(pod("p", {"cpu": 25}, of="a", node="n"))
    assert (standing(one, "a").request, standing(one, "a").used) == (25, 25)
    one.count(pod("p", {"cpu": 25}, of="a", node="n", phase="Succeeded"))
    assert (standing(one, "a").request, standing(one, "a").used) == (0, 0)
    assert one.counts("uid-p") is None
