"""A program's configuration file: YAML, read into a pydantic model, with the command line on top."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

HostPort = Annotated[str, StringConstraints(pattern=r"^(\[[0-9a-fA-F:.]+\]|[^\s:/]+):[0-9]{1,5}$")]
ObjectPath = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the file, the field and the value."""


class Section(BaseModel):
    """Fields of a configuration file: JSON names are camelCase, unknown fields are refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


S = TypeVar("S", bound=Section)


def load(kind: type[S], path: Path | None, overrides: dict[str, Any]) -> S:
    """The file's configuration with the overrides on top; ConfigError says what is wrong and where."""
    document = _read(path) if path else {}
    source = str(path) if path else "command line"
    try:
        return kind.model_validate(document | overrides)
    except ValidationError as error:
        raise ConfigError(f"{source}: {'; '.join(_explain(detail) for detail in error.errors())}") from error


def require_files(files: Mapping[str, Path | None]) -> None:
    """ConfigError for the first field whose path is no file; None: none is named."""
    for field, path in files.items():
        if path is not None and not path.is_file():
            raise ConfigError(f"{field}: {path} is not a file")


def _read(path: Path) -> dict[str, Any]:
    try:
        document = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must be a mapping of fields, not {type(document).__name__}")
    return document


def _explain(detail: Any) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    message = detail["msg"].removeprefix("Value error, ")
    return f"{where}: {message} (got {detail['input']!r})" if where else message
