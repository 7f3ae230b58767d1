"""YAML files that people write, with line numbers: each error names file, line, field and value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file. `line` counts from 1; 0 where there is none."""

    file: Path
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        """The problem as compilers print theirs."""
        where = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{where}: {self.field}: {self.message}" if self.field else f"{where}: {self.message}"


class DocumentsError(Exception):
    """A file is not as it must be; `problems` says why, all at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def read(file: Path, expected: str) -> list[CommentedMap]:
    """The documents of a file, empty ones left out. DocumentsError.

    expected: what a document is, for whoever wrote something else than a mapping.
    """
    try:
        documents = list(YAML(typ="rt").load_all(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentsError([Problem(file, 0, "", f"cannot be read: {error}")]) from None
    except YAMLError as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        text = (error.problem if isinstance(error, MarkedYAMLError) else None) or " ".join(str(error).split())
        line = mark.line + 1 if mark else 0
        raise DocumentsError([Problem(file, line, "", f"is not YAML: {text}")]) from None
    except RecursionError:
        raise DocumentsError([Problem(file, 0, "", "is nested too deeply")]) from None
    found = [document for document in documents if document is not None]
    for document in found:
        if not isinstance(document, CommentedMap):
            line = document.lc.line + 1 if isinstance(document, CommentedSeq) else 1
            raise DocumentsError([Problem(file, line, "", expected)])
    return found


def line_of(document: object, path: Sequence[str | int]) -> int:
    """Line of a field, or of the nearest enclosing one that is written; from 1."""
    line = document.lc.line + 1 if isinstance(document, CommentedMap | CommentedSeq) else 1
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


def path_of(document: object, field: str) -> tuple[str | int, ...]:
    """A field as it is written (spec.containers[0].name) as a path; stops where the document does.

    Keys may have dots of their own (metadata.labels.koordinator.sh/qosClass): the longest that fits counts.
    """
    path: list[str | int] = []
    rest = field
    while rest:
        part, rest = _next(document, rest)
        if part is None:
            break
        path.append(part)
        assert isinstance(document, CommentedMap | CommentedSeq)
        document = document[part]
    return tuple(path)


def _next(document: object, field: str) -> tuple[str | int | None, str]:
    field = field.lstrip(".")
    if isinstance(document, CommentedSeq) and field.startswith("["):
        number, _, rest = field[1:].partition("]")
        known = number.isdecimal() and int(number) < len(document)
        return (int(number), rest) if known else (None, "")
    if isinstance(document, CommentedMap):
        for key in sorted((key for key in document if isinstance(key, str)), key=len, reverse=True):
            if field == key or field.startswith((f"{key}.", f"{key}[")):
                return key, field[len(key) :]
    return None, ""
