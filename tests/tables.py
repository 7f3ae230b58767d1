"""The tables under tests/data: of each custom resource a good one, and what to change in it, good and bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from adapters.writes import merge_patch

DATA = Path(__file__).parent / "data"


def table(name: str) -> Any:
    """What a file holds: table("policies/refused")."""
    return YAML(typ="safe", pure=True).load(DATA / f"{name}.yaml")


def documents(kind: str, entries: str) -> list[Any]:
    """Parameters (document, entry): each entry of a table, and the good object of the kind with its patch.

    Each document has a metadata.name of its own.
    """
    base = table(f"{kind}/base")
    return [
        pytest.param(
            merge_patch(merge_patch(base, entry["patch"]), {"metadata": {"name": f"{entries}-{number}"}}),
            entry,
            id=entry["name"],
        )
        for number, entry in enumerate(table(f"{kind}/{entries}"))
    ]
