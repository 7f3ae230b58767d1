"""docs/extender.md says what the code says. UPDATE_DOCS=1 writes the generated tables anew."""

from __future__ import annotations

import asyncio
import os
import re
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from adapters.memory import MemoryAPI
from extender.config import (
    Autoscaling,
    ExtenderConfig,
    GiveBack,
    Keeper,
    Koordinator,
    Placeholders,
    Quotas,
    TLSFiles,
    Webhook,
)
from extender.program import Program

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extender.md"


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("---", "---") for line in lines)


def default_of(field: Any) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if value is None or value == "" or isinstance(value, BaseModel):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`".replace("'", "")


def config_table() -> str:
    sections = {
        "": ExtenderConfig,
        "tls.": TLSFiles,
        "koordinator.": Koordinator,
        "placeholders.": Placeholders,
        "placeholders.webhook.": Webhook,
        "quotas.": Quotas,
        "quotas.giveBack.": GiveBack,
        "autoscaling.": Autoscaling,
    }
    rows = [
        (f"`{prefix}{field.alias}`", default_of(field), str(field.description))
        for prefix, section in sections.items()
        for field in section.model_fields.values()
    ]
    return table(("field", "default", "what it is"), rows)


def metrics_table() -> str:
    program = Program(ExtenderConfig(identity="me", keeper=Keeper.PLACEHOLDERS), MemoryAPI())
    asyncio.run(program.snapshots.take())
    program.metrics.look()
    families = {family.name: family for family in program.metrics.registry.collect()}
    rows = []
    for name, family in sorted(families.items()):
        shown = f"{name}_total" if family.type == "counter" else name
        rows.append((f"`{shown}`", family.type, family.documentation))
    return table(("metric", "type", "what it is"), rows)


def with_tables(text: str) -> str:
    for name, content in (("config", config_table()), ("metrics", metrics_table())):
        pattern = rf"(<!-- {name}: [^>]*-->\n).*?(<!-- end -->)"
        text, found = re.subn(pattern, lambda m, c=content: f"{m[1]}{c}\n{m[2]}", text, count=1, flags=re.S)
        assert found, f"no place for {name} in {PAGE}"
    return text


def test_the_generated_tables_are_up_to_date():
    text = PAGE.read_text()
    expected = with_tables(text)
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(expected)
    else:
        assert text == expected, "run UPDATE_DOCS=1 pytest tests/extender/test_documentation.py"


def test_every_reason_is_documented():
    text = PAGE.read_text()
    source = "".join(
        (ROOT / path).read_text()
        for path in (
            "extender/status.py",
            "extender/guarding.py",
            "extender/placeholders.py",
            "qos/cluster/resolve.py",
            "qos/cluster/precedence.py",
        )
    )
    reasons = set(re.findall(r'"(?:True|False|Unknown)",\s*"([A-Z]\w+)"', source))
    reasons |= set(re.findall(r'Problem\(\s*"([A-Z]\w+)"', source))
    reasons |= set(re.findall(r'(?:AWAY|BYPASS) = "([A-Z]\w+)"', source))
    reasons |= set(re.findall(r'Guard\((?:True|False), "([A-Z]\w+)"', source))
    assert {"SlotsUnplaced", "ExtenderAway", "PodsBypass", "ProfileNotFound", "ObserveMode"} <= reasons
    assert not {reason for reason in reasons if f"`{reason}`" not in text}


def test_the_page_shows_the_default_addresses():
    text = PAGE.read_text()
    config = ExtenderConfig()
    assert config.verbs_address in text
    assert config.address in text
