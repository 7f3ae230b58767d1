"""CustomResourceDefinitions for tests: kinds of the group example.com, with and without scale."""

from __future__ import annotations

from typing import Any


def scalable(plural: str, kind: str, *, scales: bool = True) -> list[dict[str, Any]]:
    """The definition; replicas are at spec.size, the selector at status.selector."""
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    version: dict[str, Any] = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
        "subresources": {"status": {}}
        | ({"scale": scale | {"labelSelectorPath": ".status.selector"}} if scales else {}),
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.example.com"},
            "spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]},
        }
    ]
