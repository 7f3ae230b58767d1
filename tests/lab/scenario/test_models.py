"""Scenario files as people write them: what is accepted, and what errors say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from lab.scenario import source
from lab.scenario.commands import app

FOLDER = Path(__file__).parents[3] / "kwok-scenarios"
FILES = sorted(FOLDER.glob("*.yaml"))

GOOD = """\
name: small
description: one node, one pod
cluster: {schedulerConfig: config.yaml}
nodes:
  - {name: node, count: 1}
policies:
  - name: checkout
    spec:
      selector: {matchLabels: {app: checkout}}
      floor: {resources: {cpu: "1"}}
      slots: {count: 1}
steps:
  - create: {name: batch, count: 2, requests: {cpu: 500m}}
  - wait:
      until: [{pods: {workload: batch, bound: 2}}]
      within: 30s
expectations:
  - policy: {name: checkout, held: {atLeast: 1}}
"""


def write(folder: Path, text: str) -> Path:
    (folder / "config.yaml").write_text("kind: KubeSchedulerConfiguration\n")
    file = folder / "scenario.yaml"
    file.write_text(text)
    return file


def test_a_scenario_is_read(tmp_path: Path) -> None:
    scenario = source.load(write(tmp_path, GOOD))
    wait = scenario.steps[1].wait
    assert wait is not None
    assert wait.within == 30.0
    assert [run.name for run in scenario.all_runs()] == ["small"]


BAD: list[tuple[str, str, str]] = [
    ("count: 2, requests", "count: two, requests", "scenario.yaml:13: steps[0].create.count"),
    ("cpu: 500m", "cpu: half", "scenario.yaml:13: steps[0].create.requests.cpu: 'half' is not a quantity"),
    (
        "within: 30s",
        "within: soon",
        "scenario.yaml:16: steps[1].wait.within: 'soon' is not a time such as 500ms",
    ),
    ("workload: batch", "workload: bath", "workload 'bath' is not defined; there are: batch"),
    (
        "{policy: {name: checkout",
        "{policy: {name: other",
        "policy 'other' is not defined; there are: checkout",
    ),
    ("bound: 2", "bound: 2, bonud: 1", "pods.bonud: Extra inputs are not permitted"),
    ('{cpu: "1"}', '{cpu: "0"}', "policies[0].spec.floor: resources: cpu: '0' must be greater than zero"),
    ("selector: {matchLabels: {app: checkout}}", "selector: {}", "must select something"),
    ("- create:", "- crate:", "steps[0].crate: Extra inputs are not permitted"),
    ("config.yaml", "nowhere.yaml", "scenario.yaml:3: cluster.schedulerConfig: there is no file"),
    ("name: small", "name: Small!", "scenario.yaml:1: name: String should match pattern"),
    ("nodes:\n", "nodes: [\n", "is not YAML"),
    ("description: one node, one pod\n", "", "description: Field required"),
]


@pytest.mark.parametrize(("good", "bad", "says"), BAD, ids=[says[-30:] for _, _, says in BAD])
def test_errors_name_file_line_field_and_value(tmp_path: Path, good: str, bad: str, says: str) -> None:
    text = GOOD.replace("  - policy: {", "  - {policy: {").replace("atLeast: 1}}", "atLeast: 1}}}")
    assert good in text
    file = write(tmp_path, text.replace(good, bad, 1))
    with pytest.raises(source.ScenarioError) as raised:
        source.load(file)
    assert says in str(raised.value)
    assert str(raised.value).startswith(str(file))


def test_all_errors_are_said_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("count: 2,", "count: -2,").replace("within: 30s", "within: -1")
    with pytest.raises(source.ScenarioError) as raised:
        source.load(write(tmp_path, text))
    assert [problem.field for problem in raised.value.problems] == [
        "steps[0].create.count",
        "steps[1].wait.within",
    ]


def test_a_step_is_one_action(tmp_path: Path) -> None:
    text = GOOD.replace("  - wait:", "  - pause: 1s\n    wait:")
    with pytest.raises(source.ScenarioError, match=r"exactly one action \(given: wait, pause\)"):
        source.load(write(tmp_path, text))


def test_a_policy_may_be_a_whole_manifest(tmp_path: Path) -> None:
    text = GOOD.replace(
        "  - name: checkout\n    spec:",
        "  - apiVersion: j10ce.io/v1alpha1\n    kind: MinimalReservationPolicy\n"
        "    metadata: {name: checkout}\n    spec:",
    )
    assert source.load(write(tmp_path, text)).policies[0].called == "checkout"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_scenarios_of_the_project_are_valid_and_explained(file: Path) -> None:
    scenario = source.load(file)
    assert file.read_text().startswith("# ")
    assert "Why one should care:" in file.read_text() or scenario.name == "before-after"
    validator = jsonschema.Draft202012Validator(json.loads((FOLDER / "scenario.schema.json").read_text()))
    document: Any = YAML(typ="safe").load(file)
    assert [error.message for error in validator.iter_errors(document)] == []


def test_the_schema_is_up_to_date() -> None:
    assert (FOLDER / "scenario.schema.json").read_text() == source.schema()


def test_the_schema_refuses_what_is_unknown() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(source.schema()))
    document: Any = YAML(typ="safe").load(GOOD)
    assert not list(validator.iter_errors(document))
    document["steps"][0]["create"]["cuont"] = 1
    assert list(validator.iter_errors(document))


def test_validate_ends_with_2_and_says_why(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD.replace("count: 2", "count: two"))
    result = CliRunner().invoke(app, ["validate", str(file)])
    assert result.exit_code == 2
    assert f"{file}:13: steps[0].create.count" in result.stderr
    good = CliRunner().invoke(app, ["validate", str(FILES[0])])
    assert good.exit_code == 0
    assert "before-after: ok" in good.stdout


def test_run_refuses_a_missing_file_before_it_starts_anything(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", str(tmp_path / "none.yaml")])
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


def test_keep_and_kubeconfig_exclude_each_other(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("")
    result = CliRunner().invoke(app, ["run", "--keep", "--kubeconfig", str(kubeconfig), str(FILES[0])])
    assert result.exit_code == 2
    assert "--keep has no meaning" in result.stderr
