"""Floors and quotas: what a policy holds counts against its quota's min first, and is lent to nobody."""

from __future__ import annotations

from quota.account import Account
from quota.fitting import refusal
from tests.quota.builders import account, ask, pod, quota, runtimes, standing


def two(shop: int = 50_000, data: int = 50_000, total: int = 100_000) -> Account:
    quotas = [quota("shop", {"cpu": total}, {"cpu": shop}), quota("data", {"cpu": total}, {"cpu": data})]
    return account({"cpu": total}, quotas)


def test_what_is_held_is_taken_from_min_and_the_rest_of_min_is_lent() -> None:
    one = two()
    one.hold("shop/checkout", ("pods", "shop"), {"cpu": 30_000})
    ask(one, {"data": {"cpu": 100_000}})
    shop = standing(one, "shop")
    assert (shop.held, shop.used, shop.request) == (30_000, 0, 30_000)
    assert (shop.guaranteed, shop.lent, shop.borrowed) == (50_000, 20_000, 0)
    assert runtimes(one, "cpu", "shop", "data") == [30_000, 70_000]


def test_other_pods_of_the_quota_have_what_floors_leave_of_it() -> None:
    one = two()
    one.hold("shop/checkout", ("pods", "shop"), {"cpu": 30_000})
    ask(one, {"data": {"cpu": 50_000}})
    other = pod("other", {"cpu": 20_001}, of="shop")
    one.count(other)
    found = refusal(one, other)
    assert found is not None
    assert (found.taken, found.limit) == (30_000, 50_000)


def test_what_is_held_beyond_min_is_borrowed_and_not_given_back() -> None:
    one = two(shop=10_000)
    one.hold("shop/checkout", ("pods", "shop"), {"cpu": 30_000})
    ask(one, {"data": {"cpu": 100_000}})
    shop = standing(one, "shop")
    assert (shop.guaranteed, shop.runtime, shop.due) == (30_000, 30_000, 0)
    assert runtimes(one, "cpu", "data") == [70_000]


def test_floors_come_before_the_mins_of_others() -> None:
    one = two(shop=10_000, data=90_000)
    one.hold("shop/checkout", ("pods", "shop"), {"cpu": 30_000})
    ask(one, {"data": {"cpu": 90_000}})
    assert runtimes(one, "cpu", "shop", "data") == [30_000, 70_000]
    data = standing(one, "data")
    assert (data.min, data.guaranteed) == (90_000, 70_000)


def test_a_pod_that_fills_a_slot_changes_nothing_for_others() -> None:
    one = two()
    one.hold("shop/checkout", ("pods", "shop"), {"cpu": 30_000})
    ask(one, {"data": {"cpu": 100_000}})
    before = runtimes(one, "cpu", "shop", "data")
    one.count(pod("owner", {"cpu": 10_000}, of="shop", node="n1"))
    one.hold("shop/checkout", ("pods", "shop"), {"cpu": 20_000})
    shop = standing(one, "shop")
    assert (shop.held, shop.used) == (20_000, 10_000)
    assert runtimes(one, "cpu", "shop", "data") == before


def test_what_is_held_goes_with_the_policy() -> None:
    one = two()
    one.hold("shop/checkout", ("pods", "shop"), {"cpu": 30_000})
    one.hold("shop/checkout", ("pods", "shop"), {})
    assert standing(one, "shop").held == 0
    assert runtimes(one, "cpu", "shop") == [0]


def test_a_parent_keeps_what_floors_hold_beneath_it() -> None:
    quotas = [
        quota("web", {"cpu": 100_000}, {"cpu": 20_000}),
        quota("shop", {"cpu": 100_000}, {"cpu": 10_000}, parent="web"),
        quota("blog", {"cpu": 100_000}, {"cpu": 10_000}, parent="web"),
        quota("data", {"cpu": 100_000}, {"cpu": 80_000}),
    ]
    one = account({"cpu": 100_000}, quotas)
    one.hold("shop/checkout", ("pods", "shop"), {"cpu": 30_000})
    ask(one, {"data": {"cpu": 100_000}, "blog": {"cpu": 10_000}})
    assert runtimes(one, "cpu", "web", "shop", "blog", "data") == [30_000, 30_000, 0, 70_000]
    assert standing(one, "blog").guaranteed == 0, "its sibling's floors have used up what they share"


def test_what_floors_of_no_quota_hold_is_not_shared_at_all() -> None:
    one = two()
    one.hold("other/policy", ("other", ""), {"cpu": 40_000})
    ask(one, {"data": {"cpu": 100_000}, "shop": {"cpu": 100_000}})
    assert runtimes(one, "cpu", "shop", "data") == [30_000, 30_000]
