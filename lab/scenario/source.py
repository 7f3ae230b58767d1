"""Scenario files: read with line numbers, so that each error names file, line, field and value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from ruamel.yaml.comments import CommentedMap

from adapters.documents import DocumentsError, Problem, field_name, line_of, read
from lab.scenario.models import Scenario

EXPECTED: Final = "a scenario is a mapping with name, description, nodes and steps"


class ScenarioError(DocumentsError):
    """A file is no scenario; `problems` says why, all at once."""


def load(file: Path) -> Scenario:
    """A scenario file; ScenarioError."""
    document = _read(file)
    try:
        scenario = Scenario.model_validate(document)
    except ValidationError as error:
        raise ScenarioError([_problem(file, document, detail) for detail in error.errors()]) from None
    config = file.parent / scenario.cluster.scheduler_config
    if not config.is_file():
        line = line_of(document, ("cluster", "schedulerConfig"))
        raise ScenarioError([Problem(file, line, "cluster.schedulerConfig", f"there is no file {config}")])
    return scenario


def schema() -> str:
    """The JSON schema of scenario files."""
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Scenario.model_json_schema(
        by_alias=True
    )
    return json.dumps(made, indent=2) + "\n"


def _read(file: Path) -> CommentedMap:
    try:
        documents = read(file, EXPECTED)
    except DocumentsError as error:
        raise ScenarioError(error.problems) from None
    if len(documents) != 1:
        second = documents[1].lc.line + 1 if documents else 1
        raise ScenarioError(
            [Problem(file, second, "", EXPECTED if not documents else "one file, one scenario")]
        )
    return documents[0]


def _problem(file: Path, document: CommentedMap, detail: Any) -> Problem:
    path = tuple(detail["loc"])
    message = detail["msg"].removeprefix("Value error, ")
    value = detail["input"]
    if (
        detail["type"] != "missing"
        and isinstance(value, str | int | float | bool)
        and repr(value) not in message
    ):
        message += f" (got {value!r})"
    return Problem(file, line_of(document, path), field_name(document, path), message)
