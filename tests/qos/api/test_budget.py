"""ReservationBudgets: good ones are read as they are meant, nonsense is refused and named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.kubernetes.decode import DecodeError, budget, namespace
from qos.api.budget import ReservationBudget
from qos.cluster.budget import Budget
from qos.cluster.objects import Requirement, Selector
from tests.tables import documents


def plain(rules: Budget, field: str) -> Any:
    """As the table has it."""
    value = getattr(rules, field)
    if isinstance(value, Selector):
        return [[one.key, one.operator, list(one.values)] for one in value.requirements]
    return sorted(value) if isinstance(value, frozenset) else value


@pytest.mark.parametrize(("given", "entry"), documents("budgets", "accepted"))
def test_good_budgets_are_read(given: dict[str, Any], entry: dict[str, Any]) -> None:
    model = ReservationBudget.model_validate(given)
    assert model.to_json()["spec"] == {"default": False, **given["spec"]}
    read = budget(json.dumps(given).encode())
    assert (read.key, read.name, read.namespace) == (given["metadata"]["name"],) * 2 + ("",)
    assert {name: plain(read.rules, name) for name in entry["budget"]} == entry["budget"]


@pytest.mark.parametrize(("given", "entry"), documents("budgets", "refused"))
def test_nonsense_is_refused_and_the_field_named(given: dict[str, Any], entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        ReservationBudget.model_validate(given)
    assert entry["field"].rsplit(".", 1)[-1] in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "field"),
    [({"perNamespace": {"cpu": "two"}}, "spec.perNamespace.cpu"), ({"total": {"cpu": -1}}, "spec.total.cpu")],
)
def test_what_no_ledger_could_bear_is_refused_at_the_edge(spec: dict[str, Any], field: str) -> None:
    raw = json.dumps({"metadata": {"name": "gold"}, "spec": {"namespaceSelector": {}, **spec}}).encode()
    with pytest.raises(DecodeError, match="ReservationBudget gold") as caught:
        budget(raw)
    assert caught.value.field == field


def test_a_namespace_is_its_name_and_its_labels() -> None:
    assert namespace(b'{"metadata": {"name": "shop", "labels": {"tier": "gold"}}}') == (
        "shop",
        {"tier": "gold"},
    )
    assert namespace(b'{"metadata": {"name": "shop"}}') == ("shop", {})


def test_the_selector_is_what_the_api_server_means() -> None:
    raw = {"metadata": {"name": "b"}, "spec": {"namespaceSelector": {"matchLabels": {"a": "1"}}, "total": {}}}
    assert budget(json.dumps(raw).encode()).rules.selector == Selector((Requirement("a", "In", ("1",)),))
