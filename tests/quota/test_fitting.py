"""Whether a pod fits its quota and those above it, and what it is told."""

from __future__ import annotations

import pytest

from quota.account import Account
from quota.fitting import refusal
from tests.quota.builders import GIB, account, pod, quota


def teams() -> Account:
    """Two teams of one department, beside another department; each has half of what is above it."""
    return account(
        {"cpu": 40_000, "memory": 40 * GIB},
        [
            quota("web", {"cpu": 40_000, "memory": 40 * GIB}, {"cpu": 20_000, "memory": 20 * GIB}),
            quota(
                "shop", {"cpu": 30_000, "memory": 30 * GIB}, {"cpu": 10_000, "memory": 10 * GIB}, parent="web"
            ),
            quota(
                "blog", {"cpu": 30_000, "memory": 30 * GIB}, {"cpu": 10_000, "memory": 10 * GIB}, parent="web"
            ),
            quota("data", {"cpu": 40_000}, {"cpu": 20_000}),
        ],
    )


def told(one: Account, cpu: int, of: str, **others: bool) -> str:
    asking = pod("asking", {"cpu": cpu, "pods": 1}, of=of, **others)
    one.count(asking)
    found = refusal(one, asking)
    return found.text if found else ""


def running(one: Account, cpu: int, of: str, **others: bool) -> None:
    one.count(pod(f"running-{of}-{others}", {"cpu": cpu, "pods": 1}, of=of, node="n1", **others))


def test_what_others_leave_may_be_used_up_to_max() -> None:
    one = teams()
    running(one, 25_000, "shop")
    assert told(one, 5_000, "shop") == ""
    assert told(one, 5_001, "shop") == (
        "quota quotas/shop: cpu: 5001m asked, 25 of 30 taken, 5 left: 30 is its max"
    )


def test_what_others_want_of_theirs_may_not() -> None:
    one = teams()
    running(one, 10_000, "shop")
    for name in ("blog", "data"):
        one.count(pod(f"waiting-{name}", {"cpu": 20_000}, of=name))
    assert told(one, 1_000, "shop") == (
        "quota quotas/shop: cpu: 1 asked, 10 of 10 taken, 0 left: 10 is what it may use now, the rest is its "
        "siblings'"
    )


def test_what_is_above_is_asked_too() -> None:
    one = teams()
    running(one, 20_000, "shop")
    one.count(pod("waiting", {"cpu": 20_000}, of="data"))
    # Its own min is free, and its sibling has borrowed it: the parent has no more.
    assert told(one, 1_000, "blog") == (
        "parent quota quotas/web: cpu: 1 asked, 20 of 20 taken, 0 left: 20 is what it may use now, the rest "
        "is its siblings'"
    )


def test_what_nobody_may_evict_stays_within_min() -> None:
    one = teams()
    running(one, 8_000, "shop", firm=True)
    assert told(one, 2_000, "shop", firm=True) == ""
    assert told(one, 2_500, "shop", firm=True) == (
        "quota quotas/shop: cpu: 2500m asked, 8 of 10 taken, 2 left: 10 is its min, and what nobody may "
        "evict must stay within"
    )
    assert told(one, 2_500, "shop") == ""


def test_a_resource_that_max_does_not_name_has_no_limit() -> None:
    one = teams()
    asking = pod("asking", {"memory": 100 * GIB}, of="data")
    one.count(asking)
    assert refusal(one, asking) is None


def test_a_pod_of_no_quota_is_of_the_default_one_which_has_no_limit_until_it_has_a_max() -> None:
    one = teams()
    assert told(one, 1_000_000, "") == ""
    one.change([quota("koordinator-default-quota", {"cpu": 5_000})])
    assert "5 is its max" in told(one, 6_000, "")


@pytest.mark.parametrize("freed", [0, 1_000])
def test_an_owner_takes_what_a_floor_holds_for_it(freed: int) -> None:
    one = account({"cpu": 40_000}, [quota("shop", {"cpu": 10_000}, {"cpu": 10_000})])
    one.hold("shop/checkout", ("pods", "shop"), {"cpu": 10_000})
    owner = pod("owner", {"cpu": 1_000}, of="shop")
    one.count(owner)
    found = refusal(one, owner, {"cpu": freed})
    assert (found is None) == bool(freed)
