"""What Koordinator's own tests say of whole trees (core/group_quota_manager_test.go): the same figures here.

Amounts are cpu in cores and memory in GiB, as there.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from qos import keys
from qos.cluster.quota import ElasticQuota
from quota.account import Account
from tests.quota import builders
from tests.quota.builders import GIB, NAMESPACE, ask, runtimes, standing


def amounts(cpu: int, memory: int) -> dict[str, int]:
    return builders.amounts(cpu * 1000, memory * GIB)


def quota(
    name: str, parent: str, most: tuple[int, int], least: tuple[int, int], *, lends: bool = True
) -> ElasticQuota:
    return builders.quota(name, amounts(*most), amounts(*least), parent=parent, lends=lends)


def account(total: tuple[int, int], *quotas: ElasticQuota) -> Account:
    return builders.account(amounts(*total), quotas)


def asked(one: Account, **requests: tuple[int, int]) -> None:
    ask(one, {name.replace("_", "-"): amounts(*request) for name, request in requests.items()})


def runtime(one: Account, name: str) -> Mapping[str, int | None]:
    return {resource: standing(one, name, resource).runtime for resource in ("cpu", "memory")}


def request(one: Account, name: str) -> dict[str, int]:
    return {resource: standing(one, name, resource).request for resource in ("cpu", "memory")}


def test_two_share_beyond_their_min_by_max() -> None:
    one = account((96, 160), quota("a", "", (96, 160), (50, 80)), quota("b", "", (96, 160), (40, 80)))
    asked(one, a=(120, 200))
    assert runtime(one, "a") == amounts(96, 160)
    asked(one, b=(150, 210))
    assert runtime(one, "a") == amounts(53, 80)
    assert runtime(one, "b") == amounts(43, 80)


def test_a_max_that_is_lowered_bounds_the_runtime() -> None:
    one = account((96, 160), quota("a", "", (96, 160), (50, 80)))
    asked(one, a=(120, 290))
    assert runtime(one, "a") == amounts(96, 160)
    one.change([quota("a", "", (64, 100), (60, 90))])
    assert runtime(one, "a") == amounts(64, 100)


@pytest.mark.parametrize(
    ("lends", "runtimes_after"),
    [
        ((False, False, False), [(60, 20, 20), (60, 40, 20), (80, 60, 20)]),
        ((True, False, True), [(20, 20, 0), (40, 40, 0), (60, 60, 0)]),
        ((True, False, False), [(40, 20, 20), (60, 40, 20), (80, 60, 20)]),
    ],
)
def test_who_does_not_lend(
    lends: tuple[bool, bool, bool], runtimes_after: list[tuple[int, int, int]]
) -> None:
    one = account(
        (100, 0),
        quota("top", "", (96, 0), (60, 0), lends=lends[0]),
        quota("a", "top", (96, 0), (20, 0), lends=lends[1]),
        quota("b", "top", (96, 0), (20, 0), lends=lends[2]),
    )
    for cpu, expected in zip((0, 40, 20), runtimes_after, strict=True):
        asked(one, a=(cpu, 0))
        assert runtimes(one, "cpu", "top", "a", "b") == [each * 1000 for each in expected]


def test_a_request_goes_up_within_each_max() -> None:
    one = account(
        (96, 160),
        quota("top", "", (96, 160), (80, 80)),
        quota("mid", "top", (60, 80), (50, 80)),
        quota("leaf", "mid", (30, 60), (20, 40)),
    )
    for more, whole in (((10, 30), (10, 30)), ((15, 15), (25, 45)), ((30, 30), (30, 60))):
        asked(one, leaf=more)
        assert runtime(one, "leaf") == amounts(*whole)
        assert request(one, "mid") == request(one, "top") == amounts(*whole)


def test_a_childs_max_beyond_its_parents() -> None:
    one = account(
        (350, 1800), quota("top", "", (300, 1024), (176, 756)), quota("leaf", "top", (500, 2048), (100, 512))
    )
    asked(one, leaf=(400, 1500))
    assert request(one, "top") == amounts(400, 1500)
    assert runtime(one, "leaf") == amounts(300, 1024)
    asked(one, leaf=(400, 1500))
    assert runtime(one, "leaf") == amounts(300, 1024)


def test_a_max_beyond_all_that_there_is() -> None:
    one = account(
        (300, 8000), quota("top", "", (600, 4096), (100, 100)), quota("leaf", "top", (500, 2048), (100, 100))
    )
    asked(one, leaf=(1050, 8192))
    assert request(one, "leaf") == amounts(1050, 8192)
    assert request(one, "top") == amounts(500, 2048)
    assert runtime(one, "leaf") == runtime(one, "top") == amounts(300, 2048)


def test_mins_beyond_the_whole_are_scaled_and_come_back() -> None:
    mins = [quota(name, "top", (1000, 1000), (100, 100)) for name in "abc"]
    one = account((200, 200), quota("top", "", (1000, 1000), (300, 300)), *mins)
    asked(one, a=(200, 200), b=(200, 200), c=(200, 200))
    assert runtime(one, "top") == amounts(200, 200)
    part = 200 * GIB // 3
    assert runtime(one, "a") == runtime(one, "b") == {"cpu": 66_667, "memory": part + 1}
    assert standing(one, "top").guaranteed == 200_000
    for name in "abc":
        assert standing(one, name).guaranteed == 66_666
        assert standing(one, name, "memory").guaranteed == part
    one.set_cluster(amounts(600, 600))
    assert runtime(one, "top") == amounts(600, 600)
    assert all(runtime(one, name) == amounts(200, 200) for name in "abc")
    assert standing(one, "top").guaranteed == 300_000


def test_scaled_mins_of_those_that_want_nothing_are_lent() -> None:
    mins = [quota(name, "top", (1000, 1000), (100, 100)) for name in "abc"]
    one = account((200, 200), quota("top", "", (1000, 1000), (300, 300)), *mins)
    asked(one, a=(200, 200), c=(200, 200))
    assert runtimes(one, "cpu", "a", "b", "c") == [100_000, 0, 100_000]
    assert standing(one, "b").lent == 66_666


def test_a_quota_that_moves_takes_its_pods_along() -> None:
    both = (96, 160)
    leaf = quota("leaf", "one-a", both, (50, 80))
    one = account(
        both,
        quota("one", "", both, (100, 160)),
        quota("one-a", "one", both, (50, 80)),
        leaf,
        quota("two", "", both, (100, 160)),
        quota("two-a", "two", both, (50, 80)),
    )
    ask(one, {"leaf": amounts(60, 100), "two-a": amounts(20, 40)}, bound=True)
    assert request(one, "one") == amounts(60, 100)
    one.change([quota("leaf", "two", both, (50, 80))])
    for name, whole in (("one", (0, 0)), ("one-a", (0, 0)), ("leaf", (60, 100)), ("two", (80, 140))):
        assert request(one, name) == runtime(one, name) == amounts(*whole), name
        assert standing(one, name).used == whole[0] * 1000


def test_what_the_system_and_the_default_quota_use_is_not_shared() -> None:
    one = account((100, 540), quota("a", "", (200, 600), (0, 0)))
    asked(one, a=(200, 600))
    ask(one, {keys.SYSTEM_QUOTA: amounts(10, 30)}, bound=True)
    assert runtime(one, "a") == amounts(90, 510)
    ask(one, {"": amounts(10, 30)}, bound=True)
    assert runtime(one, "a") == amounts(80, 480)
    ask(one, {"": amounts(10, 30)})
    assert runtime(one, "a") == amounts(80, 480), "what only waits takes nothing"


def test_the_default_quota_may_use_its_max() -> None:
    one = account((10, 10), builders.quota(keys.DEFAULT_QUOTA, amounts(100, 1000)))
    assert runtime(one, keys.DEFAULT_QUOTA) == amounts(100, 1000)


def test_the_mins_of_those_that_do_not_lend_are_requests() -> None:
    one = account(
        (50, 50),
        quota("top", "", (40, 40), (20, 20), lends=False),
        quota("a", "top", (40, 40), (10, 10), lends=False),
        quota("b", "top", (40, 40), (5, 5), lends=False),
    )
    for more, lifted in ((0, 15), (5, 15), (10, 20), (10, 30)):
        asked(one, a=(more, more))
        assert request(one, "top") == amounts(lifted, lifted)
        assert runtime(one, "top") == amounts(max(20, lifted), max(20, lifted))


def test_what_is_used_is_guaranteed_where_that_is_wanted() -> None:
    quotas = [
        quota("top", "", (40, 40), (20, 20)),
        quota("a", "top", (40, 40), (10, 10)),
        quota("b", "top", (40, 40), (5, 5)),
    ]
    one = builders.account(amounts(50, 50), quotas, guarantees=True)
    for more, own, above in ((5, 10, 20), (10, 15, 20), (10, 25, 30)):
        ask(one, {"a": amounts(more, more)}, bound=True)
        assert standing(one, "a").guaranteed == own * 1000
        assert standing(one, "top").guaranteed == above * 1000


def test_a_quota_that_comes_after_its_pods() -> None:
    one = account((50, 50))
    asked(one, late=(10, 10))
    assert one.quota_of(builders.pod("any", {}, of="late")).name == keys.DEFAULT_QUOTA
    one.change([quota("late", "", (40, 40), (20, 20))])
    assert request(one, "late") == amounts(10, 10)
    one.change(drop=[f"{NAMESPACE}/late"])
    assert [each.name for each in one.quotas()] == [keys.DEFAULT_QUOTA]
