"""Admission policies of manifests/base, applied so that they judge one namespace alone."""

from __future__ import annotations

import contextlib
import copy
import json
import secrets
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from ruamel.yaml import YAML

import manifests
from lab import minors

APPLY = ("apply", "--server-side", "--field-manager", "j10ce", "--force-conflicts")
"""What installs our objects, also where another test of the same control plane has installed them before."""
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


def items_of(file: str) -> list[Any]:
    """What a file of manifests/base lists."""
    with manifests.overlay("second-scheduler") as folder:
        items: list[Any] = YAML(typ="safe").load(folder.parents[1] / "base" / file)["items"]
    return [copy.deepcopy(item) for item in items]


@contextlib.contextmanager
def narrowed(kubectl: Kubectl, file: str, prefix: str) -> Iterator[str]:
    """The namespace, made for the time of the block; its name begins with the prefix."""
    name = f"{prefix}-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    items = items_of(file)
    served = json.loads(kubectl("get", "--raw", "/apis/admissionregistration.k8s.io/v1").stdout)
    kinds = {one["kind"] for one in served["resources"]}
    for item in items:
        if item["kind"] not in kinds:  # before Kubernetes 1.36
            item["apiVersion"] = minors.BETA
        if item["kind"].endswith("Binding"):
            only = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
            item["spec"]["matchResources"] = only
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    kubectl(*APPLY, "-f", "-", document=document)
    yield name
    kubectl("delete", "-f", "-", document=document)
    kubectl("delete", "namespace", name, "--wait=false")
