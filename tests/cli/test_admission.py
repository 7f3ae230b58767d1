"""Requests below the floor: what is installed where the API server cannot raise, and in mode Observe."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML

import manifests
from cli import admission


def items() -> list[dict[str, Any]]:
    with manifests.overlay("second-scheduler") as folder:
        found: list[dict[str, Any]] = YAML(typ="safe").load(folder.parents[1] / "base" / "requests.yaml")[
            "items"
        ]
    return found


def names(made: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(item["kind"], item["metadata"]["name"]) for item in made}


def bound_nowhere(made: list[dict[str, Any]]) -> set[str]:
    return {item["metadata"]["name"] for item in made if "matchResources" in item["spec"]}


def test_an_older_api_server_gets_only_what_it_knows() -> None:
    made = admission.fitting(items(), can_raise=False, observe=False)
    left = names(items()) - names(made)
    assert {kind for kind, _ in left} == set(admission.RAISING)
    assert ("ValidatingAdmissionPolicyBinding", "j10ce-requests-refused") in names(made)
    assert admission.fitting(items(), can_raise=True, observe=False) == items()


def test_observe_leaves_requests_alone() -> None:
    assert bound_nowhere(admission.fitting(items(), can_raise=True, observe=True)) == {
        "j10ce-requests-raised",
        "j10ce-requests-refused",
    }
    assert bound_nowhere(admission.fitting(items(), can_raise=True, observe=False)) == set()
