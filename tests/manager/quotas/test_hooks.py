"""What the API server is told: which pods it asks about, and what happens while nobody answers."""

from __future__ import annotations

from manager.quotas.hooks import Parents, hooks, parents_in
from qos import keys
from quota.book import Book
from tests.quota.builders import quota


def book(*quotas: object) -> Book:
    one = Book()
    one.change(quotas)  # type: ignore[arg-type]
    return one


def test_parents_are_those_that_pods_may_come_to() -> None:
    there = book(
        quota("web", {}, is_parent=True, created=1.0),
        quota("web", {}, is_parent=True, created=2.0, namespace="elsewhere"),  # labels mean the older one
        quota("shop", {}, parent="web"),
        quota("teams", {}, is_parent=True, namespace="teams"),
        quota("annotated", {}, is_parent=True, namespaces=("run", "taken")),
        quota("taken", {}, namespace="taken"),  # called like its namespace: that one goes before
        quota(keys.DEFAULT_QUOTA, {}, is_parent=True),
    )
    assert parents_in(there) == Parents(("annotated", "teams", "web"), ("run", "teams"))
    assert parents_in(book()) == Parents()


def test_nobody_can_have_the_api_server_refuse_the_conditions_by_what_an_annotation_names() -> None:
    strange = ("\U0001f600", "UPPER", "a/b", "", "x" * 64, "fine")
    assert parents_in(book(quota("web", {}, is_parent=True, namespaces=strange))).namespaces == ("fine",)
    many = tuple(f"n{number}" for number in range(20_000))
    assert len(parents_in(book(quota("web", {}, is_parent=True, namespaces=many))).namespaces) == 500
    assert parents_in(book(quota("x" * 64, {}, is_parent=True))).names == (), "no pod can name it"


def test_quotas_fail_closed_and_pods_open() -> None:
    (quotas,) = hooks(Parents())
    assert (quotas["failurePolicy"], quotas["rules"][0]["operations"]) == (
        "Fail",
        ["CREATE", "UPDATE", "DELETE"],
    )
    _, pods = hooks(Parents(("web",), ("run",)))
    assert (pods["failurePolicy"], pods["timeoutSeconds"]) == ("Ignore", 1)
    for hook in (quotas, pods):
        assert hook["sideEffects"] == "None"
        assert hook["rules"][0]["resources"] in (["elasticquotas"], ["pods"])  # no subresources: no status


def test_pods_are_asked_about_by_the_parents_they_name() -> None:
    _, pods = hooks(Parents(("web",), ("run",)))
    _, named = pods["matchConditions"]
    assert 'in ["web"]' in named["expression"]
    assert 'request.namespace in ["run"]' in named["expression"]
    many = tuple(f"quota-{number}" for number in range(501))
    _, pods = hooks(Parents(many))
    assert "quota-1" not in pods["matchConditions"][1]["expression"]
