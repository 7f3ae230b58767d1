"""Changes that are under way: two at once are not each let through as if they were alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manager.quotas.known import UNDER_WAY_SECONDS, UnderWay
from manager.quotas.reviews import Change
from qos.cluster.quota import ElasticQuota
from tests.quota.builders import quota

WEB = quota("web", {}, is_parent=True, resource_version="3")
SHOP = quota("shop", {}, parent="web", resource_version="5")


@pytest.fixture
def under_way(fake_time) -> UnderWay:
    return UnderWay(fake_time)


def names(under_way: UnderWay, *stored: ElasticQuota, key: str = "quotas/other") -> list[list[str]]:
    """Of each state that may be: the quotas, but for those that are always there."""
    return [sorted(one.key for one in book if one.namespace) for book in under_way.books(stored, key)]


def test_a_creation_counts_until_it_is_stored(under_way: UnderWay) -> None:
    under_way.note(Change(SHOP.key, "", replace(SHOP, resource_version="")))
    assert names(under_way, WEB) == [["quotas/web"], ["quotas/shop", "quotas/web"]]
    assert names(under_way, WEB, key=SHOP.key) == [["quotas/web"]]  # its own
    assert names(under_way, WEB, SHOP) == [["quotas/shop", "quotas/web"]]
    assert names(under_way, WEB) == [["quotas/web"]]  # it has gone since


def test_a_deletion_counts_until_it_is_stored(under_way: UnderWay) -> None:
    under_way.note(Change(WEB.key, "3", None))
    assert names(under_way, WEB) == [["quotas/web"], []]
    assert names(under_way) == [[]]
    assert names(under_way, WEB) == [["quotas/web"]]


def test_a_change_counts_until_the_object_has_another_version(under_way: UnderWay) -> None:
    raised = replace(WEB, min={"cpu": 5})
    under_way.note(Change(WEB.key, "3", raised))
    plain, later = under_way.books([WEB], "quotas/other")
    assert (plain.named("web"), later.named("web")) == (WEB, raised)
    assert len(under_way.books([replace(WEB, resource_version="4")], "quotas/other")) == 1


def test_what_others_refused_is_forgotten(under_way: UnderWay, fake_time) -> None:
    under_way.note(Change(SHOP.key, "", SHOP))
    fake_time.now += UNDER_WAY_SECONDS + 0.1
    assert names(under_way, WEB) == [["quotas/web"]]
