"""Requests below the floor: what is installed, by what the API server can do, and in mode Observe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import manifests
from cli import admission
from cli.kubectl import Kubectl


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
    made = admission.fitting(items(), raising="", observe=False)
    left = names(items()) - names(made)
    assert {kind for kind, _ in left} == set(admission.RAISING)
    assert ("ValidatingAdmissionPolicyBinding", "j10ce-requests-refused") in names(made)
    assert admission.fitting(items(), raising="v1", observe=False) == items()


def test_where_nobody_raises_owners_no_pod_has_their_class() -> None:
    """The label that says who was raised could be forged there: nothing marks it as that."""
    with manifests.overlay("second-scheduler") as folder:
        text = (folder.parents[1] / "hand-over" / "raising.yaml").read_text()
    every = [*YAML(typ="safe").load_all(text)]
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in every}
    lax = by_name[admission.OWNER_CLASSES]["spec"]["validations"][0]["expression"]
    assert "raised-priority" in lax
    for raising, expected in (("v1", lax), ("v1beta1", lax), ("", "request.resource.resource != 'pods'")):
        made = admission.fitting([*YAML(typ="safe").load_all(text)], raising=raising, observe=False)
        (rule,) = (one for one in made if (one["kind"], one["metadata"]["name"]) == admission.OWNER_CLASSES)
        assert rule["spec"]["validations"][0]["expression"] == expected
        assert "owner-" in rule["spec"]["validations"][1]["message"]


def test_observe_leaves_requests_alone() -> None:
    assert bound_nowhere(admission.fitting(items(), raising="v1", observe=True)) == {
        "j10ce-requests-raised",
        "j10ce-requests-refused",
    }
    assert bound_nowhere(admission.fitting(items(), raising="v1", observe=False)) == set()


POLICIES = [{"kind": kind} for kind in admission.RAISING]


def serving(folder: Path, **resources: list[dict[str, str]]) -> Kubectl:
    """kubectl on an API server that has these resources in each version of the group."""
    answers = {version: {"resources": made} for version, made in resources.items()}
    answers["admissionregistration.k8s.io"] = {"versions": [{"version": one} for one in resources]}
    for path, answer in answers.items():
        (folder / path).write_text(json.dumps(answer))
    program = folder / "kubectl"
    program.write_text('#!/bin/sh\ncat "${0%/*}/${3##*/}"\n')
    program.chmod(0o755)
    return Kubectl(program)


@pytest.mark.parametrize(
    ("served", "found"),
    [
        ({"v1": POLICIES, "v1beta1": POLICIES}, "v1"),
        ({"v1": [{"kind": "ValidatingAdmissionPolicy"}], "v1beta1": POLICIES}, "v1beta1"),
        ({"v1": [], "v1beta1": []}, ""),
        ({"v1": [], "v1alpha1": POLICIES}, ""),
    ],
)
def test_the_best_that_is_served(served: dict[str, list[dict[str, str]]], found: str, tmp_path: Path) -> None:
    assert admission.raising(serving(tmp_path, **served)) == found


def test_a_beta_is_taken_where_nothing_better_is_served() -> None:
    made = {
        item["kind"]: item["apiVersion"]
        for item in admission.fitting(items(), raising="v1beta1", observe=True)
    }
    assert {made.pop(kind) for kind in admission.RAISING} == {"admissionregistration.k8s.io/v1beta1"}
    assert set(made.values()) == {"admissionregistration.k8s.io/v1"}
