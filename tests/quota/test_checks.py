"""What is refused of quotas and pods: Koordinator's cases (webhook/elasticquota), and what is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from qos import keys
from qos.cluster.quota import ElasticQuota
from quota import checks
from quota.book import Book
from tests.quota.builders import GIB, pod
from tests.quota.builders import quota as make

MAX = {"cpu": 120_000, "memory": GIB}
MIN = {"cpu": 64_000, "memory": GIB // 2}


def quota(name: str, parent: str = "", least: Mapping[str, int] = MIN, **others: Any) -> ElasticQuota:
    return make(name, others.pop("most", MAX), least, parent=parent, **others)


def book(*quotas: ElasticQuota) -> Book:
    one = Book()
    one.change(quotas)
    return one


WEB = quota("web", is_parent=True)
SHOP = quota("shop", "web", {"cpu": 16_000, "memory": GIB // 4})
BLOG = quota("blog", "web", {"cpu": 16_000, "memory": GIB // 4})
TEAMS = book(WEB, SHOP, BLOG)


def told(
    new: ElasticQuota, old: ElasticQuota | None = None, in_: Book = TEAMS, pods: tuple[str, ...] = ()
) -> str:
    return "\n".join(checks.of_change(in_, new, old, pods))


def test_what_is_right_is_let_through() -> None:
    assert told(WEB, in_=book()) == ""
    assert told(SHOP, in_=book(WEB, BLOG)) == ""
    assert told(quota("other")) == ""
    assert told(replace(SHOP, parent="two"), SHOP, book(WEB, SHOP, quota("two", is_parent=True))) == ""
    assert told(replace(WEB, weight={"cpu": 1, "memory": 1}), WEB) == ""


def test_a_quota_is_in_its_parents_tree_and_stays_there() -> None:
    """Koordinator's webhook writes the parent's tree-id into the child; here it need not be written."""
    gpu = quota("gpu", is_parent=True, tree="gpu")
    child = quota("one", "gpu", {"cpu": 16_000, "memory": GIB // 4})
    there = book(WEB, gpu, child)
    assert told(child, in_=book(WEB, gpu)) == ""
    assert told(replace(child, tree="gpu"), child, there) == ""
    assert told(replace(child, max={"cpu": 1, "memory": 1}, min={}), child, there) == ""
    assert '"gpu" may not become ""' in told(replace(child, parent="web"), child, there)


PARENT = f"metadata.labels[{keys.QUOTA_PARENT_LABEL}]"
APART = "spec.max: it and its parent quotas/web do not name the same resources: "


@pytest.mark.parametrize(
    ("new", "problem"),
    [
        (quota("temp", most={"cpu": -1_000}, least={}), "spec.max.cpu: -1 is negative: write zero or more"),
        (quota("temp", least={"cpu": -1_000}), "spec.min.cpu: -1 is negative: write zero or more"),
        (
            quota("temp", most={"cpu": 10_000}, least={"cpu": 1_000, "memory": GIB}),
            "spec.min.memory: 1Gi, and spec.max does not name it: give memory a max, or no min",
        ),
        (
            quota("temp", most={"cpu": 10_000}, least={"cpu": 12_000}),
            "spec.min.cpu: 12 is more than its max, 10: lower min, or raise max",
        ),
        (quota("temp", problems=("metadata.annotations[x]: not JSON",)), "metadata.annotations[x]: not JSON"),
        (
            quota("temp", "web", {}, most={"cpu": 10_000}),
            f"{APART}memory: name each of them in both, or in none",
        ),
        (
            quota("temp", "web", {}, most={**MAX, "gpu": 1}),
            f"{APART}gpu: name each of them in both, or in none",
        ),
        (
            quota("temp", "web", {"cpu": 32_001}),
            (
                "spec.min.cpu: those of all children of quotas/web are 64001m together, more than its min, "
                "64: lower one of them, or raise that"
            ),
        ),
        (quota("temp", "gone", {}), f"{PARENT}: gone is no quota that can have children: name another one"),
        (
            quota("temp", keys.SYSTEM_QUOTA, {}),
            f"{PARENT}: koordinator-system-quota is no quota that can have children: name another one",
        ),
        (
            quota("temp", "shop", {}),
            (
                f"{PARENT}: ElasticQuota quotas/shop is no parent: give it the label "
                f'{keys.QUOTA_IS_PARENT_LABEL}: "true" first'
            ),
        ),
        (
            quota("temp", "web", {}, tree="gpu"),
            (
                f'metadata.labels[{keys.QUOTA_TREE_LABEL}]: "gpu", and its parent quotas/web has "": '
                "give both the same"
            ),
        ),
        (
            quota("shop", namespace="elsewhere", tree="x"),
            (
                "metadata.name: ElasticQuota quotas/shop has the same name, and labels mean that one: "
                "choose another name"
            ),
        ),
    ],
)
def test_what_may_not_be_made(new: ElasticQuota, problem: str) -> None:
    assert told(new) == f"ElasticQuota {new.key}: {problem}"


@pytest.mark.parametrize(
    ("old", "change", "problem"),
    [
        (SHOP, {"parent": "shop"}, f"labels[{keys.QUOTA_PARENT_LABEL}]: shop is itself or beneath it"),
        (WEB, {"parent": "blog"}, f"labels[{keys.QUOTA_PARENT_LABEL}]: blog is itself or beneath it"),
        (
            WEB,
            {"is_parent": False},
            'it has 2 children (quotas/blog, quotas/shop): it stays "true" while there are any',
        ),
        (
            SHOP,
            {"is_parent": True},
            "is-parent]: it has 4 pods (a/1, a/2, a/3 ...), and parents have none: delete them first",
        ),
        (SHOP, {"tree": "gpu"}, f'labels[{keys.QUOTA_TREE_LABEL}]: "" may not become "gpu"'),
        (
            WEB,
            {"min": {"cpu": 31_000, "memory": GIB}},
            "spec.min.cpu: those of its children are 32 together, more than its own, 31",
        ),
        (WEB, {"min": {"cpu": 64_000}}, "spec.min: it has no min of what its child quotas/blog has: memory"),
        (SHOP, {"min": {"cpu": 121_000}}, "spec.min.cpu: 121 is more than its max, 120"),
    ],
)
def test_what_may_not_become_so(old: ElasticQuota, change: dict[str, Any], problem: str) -> None:
    assert problem in told(replace(old, **change), old, pods=("a/1", "a/2", "a/3", "a/4"))


def test_a_min_that_its_parent_does_not_have() -> None:
    above = quota("web", least={"cpu": 64_000}, is_parent=True)
    assert told(SHOP, in_=book(above)).endswith(
        "spec.min: its parent quotas/web has no min of: memory: state one there first"
    )


def test_sums_of_min_are_not_looked_at_where_that_is_said() -> None:
    much = {"cpu": 100_000, "memory": GIB // 4}
    assert "together, more than" in told(quota("temp", "web", much))
    assert told(quota("temp", "web", much, forced=True)) == ""
    assert told(replace(WEB, min={"cpu": 1, "memory": 1}, is_root=True), WEB) == ""


def test_a_namespace_is_bound_once() -> None:
    one = book(quota("first", namespaces=("yard",)))
    assert told(quota("second", namespaces=("shop", "yard")), in_=one) == (
        f"ElasticQuota quotas/second: metadata.annotations[{keys.QUOTA_NAMESPACES_ANNOTATION}]: yard is "
        "bound to ElasticQuota quotas/first: take it out there first"
    )
    first = quota("first", namespaces=("yard", "shop"))
    assert told(first, quota("first", namespaces=("yard",)), one) == ""


def test_what_does_not_change_a_rule_is_never_refused() -> None:
    wrong = quota("wrong", "gone", {"cpu": 121_000})
    assert told(replace(wrong, resource_version="8", generation=2), wrong) == ""


@pytest.mark.parametrize("name", [keys.SYSTEM_QUOTA, keys.ROOT_QUOTA])
def test_koordinators_own_stay_as_they_are(name: str) -> None:
    old = quota(name, least={})
    assert "is Koordinator's own: leave it as it is" in told(replace(old, max={"cpu": 1}), old)
    assert told(old) == "", "its scheduler makes it"


def test_the_default_quota_may_get_a_max() -> None:
    old = quota(keys.DEFAULT_QUOTA, least={})
    assert told(replace(old, max={"cpu": 1}), old) == ""


def test_plain_ones_may_have_one_name_in_many_namespaces() -> None:
    one = book(quota("quota", namespace="a", plain=True))
    assert told(quota("quota", namespace="b", plain=True), in_=one) == ""


def test_who_has_children_or_pods_is_not_deleted() -> None:
    (problem,) = checks.of_deletion(TEAMS, WEB)
    assert problem == (
        "ElasticQuota quotas/web: it has 2 children (quotas/blog, quotas/shop): delete them first, or give "
        "them another parent"
    )
    assert checks.of_deletion(TEAMS, SHOP, ["a/1"]) == [
        "ElasticQuota quotas/shop: it has 1 pod (a/1): delete them first, or give them another quota"
    ]
    assert checks.of_deletion(TEAMS, SHOP) == []
    assert checks.of_deletion(TEAMS, quota(keys.DEFAULT_QUOTA)) == [
        "ElasticQuota quotas/koordinator-default-quota is Koordinator's own: it cannot be deleted"
    ]


def test_no_pods_on_parents() -> None:
    assert checks.of_pod(TEAMS, pod("a", {}, of="shop")) == []
    assert checks.of_pod(TEAMS, pod("a", {}, of="nobody")) == []
    (problem,) = checks.of_pod(TEAMS, pod("a", {}, of="web"))
    assert problem == (
        f"Pod pods/a: metadata.labels[{keys.QUOTA_NAME_LABEL}]: its quota, ElasticQuota quotas/web, is a "
        "parent, and those have no pods: name one of its children, blog, shop"
    )
