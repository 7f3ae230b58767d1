"""Who owes what to whom."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from quota.account import Account
from quota.node import Node
from quota.owing import Debt, debts
from tests.quota.builders import account, ask, quota

SOME = st.integers(0, 20)
TREE = st.lists(st.tuples(st.integers(-1, 5), SOME, SOME, SOME, SOME, SOME, st.booleans()), max_size=7)
"""Of each quota: its parent's number, min, what max is beyond, weight, bound, waiting, whether it lends."""


def owed(one: Account) -> list[tuple[str, str, int]]:
    return [(debt.creditor[7:], debt.debtor[7:], debt.amount) for debt in debts(one, "cpu")]


def test_who_borrowed_gives_back_to_who_is_under_its_min_and_no_more_than_is_not_free() -> None:
    quotas = [quota(name, {"cpu": 100}, {"cpu": 30}) for name in ("a", "b", "c")]
    one = account({"cpu": 100}, quotas)
    ask(one, {"a": {"cpu": 60}, "b": {"cpu": 35}}, bound=True)
    assert owed(one) == []
    ask(one, {"c": {"cpu": 20}})
    # 5 are free; of 80 that are left a and b have 40 each, and b keeps within that.
    assert owed(one) == [("c", "a", 15)]
    ask(one, {"c": {"cpu": 50}})
    assert owed(one) == [("c", "a", 25)]


def test_who_has_most_too_much_gives_first() -> None:
    quotas = [quota(name, {"cpu": 100}, {"cpu": 25}) for name in ("a", "b", "c", "d")]
    one = account({"cpu": 100}, quotas)
    ask(one, {"a": {"cpu": 40}, "b": {"cpu": 60}}, bound=True)
    ask(one, {"c": {"cpu": 25}, "d": {"cpu": 25}})
    assert owed(one) == [("c", "b", 25), ("d", "b", 10), ("d", "a", 15)]


def test_beneath_a_debtor_those_who_have_too_much_give_back() -> None:
    quotas = [
        quota("web", {"cpu": 100}, {"cpu": 40}),
        quota("shop", {"cpu": 100}, {"cpu": 20}, parent="web"),
        quota("blog", {"cpu": 100}, {"cpu": 20}, parent="web"),
        quota("data", {"cpu": 100}, {"cpu": 60}),
    ]
    one = account({"cpu": 100}, quotas)
    ask(one, {"shop": {"cpu": 80}, "blog": {"cpu": 20}}, bound=True)
    ask(one, {"data": {"cpu": 60}})
    assert owed(one) == [("data", "shop", 60)]
    # Its own sibling is owed as well.
    ask(one, {"blog": {"cpu": 10}})
    assert owed(one) == [("data", "shop", 60)]


def test_siblings_owe_within_their_parent() -> None:
    quotas = [
        quota("web", {"cpu": 50}, {"cpu": 50}),
        quota("shop", {"cpu": 50}, {"cpu": 25}, parent="web"),
        quota("blog", {"cpu": 50}, {"cpu": 25}, parent="web"),
    ]
    one = account({"cpu": 100}, quotas)
    ask(one, {"shop": {"cpu": 45}}, bound=True)
    ask(one, {"blog": {"cpu": 25}})
    assert owed(one) == [("blog", "shop", 20)]


def test_what_floors_hold_is_not_given_back() -> None:
    quotas = [quota("a", {"cpu": 100}, {"cpu": 10}), quota("b", {"cpu": 100}, {"cpu": 90})]
    one = account({"cpu": 100}, quotas)
    one.hold("n/policy", ("pods", "a"), {"cpu": 30})
    ask(one, {"a": {"cpu": 20}}, bound=True)
    ask(one, {"b": {"cpu": 90}})
    assert owed(one) == [("b", "a", 20)]


def test_pods_of_a_parent_are_its_own_debt() -> None:
    quotas = [quota("a", {"cpu": 100}, {"cpu": 10}), quota("a1", {"cpu": 100}, {}, parent="a")]
    one = account({"cpu": 100}, [*quotas, quota("b", {"cpu": 100}, {"cpu": 90})])
    ask(one, {"a": {"cpu": 80}, "a1": {"cpu": 20}}, bound=True)
    ask(one, {"b": {"cpu": 90}})
    assert owed(one) == [("b", "a1", 20), ("b", "a", 70)]


@given(st.integers(0, 60), TREE)
def test_always(total: int, stated: list[tuple[int, int, int, int, int, int, bool]]) -> None:
    quotas = [
        quota(
            f"q{number}",
            {"cpu": low + more},
            {"cpu": low},
            weight={"cpu": weight},
            parent=f"q{parent}" if 0 <= parent < number else "",
            lends=lends,
        )
        for number, (parent, low, more, weight, _, _, lends) in enumerate(stated)
    ]
    one = account({"cpu": total}, quotas)
    for number, (*_, bound, waiting, _) in enumerate(stated):
        ask(one, {f"q{number}": {"cpu": bound}}, bound=True)
        ask(one, {f"q{number}": {"cpu": waiting}})
    found = debts(one, "cpu")
    assert all(debt.amount > 0 and debt.creditor != debt.debtor for debt in found)
    got, gave = Counter[str](), Counter[str]()
    for debt in found:
        got[debt.creditor] += debt.amount
        gave[debt.debtor] += debt.amount
    for key, node in one.tree.nodes.items():
        stands = one.stands(key, "cpu")
        assert got[key] <= stands.owed
        assert gave[key] <= (stands.due if not node.children else node.aside.get("cpu", 0))
    assert debts(one, "cpu") == found
    for root in one.tree.roots.values():
        enough(one, root, total, found)


def enough(one: Account, parent: Node, has: int, found: list[Debt]) -> None:
    """When all is given back, there is room for all that is owed."""
    children = [child for child in parent.children if child.shares("cpu")]
    stands = {child.quota.key: one.stands(child.quota.key, "cpu") for child in children}
    room = max(0, has - parent.taken.get("cpu", 0))
    missing = sum(each.owed for each in stands.values()) - room
    assert sum(debt.amount for debt in found if debt.creditor in stands) == max(0, missing)
    for child in children:
        enough(one, child, stands[child.quota.key].runtime or 0, found)
