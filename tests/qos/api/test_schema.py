"""The generated CRDs: structural, complete, and the same as the files in manifests/crds."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from qos.api.schema import KINDS, custom_resource_definition, files, structural

SCHEMAS = {
    kind.plural: custom_resource_definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for kind in KINDS
}


def walk(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from walk(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from walk(schema[key], f"{path}[]")


NODES = [pytest.param(node, id=path) for name, schema in SCHEMAS.items() for path, node in walk(schema, name)]


@pytest.mark.parametrize("node", NODES)
def test_says_nothing_a_structural_schema_cannot(node: dict[str, Any]) -> None:
    assert not node.keys() & {"$ref", "$defs", "title", "const", "patternProperties", "propertyNames"}
    assert node.get("type") is not None or node.get("x-kubernetes-int-or-string")
    assert "anyOf" not in node or node.get("x-kubernetes-int-or-string")
    assert not ("properties" in node and "additionalProperties" in node)
    assert node.get("default", ...) is not None


def test_every_field_is_described_in_a_sentence() -> None:
    for name, schema in SCHEMAS.items():
        for path, node in walk(schema, name):
            for field, part in node.get("properties", {}).items():
                if (path, field) == (name, "metadata"):
                    continue
                assert part.get("description", "").endswith("."), f"{path}.{field} needs a description"


def test_text_and_lists_are_bounded() -> None:
    """The API server budgets rules by the largest possible object."""
    for name, schema in SCHEMAS.items():
        for path, node in walk(schema, name):
            if path.count(".") == 1 and path.rsplit(".", 1)[1] in ("apiVersion", "kind"):
                continue
            if node.get("type") == "array":
                assert "maxItems" in node, path
            if node.get("type") == "string":
                assert "maxLength" in node or "enum" in node or node.get("format") == "date-time", path
            if "additionalProperties" in node:
                assert "maxProperties" in node, path


def test_only_what_is_honoured_is_in_the_schema() -> None:
    spec = SCHEMAS["minimalreservationpolicies"]["properties"]["spec"]["properties"]
    assert set(spec) == {
        "selector",
        "profileName",
        "priorityClassName",
        "suspend",
        "floor",
        "limit",
        "slots",
        "consumePolicy",
        "releaseDelaySeconds",
        "ownerFit",
        "ttlSeconds",
        "expirationTime",
        "placement",
        "nodeEnforcement",
        "keeper",
    }
    assert set(spec["floor"]["properties"]) == {"resources", "network", "requestPolicy"}
    assert set(spec["limit"]["properties"]) == {"network"}
    assert set(spec["slots"]["properties"]) == {"count", "scaleTargetRef", "surge", "headroomTo"}
    assert spec["consumePolicy"]["enum"] == ["Reuse", "Once"]


def test_the_files_are_up_to_date() -> None:
    folder = resources.files("manifests") / "crds"
    assert {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir()} == files(), (
        "run `j10ce dev generate`"
    )


def test_an_object_without_fields_has_no_properties() -> None:
    """The API server stores none; then whoever else applies the same would be in conflict with us."""

    class Nothing(BaseModel):
        pass

    assert structural(Nothing) == {"type": "object"}


def test_refuses_a_union() -> None:
    class Union(BaseModel):
        field: int | str

    with pytest.raises(TypeError, match=r"Union\.field: not structural"):
        structural(Union)


def test_refuses_an_exclusive_bound() -> None:
    class Bound(BaseModel):
        field: int = Field(gt=0)

    with pytest.raises(TypeError, match="exclusiveMinimum"):
        structural(Bound)


def test_an_only_value_becomes_an_enum_and_a_default_stays() -> None:
    class Only(BaseModel):
        field: Literal["Reuse"] = "Reuse"

    assert structural(Only)["properties"]["field"] == {
        "default": "Reuse",
        "enum": ["Reuse"],
        "type": "string",
    }
