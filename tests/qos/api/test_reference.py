"""docs/api.md: names every field, limit and rule that the API server has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qos.api.reference import page
from qos.api.schema import KINDS, Kind, custom_resource_definition

PAGE = page()


def schemas(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and all below it; of an object's own metadata nothing."""
    yield node
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from schemas(node[key])
    for name, part in node.get("properties", {}).items():
        if name not in ("apiVersion", "kind", "metadata"):
            yield from schemas(part)


def section(kind: Kind) -> str:
    """What the page says of a kind."""
    return PAGE.split(f"\n## {kind.model.__name__}\n")[1].split("\n## ")[0]


def of(kind: Kind) -> dict[str, Any]:
    (version,) = custom_resource_definition(kind)["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return {
        "properties": {
            name: found["properties"][name] for name in ("spec", "status") if name in found["properties"]
        }
    }


def test_it_is_up_to_date() -> None:
    assert (Path(__file__).parents[3] / "docs" / "api.md").read_text() == PAGE, "run `j10ce dev generate`"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_every_field_has_its_row_and_says_what_it_is(kind: Kind) -> None:
    said = section(kind)
    rows = [line for line in said.splitlines() if line.startswith(("| `spec", "| `status"))]
    parts = of(kind)["properties"]
    fields = [
        name for part in parts.values() for node in schemas(part) for name in node.get("properties", {})
    ]
    assert Counter(row.split("`")[1].rpartition(".")[2] for row in rows) == Counter(fields)
    for row in rows:
        assert row.split(" | ", 2)[2].strip(" |"), row


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_every_rule_and_every_choice_is_there(kind: Kind) -> None:
    said = section(kind)
    for node in schemas(of(kind)):
        for rule in node.get("x-kubernetes-validations", ()):
            assert rule["message"].replace("|", r"\|") in said
        for word in node.get("enum", ()):
            assert f"`{word}`" in said


def test_a_table_has_three_columns_everywhere() -> None:
    for line in PAGE.splitlines():
        if line.startswith("|"):
            assert line.replace(r"\|", "").count("|") == 4, line
