"""docs/rescheduling.md has the configuration as the code does. UPDATE_DOCS=1 writes the table anew."""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from ruamel.yaml import YAML

from manager.config import ManagerConfig
from manager.rescheduling_config import AnomalyCondition, Namespaces, NodePool, Rescheduling

PAGE = Path(__file__).parents[2] / "docs" / "rescheduling.md"


def default_of(field: Any) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if not value and not isinstance(value, bool | int):
        return ""
    if isinstance(value, BaseModel | list):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`".replace("'", "")


def config_table() -> str:
    sections = {
        "": Rescheduling,
        "nodePools[].": NodePool,
        "nodePools[].anomalyCondition.": AnomalyCondition,
        "evictableNamespaces.": Namespaces,
    }
    rows = [
        f"| `{prefix}{field.alias}` | {default_of(field)} | {field.description} |"
        for prefix, section in sections.items()
        for field in section.model_fields.values()
    ]
    return "\n".join(["| field | default | what it is |", "| --- | --- | --- |", *rows])


def test_the_table_of_the_configuration_is_the_codes() -> None:
    text = PAGE.read_text()
    pattern = r"(?s)(<!-- configuration -->\n).*?(\n<!-- end -->)"
    wanted = re.sub(pattern, lambda found: found[1] + config_table() + found[2], text)
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(wanted)
    assert text == wanted


def test_the_example_is_a_configuration() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert ManagerConfig.model_validate(YAML(typ="safe").load(block)).rescheduling.node_pools
