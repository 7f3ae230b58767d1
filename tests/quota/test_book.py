"""Names, places in trees, and which quota a pod is of."""

from __future__ import annotations

import pytest

from qos import keys
from qos.cluster.quota import ElasticQuota
from quota.book import Book, Place


def quota(key: str, **others: object) -> ElasticQuota:
    namespace, _, name = key.partition("/")
    return ElasticQuota(namespace, name, **others)  # type: ignore[arg-type]


def book(*quotas: ElasticQuota) -> Book:
    one = Book()
    one.change(quotas)
    return one


TEAMS = book(
    quota("teams/gold"),
    quota("teams/tin", namespaces=("yard", "shop")),
    quota("shop/shop", plain=True),
    quota("lab/any", plain=True, created=2.0),
    quota("lab/old", plain=True, created=1.0),
    quota("yard/any", plain=True),
    quota("void/void2"),
)


@pytest.mark.parametrize(
    ("namespace", "label", "key"),
    [
        ("shop", "gold", "teams/gold"),
        ("shop", "", "shop/shop"),
        ("yard", "", "teams/tin"),
        ("lab", "", "lab/old"),
        ("void", "", f"/{keys.DEFAULT_QUOTA}"),
        ("shop", "nobody", f"/{keys.DEFAULT_QUOTA}"),
        ("shop", keys.ROOT_QUOTA, f"/{keys.DEFAULT_QUOTA}"),
        ("shop", keys.SYSTEM_QUOTA, f"/{keys.SYSTEM_QUOTA}"),
    ],
)
def test_the_label_then_the_namespaces_own_then_the_annotation_then_a_plain_one(
    namespace: str, label: str, key: str
) -> None:
    assert TEAMS.quota_of((namespace, label)) == key


def test_the_default_quota_is_the_object_where_there_is_one() -> None:
    one = book(
        quota(f"koordinator-system/{keys.DEFAULT_QUOTA}"), quota(f"koordinator-system/{keys.ROOT_QUOTA}")
    )
    assert one.quota_of(("shop", "")) == f"koordinator-system/{keys.DEFAULT_QUOTA}"
    assert keys.ROOT_QUOTA not in {each.name for each in one}


def test_of_two_of_a_name_the_older_one_is_meant() -> None:
    two = book(quota("a/gold", created=2.0), quota("b/gold", created=1.0))
    assert two.quota_of(("shop", "gold")) == "b/gold"
    two.change(drop=["b/gold"])
    assert two.quota_of(("shop", "gold")) == "a/gold"


def test_places() -> None:
    one = book(
        quota("n/top"),
        quota("n/mid", parent="top"),
        quota("n/leaf", parent="mid"),
        quota("n/gpus", tree="gpu", is_root=True),
        quota("n/train", parent="gpus"),
        quota(f"n/{keys.SYSTEM_QUOTA}", parent="top"),
    )
    assert one.places() == {
        "n/top": Place(""),
        "n/mid": Place("", "n/top"),
        "n/leaf": Place("", "n/mid"),
        "n/gpus": Place("gpu"),
        "n/train": Place("gpu", "n/gpus"),
        f"n/{keys.SYSTEM_QUOTA}": Place(""),
        f"/{keys.SYSTEM_QUOTA}": Place(""),
        f"/{keys.DEFAULT_QUOTA}": Place(""),
    }


@pytest.mark.parametrize(
    ("quotas", "problem"),
    [
        ([quota("n/a", parent="gone")], "its parent gone is not there: make it, or name another one"),
        ([quota("n/a", parent="a")], "its parent a is beneath it: name another one"),
        ([quota("n/a", parent="b"), quota("n/b", parent="a")], "its parent b is beneath it"),
        (
            [quota("n/a", parent="b", tree="x"), quota("n/b", tree="y")],
            "its tree is x, and its parent b is in y: ",
        ),
        (
            [quota("n/a", parent="b", tree="x"), quota("n/b")],
            "its parent b is in the default tree: give both",
        ),
        ([quota("n/a", parent=keys.DEFAULT_QUOTA)], "its parent koordinator-default-quota is not there"),
    ],
)
def test_one_that_cannot_be_where_it_says_is_at_the_top_and_says_why(
    quotas: list[ElasticQuota], problem: str
) -> None:
    place = book(*quotas).places()["n/a"]
    assert place.parent == ""
    assert problem in place.problem


def test_beneath_a_circle_all_stay_where_they_say() -> None:
    one = book(quota("n/a", parent="b"), quota("n/b", parent="a"), quota("n/c", parent="a"))
    assert one.places()["n/c"] == Place("", "n/a")
