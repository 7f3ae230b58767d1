"""The form in which commands answer: a table for people, JSON for programs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Output(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
