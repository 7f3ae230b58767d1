"""What we compute from a pod's manifest is what a real API server makes of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from qos.pods.containers import from_manifest

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]
TABLE = YAML(typ="safe", pure=True).load(Path(__file__).parents[1] / "data" / "pods" / "classes.yaml")


def with_images(spec: dict[str, Any]) -> dict[str, Any]:
    parts = {
        kind: [one | {"image": "a:1"} for one in spec[kind]]
        for kind in ("initContainers", "containers")
        if kind in spec
    }
    return spec | parts


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry["name"])
def test_the_api_server_agrees(entry: dict[str, Any], kubectl: Kubectl) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": with_images(entry["spec"]) | {"automountServiceAccountToken": False},
    }
    answer = kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", document=manifest)
    made = json.loads(answer.stdout)
    assert made["status"]["qosClass"] == entry["qos"]
    ours, theirs = from_manifest(manifest), from_manifest(made)
    assert ours.qos == theirs.qos
    assert ours.containers == theirs.containers
    whole = ("cpu_request", "cpu_limit", "memory_request", "memory_limit")
    assert [getattr(ours, name) for name in whole] == [getattr(theirs, name) for name in whole]
    for one in made["spec"]["containers"]:
        stated = one.get("resources", {})
        assert stated.get("limits", {}).keys() <= stated.get("requests", {}).keys(), "it filled the requests"
