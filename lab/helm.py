"""Helm, built once into the user's cache as the control plane's programs are (lab/node_programs.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lab.node_programs import Programs, provide
from lab.only_one import Report

HELM: Final = Programs(
    "helm",
    Path(__file__).parent / "helmmodule",
    ("helm",),
    {"helm.sh/helm/v4": "helm.sh/helm/v4/internal/version.version"},
)


def helm(environ: Mapping[str, str], report: Report) -> Path:
    """The program, built where it is missing (a minute). Raises NodeProgramsError."""
    without_choice = {key: value for key, value in environ.items() if key != "J10CE_NODE_BIN"}
    return provide(without_choice, report, HELM) / "helm"
