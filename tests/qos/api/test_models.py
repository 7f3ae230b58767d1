"""The models accept what is good, refuse the table of nonsense, and lose nothing on the way back to JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.writes import merge_patch
from qos.api.policy import MinimalReservationPolicy
from qos.api.profile import QoSProfile
from tests.tables import documents, table


def _without_defaults(value: Any) -> Any:
    """What was given: without the values that the schema fills in."""
    defaults = {
        "operator": "Equal",
        "mode": "Floating",
        "consumePolicy": "Reuse",
        "ownerFit": "Aligned",
        "nodeEnforcement": "BestEffort",
        "suspend": False,
        "requestPolicy": "Raise",
        "placement": {},
    }
    if isinstance(value, list):
        return [_without_defaults(item) for item in value]
    if not isinstance(value, dict):
        return value
    parts = {key: _without_defaults(part) for key, part in value.items()}
    return {key: part for key, part in parts.items() if key not in defaults or part != defaults[key]}


BASE = table("policies/base")


@pytest.mark.parametrize(("given", "entry"), documents("policies", "accepted"))
def test_accepts_good_policies_and_gives_them_back(given: dict[str, Any], entry: dict[str, Any]) -> None:
    policy = MinimalReservationPolicy.model_validate(given)
    again = json.loads(json.dumps(policy.to_json()))
    assert MinimalReservationPolicy.model_validate(again) == policy
    assert again["spec"]["floor"] == {"requestPolicy": "Raise"} | given["spec"]["floor"], (
        "quantities stay as they were written"
    )
    assert _without_defaults(again["spec"]) == _without_defaults(given["spec"])


@pytest.mark.parametrize(("given", "entry"), documents("policies", "refused"))
def test_refuses_nonsense(given: dict[str, Any], entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        MinimalReservationPolicy.model_validate(given)
    place = entry["field"].split(".")[1]
    assert any(str(part) == place for error in caught.value.errors() for part in error["loc"]) or (
        place in str(caught.value)
    ), f"{entry['field']} is not named in {caught.value}"


def test_ignores_what_others_may_add_to_metadata_and_status() -> None:
    policy = MinimalReservationPolicy.model_validate(
        BASE
        | {
            "metadata": {"name": "checkout", "managedFields": [], "finalizers": ["example.com/x"]},
            "status": {"slots": {"desired": 3, "consumed": 1}, "newer": True},
        }
    )
    assert policy.status is not None
    assert policy.status.slots is not None
    assert policy.status.slots.desired == 3


def test_inherits_from_a_workload_unless_told_otherwise() -> None:
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"}
    follows = {"spec": {"slots": {"count": None, "scaleTargetRef": ref}}}
    told = merge_patch(follows, {"spec": {"placement": {"inheritFromWorkload": False}}})
    assert MinimalReservationPolicy.model_validate(merge_patch(BASE, follows)).spec.inherits
    assert not MinimalReservationPolicy.model_validate(merge_patch(BASE, told)).spec.inherits
    assert not MinimalReservationPolicy.model_validate(BASE).spec.inherits


@pytest.mark.parametrize("class_name", ["SYSTEM", "LSE", "LSR", "LS", "BE"])
def test_profile_round_trip(class_name: str) -> None:
    given = {"metadata": {"name": "p"}, "spec": {"class": class_name, "description": "for checkout"}}
    profile = QoSProfile.model_validate(given)
    assert profile.to_json()["spec"] == given["spec"]
    assert QoSProfile.model_validate(profile.to_json()) == profile


@pytest.mark.parametrize("spec", [{}, {"class": "ls"}, {"class": "LS", "match": {}}, {"class": None}])
def test_profile_refuses_nonsense(spec: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        QoSProfile.model_validate({"metadata": {"name": "p"}, "spec": spec})
