"""QoSProfiles: good ones become overrides of the domain's promises, nonsense is refused and named."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from qos.api.profile import PromisedOtherwise, QoSProfile
from qos.classes import CLASSES
from qos.promises import CpuQuota, CpuSet, Promises
from tests.tables import documents

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples" / "profiles").glob("*.yaml"))


def load(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path)


def plain(value: Any) -> Any:
    """As YAML has it: enums by value, dataclasses as mappings."""
    if isinstance(value, Enum):
        return value.value
    return value if isinstance(value, int) else asdict(value)


@pytest.mark.parametrize(("given", "entry"), documents("profiles", "accepted"))
def test_good_profiles_become_overrides(given: dict[str, Any], entry: dict[str, Any]) -> None:
    profile = QoSProfile.model_validate(given)
    assert {name: plain(value) for name, value in profile.spec.overrides().items()} == entry["overrides"]
    again = json.loads(json.dumps(profile.to_json()))
    assert again["spec"] == given["spec"], "nothing is lost or added"
    assert QoSProfile.model_validate(again) == profile


@pytest.mark.parametrize(("given", "entry"), documents("profiles", "refused"))
def test_nonsense_is_refused_and_the_field_named(given: dict[str, Any], entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        QoSProfile.model_validate(given)
    field = entry["field"].rsplit(".", 1)[1]
    assert field in str(caught.value)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_good(path: Path) -> None:
    profile = QoSProfile.model_validate(load(path))
    assert profile.metadata.name == path.stem
    assert profile.spec.overrides(), "an example overrides something"


def test_guaranteed_pro_is_an_example() -> None:
    assert [path.stem for path in EXAMPLES] == ["guaranteed-pro"]


def test_every_promise_can_be_overridden() -> None:
    assert list(PromisedOtherwise.model_fields) == list(get_type_hints(Promises))


@pytest.mark.parametrize(("field", "values"), [("cpu_quota", CpuQuota), ("cpus", CpuSet)])
def test_the_words_are_those_of_the_domain(field: str, values: type[Enum]) -> None:
    literal, _ = get_args(PromisedOtherwise.model_fields[field].annotation)
    assert set(get_args(literal)) == {value.value for value in values}


def test_the_description_names_every_class() -> None:
    description = QoSProfile.model_json_schema()["$defs"]["QoSProfileSpec"]["properties"]["class"][
        "description"
    ]
    for name, row in CLASSES.items():
        assert f"{name} ({row.meaning})" in description
