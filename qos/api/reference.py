"""docs/api.md: the custom resources, field by field, from the schemas that the API server has. Pure text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from qos.api.schema import KINDS, Column, Kind, Schema, custom_resource_definition
from qos.keys import GROUP, VERSION

_OPENING: Final = f"""# API reference

Generated from `qos/api/` by `j10ce dev generate`: do not edit. `kubectl explain` shows the same in a cluster.

All of group `{GROUP}`, version `{VERSION}`. A field that is not said to be required may be left out. The API
server refuses what is against a limit or a rule of this page, and prints the rule's words as they stand here.
A field that it does not know it drops; `kubectl` has it refuse the object instead.
"""
_RANGES: Final = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
    ("minProperties", "maxProperties", " keys"),
)
"""The keys of a schema that bound a field from below and above, and what they count."""
_SAID_AT_THEIR_OWNER: Final = frozenset({"apiVersion", "kind", "metadata"})


def page() -> str:
    """The whole page; the same for the same models."""
    return "\n".join((_OPENING, *(line for kind in KINDS for line in _kind(kind))))


def _kind(kind: Kind) -> Iterator[str]:
    name = kind.model.__name__
    (version,) = custom_resource_definition(kind)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    yield f"## {name}\n"
    yield f"{schema['description']}\n"
    scope = "in a namespace" if kind.scope == "Namespaced" else "of the cluster"
    served = f", with {_listed(f'/{name}' for name in kind.subresources)}" if kind.subresources else ""
    yield f"{scope.capitalize()}; `{kind.plural}.{GROUP}`, `{kind.short_name}` for short{served}.\n"
    for part, fields in schema["properties"].items():
        if part not in _SAID_AT_THEIR_OWNER:
            yield f"### {name}: {part}\n"
            yield f"{fields.get('description', '')}{_rules(fields)}\n"
            yield from _table(part, fields)
    yield from _columns(kind.columns)


def _table(part: str, fields: Schema) -> Iterator[str]:
    rows = list(_rows(part, fields))
    if not rows:
        yield "No fields.\n"
        return
    yield "| field | type | what it is |\n| --- | --- | --- |"
    yield from rows
    yield ""


def _rows(path: str, schema: Schema) -> Iterator[str]:
    """A row for each field below a schema, depth first, in the schema's order."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        kind = _type(field) + (", required" if name in required else "")
        yield f"| `{path}.{name}` | {kind} | {_cell(field)} |"
        yield from _rows(f"{path}.{name}{_suffix(field)}", _innermost(field))


def _suffix(schema: Schema) -> str:
    if "items" in schema:
        return f"[]{_suffix(schema['items'])}"
    return f".*{_suffix(schema['additionalProperties'])}" if "additionalProperties" in schema else ""


def _innermost(schema: Schema) -> Schema:
    inner = schema.get("items", schema.get("additionalProperties"))
    return schema if inner is None else _innermost(inner)


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map to {_type(schema['additionalProperties'])}"
    name = str(schema["type"])
    return f"{name} ({schema['format']})" if "format" in schema else name


def _cell(schema: Schema) -> str:
    """What a field is, its limits and its rules; a list's or a map's also those of what is in it."""
    parts = [schema.get("description", ""), _limited(schema), _rules(schema).strip()]
    inner = _innermost(schema)
    if inner is not schema:
        each = " ".join(part for part in (_limited(inner), _rules(inner).strip()) if part)
        parts.append(f"Each: {each}" if each else "")
    return " ".join(part for part in parts if part).replace("|", r"\|").replace("\n", " ")


def _limited(schema: Schema) -> str:
    default = schema.get("default", "")
    said = [f"default `{_shown(default)}`"] if default not in ("", {}) else []
    said += [text for low, high, unit in _RANGES if (text := _range(schema.get(low), schema.get(high), unit))]
    if "enum" in schema:
        said.append("one of " + _listed(schema["enum"]))
    if "pattern" in schema:
        said.append(f"matches `{schema['pattern']}`")
    text = ", ".join(said)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _range(low: object, high: object, unit: str) -> str:
    if low is None:
        return "" if high is None else f"at most {high}{unit}"
    return f"at least {low}{unit}" if high is None else f"{low} to {high}{unit}"


def _rules(schema: Schema) -> str:
    rules = [_rule(rule) for rule in schema.get("x-kubernetes-validations", ())]
    return f" Rule: {'; '.join(rules)}." if rules else ""


def _rule(rule: Mapping[str, str]) -> str:
    """What the API server prints, with the field that it names where that is one further down."""
    path = rule.get("fieldPath", "").removeprefix(".")
    return f"`{path}`: {rule['message']}" if path else rule["message"]


def _listed(words: Iterable[object]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _columns(columns: Iterable[Column]) -> Iterator[str]:
    yield "What `kubectl get` prints; columns in italics only with `-o wide`:\n"
    yield "| column | what it is | from |\n| --- | --- | --- |"
    for column in columns:
        name = f"*{column.name}*" if column.wide else column.name
        yield f"| {name} | {column.description} | `{column.path}` |"
    yield ""
