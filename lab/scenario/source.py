"""Scenario files: read with line numbers, so that each error names file, line, field and value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from lab.scenario.models import Scenario


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file. `line` counts from 1; 0 where there is none."""

    file: Path
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        """As compilers print it."""
        where = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{where}: {self.field}: {self.message}" if self.field else f"{where}: {self.message}"


class ScenarioError(Exception):
    """A file is no scenario; `problems` says why, all at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


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
        document = YAML(typ="rt").load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError([Problem(file, 0, "", f"cannot be read: {error}")]) from None
    except YAMLError as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        text = (error.problem if isinstance(error, MarkedYAMLError) else None) or " ".join(str(error).split())
        raise ScenarioError(
            [Problem(file, mark.line + 1 if mark else 0, "", f"is not YAML: {text}")]
        ) from None
    if not isinstance(document, CommentedMap):
        raise ScenarioError(
            [Problem(file, 1, "", "a scenario is a mapping with name, description, nodes and steps")]
        )
    return document


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


def line_of(document: object, path: Sequence[str | int]) -> int:
    """Line of a field, or of the nearest enclosing one that is written; from 1."""
    line = 1
    for part in path:
        if isinstance(document, CommentedMap) and part in document:
            line = document.lc.key(part)[0] + 1
        elif isinstance(document, CommentedSeq) and isinstance(part, int) and part < len(document):
            line = document.lc.item(part)[0] + 1
        else:
            continue
        document = document[part]
    return line


def field_name(document: object, path: Sequence[str | int]) -> str:
    """The field as it is written: steps[2].wait.within. pydantic's names of union members are left out."""
    text = ""
    for place, part in enumerate(path):
        if isinstance(part, int):
            text += f"[{part}]"
        elif (
            isinstance(document, CommentedMap) and part not in document and place < len(path) - 1
        ) or not isinstance(document, CommentedMap | CommentedSeq):
            continue
        else:
            text += f".{part}"
        if isinstance(document, CommentedMap | CommentedSeq):
            known = part in document if isinstance(document, CommentedMap) else isinstance(part, int)
            document = document[part] if known else None
    return text.lstrip(".")
