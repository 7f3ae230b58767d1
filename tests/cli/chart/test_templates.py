"""The chart's files are as generated, and what generates them loses nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from cli.chart import settings, templates
from cli.chart.kustomization import KustomizationError
from qos.api import schema

ROOT = Path(__file__).parents[3]
CHART = ROOT / templates.CHART
BY_HAND = {"Chart.yaml", "templates/_helpers.tpl", "templates/checks.yaml", "templates/NOTES.txt"}
LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n"]), max_size=8)


def test_every_file_is_generated_or_by_hand() -> None:
    there = {str(path.relative_to(CHART)) for path in CHART.rglob("*") if path.is_file()}
    assert there == templates.files(ROOT / "manifests", schema.files()).keys() | BY_HAND


def test_the_values_are_those_of_the_schema() -> None:
    values = YAML(typ="safe").load(CHART / "values.yaml")
    root = json.loads((CHART / "values.schema.json").read_text())
    for setting in settings.SETTINGS:
        declared, value = root, values
        for part in setting.path.split("."):
            declared, value = declared["properties"][part], value[part]
        assert declared["default"] == value
        assert declared["description"] == setting.description
        assert value in declared.get("enum", [value])


def as_rendered(text: str, *, holds: bool) -> str:
    """What Helm makes of it, conditions being all the same one."""
    taken, kept = True, []
    for line in text.splitlines(keepends=True):
        match line:
            case "{{- if x }}\n":
                taken = holds
            case "{{- if not (x) }}\n":
                taken = not holds
            case "{{- else }}\n":
                taken = not taken
            case "{{- end }}\n":
                taken = True
            case _ if taken:
                kept.append(line)
    return "".join(kept)


@given(LINES, LINES)
def test_one_text_for_both_is_each_of_them(before: list[str], after: list[str]) -> None:
    text = templates.merged("".join(before), "".join(after), "x")
    assert as_rendered(text, holds=False) == "".join(before)
    assert as_rendered(text, holds=True) == "".join(after)


def test_a_kustomization_that_nobody_renders_is_named(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    new = tmp_path / "manifests" / "more"
    new.mkdir()
    (new / "kustomization.yaml").write_text("resources: []\n")
    with pytest.raises(KustomizationError, match=r"more/kustomization\.yaml: PARTS .* does not say when"):
        templates.files(tmp_path / "manifests", {})


def test_text_that_helm_would_read_is_refused(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    path = tmp_path / "manifests" / "agent" / "account.yaml"
    path.write_text(path.read_text() + "  annotations: {text: '{{ .Values }}'}\n")
    with pytest.raises(KustomizationError, match="ServiceAccount j10ce-agent"):
        templates.files(tmp_path / "manifests", {})
