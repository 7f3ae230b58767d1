"""What an AdmissionReview of a quota or a pod is answered: bytes in, bytes out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.kubernetes import quotas
from adapters.webhooks import review
from manager.quotas import reviews
from qos import keys
from quota.book import Book

Object = dict[str, Any]


def quota(name: str, least: str = "10", parent: str = "", *, is_parent: bool = False, **more: Any) -> Object:
    labels = {keys.QUOTA_PARENT_LABEL: parent} if parent else {}
    if is_parent:
        labels[keys.QUOTA_IS_PARENT_LABEL] = "true"
    meta = {"namespace": "teams", "name": name, "labels": labels, "resourceVersion": "7"}
    return {"metadata": meta | more, "spec": {"min": {"cpu": least}, "max": {"cpu": "40"}}}


WEB, SHOP = quota("web", "20", is_parent=True), quota("shop", parent="web")


def book(*objects: Object) -> Book:
    one = Book()
    one.change([quotas.quota(json.dumps(each).encode()) for each in objects])
    return one


def asked(operation: str, new: Object | None = None, old: Object | None = None, **more: Any) -> bytes:
    meta = (new or old or {})["metadata"]
    request = {"uid": "u1", "operation": operation, "namespace": "teams", "name": meta["name"]}
    return json.dumps({"request": request | {"object": new, "oldObject": old} | more}).encode()


def reviewed(body: bytes, *there: Object, pods: tuple[str, ...] = ()) -> str:
    """What people are told; "": it passes."""
    request = review.read(body)
    answered = json.loads(reviews.answer(request, reviews.of_quota(request, [book(*there)], pods)))
    assert (answered["apiVersion"], answered["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answered["response"]
    assert response["uid"] == "u1"
    if response["allowed"]:
        assert "status" not in response
        return ""
    assert response["status"]["code"] == 403
    return str(response["status"]["message"])


def test_a_quota_that_breaks_no_rule_passes() -> None:
    assert reviewed(asked("CREATE", WEB)) == ""
    assert reviewed(asked("CREATE", SHOP), WEB) == ""
    assert reviewed(asked("UPDATE", quota("shop", "20", parent="web"), SHOP), WEB, SHOP) == ""
    assert reviewed(asked("DELETE", None, SHOP), WEB, SHOP) == ""


def test_one_that_does_is_refused_with_object_field_number_and_what_to_do() -> None:
    beyond = quota("shop", "30", parent="web")
    said = reviewed(asked("UPDATE", beyond, SHOP), WEB, SHOP)
    assert said == (
        "ElasticQuota teams/shop: spec.min.cpu: those of all children of teams/web are 30 together, more "
        "than its min, 20: lower one of them, or raise that"
    )
    assert "web is no quota that can have children" in reviewed(asked("CREATE", SHOP))
    both = reviewed(asked("CREATE", quota("bad", "50", "gone")))
    assert (
        both == "ElasticQuota teams/bad: spec.min.cpu: 50 is more than its max, 40: lower min, or raise max"
    )


def test_a_deletion_is_refused_for_children_and_for_pods() -> None:
    assert "it has 1 child (teams/shop)" in reviewed(asked("DELETE", None, WEB), WEB, SHOP)
    said = reviewed(asked("DELETE", None, SHOP), WEB, SHOP, pods=("a/x", "a/y"))
    assert "it has 2 pods (a/x, a/y): delete them first" in said


@pytest.mark.parametrize("name", [keys.DEFAULT_QUOTA, keys.SYSTEM_QUOTA, keys.ROOT_QUOTA])
def test_koordinators_own_may_be_made_and_not_deleted(name: str) -> None:
    one = quota(name)
    assert reviewed(asked("CREATE", one)) == ""
    assert "cannot be deleted" in reviewed(asked("DELETE", None, one), one)
    changed = reviewed(asked("UPDATE", quota(name, "20"), one), one)
    assert (changed == "") == (name == keys.DEFAULT_QUOTA)


def test_an_amount_that_is_none_is_told() -> None:
    said = reviewed(asked("CREATE", quota("shop", "much")))
    assert said.startswith("ElasticQuota teams/shop: spec.min.cpu: 'much': ")
    # One that is there, of which only the name can be read, may be mended and taken away.
    assert reviewed(asked("UPDATE", quota("shop"), quota("shop", "much"))) == ""
    assert reviewed(asked("DELETE", None, quota("shop", "much"))) == ""


def test_pods_are_asked_for_where_they_matter() -> None:
    def wants(body: bytes) -> str:
        found = reviews.asks_for_pods(review.read(body))
        return "" if found is None else found.key

    assert wants(asked("DELETE", None, SHOP)) == "teams/shop"
    assert wants(asked("UPDATE", quota("shop", is_parent=True), SHOP)) == "teams/shop"
    assert wants(asked("UPDATE", SHOP, quota("shop", is_parent=True))) == ""
    assert wants(asked("CREATE", quota("shop", is_parent=True))) == ""
    assert wants(asked("DELETE", None, quota(keys.DEFAULT_QUOTA))) == ""
    assert wants(asked("UPDATE", quota("shop", "much"), SHOP)) == ""


def test_what_any_of_several_states_forbids_is_refused_and_told_once() -> None:
    request = review.read(asked("CREATE", quota("blog", "15", "web")))
    alone, with_shop = book(WEB), book(WEB, SHOP)
    assert reviews.of_quota(request, [alone]) == []
    assert len(reviews.of_quota(request, [alone, with_shop])) == 1
    assert len(reviews.of_quota(request, [with_shop, with_shop])) == 1


def test_what_a_request_does() -> None:
    made = reviews.change(review.read(asked("CREATE", SHOP)))
    assert (made.key, made.before, made.quota is not None) == ("teams/shop", "", True)
    changed = reviews.change(review.read(asked("UPDATE", SHOP, SHOP)))
    assert (changed.key, changed.before, changed.quota is not None) == ("teams/shop", "7", True)
    assert reviews.change(review.read(asked("DELETE", None, SHOP))) == ("teams/shop", "7", None)


def pod(label: str = "") -> bytes:
    meta: Object = {"name": "a", "namespace": "", "labels": {keys.QUOTA_NAME_LABEL: label} if label else {}}
    body = {"metadata": meta, "spec": {"containers": [{"name": "c"}]}}
    return json.dumps({"request": {"uid": "u1", "namespace": "run", "object": body}}).encode()


def test_a_pod_on_a_parent_is_told_which_children_there_are() -> None:
    there = book(WEB, SHOP)
    request = review.read(pod("web"))
    parent = reviews.parent_of_pod(request, there)
    assert parent is not None
    assert parent.key == "teams/web"
    (said,) = reviews.of_pod(request, there)
    assert said.startswith("Pod run/a: metadata.labels[quota.scheduling.koordinator.sh/name]: its quota, ")
    assert said.endswith("name one of its children, shop")
    for passes in ("shop", "nowhere", "", keys.DEFAULT_QUOTA):
        assert reviews.parent_of_pod(review.read(pod(passes)), there) is None


def test_a_pod_of_a_namespace_that_is_bound_to_a_parent() -> None:
    bound = quota("web", "20", is_parent=True, annotations={keys.QUOTA_NAMESPACES_ANNOTATION: '["run"]'})
    assert reviews.parent_of_pod(review.read(pod()), book(bound)) is not None
    assert reviews.parent_of_pod(review.read(pod("shop")), book(bound, SHOP)) is None
