"""What the API server itself does to pods when it is installed: by its version, and by mode."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from cli.kubectl import Kubectl, Object

GROUP: Final = "admissionregistration.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")
"""Of MutatingAdmissionPolicy, the best first: Kubernetes serves v1 from 1.36 on; 1.34 and 1.35 serve v1beta1
where that is switched on.
"""
RAISING: Final = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
BINDINGS: Final = ("j10ce-requests-raised", "j10ce-requests-refused", "j10ce-gangs-gated")
OWNER_CLASSES: Final = ("ValidatingAdmissionPolicy", "j10ce-owner-classes")
NOWHERE: Final = {
    # Every namespace has this label.
    "namespaceSelector": {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"}]
    }
}


def raising(kubectl: Kubectl) -> str:
    """The version by which the API server itself can raise requests, and name a scheduler, of VERSIONS; ""
    where it cannot.
    """
    served = json.loads(kubectl.run("get", "--raw", f"/apis/{GROUP}"))
    there = {one["version"] for one in served["versions"]}
    return next((one for one in VERSIONS if one in there and _has_policies(kubectl, one)), "")


def _has_policies(kubectl: Kubectl, version: str) -> bool:
    resources = json.loads(kubectl.run("get", "--raw", f"/apis/{GROUP}/{version}"))["resources"]
    return any(one.get("kind") == RAISING[0] for one in resources)


def fitting(items: Iterable[Object], *, raising: str, observe: bool) -> list[Object]:
    """The objects as the API server knows them, without those that it does not.

    raising: the version above, or "". observe: pods are left alone, as mode Observe refuses nothing.
    """
    made = [item for item in items if raising or item["kind"] not in RAISING]
    for item in made:
        if not raising and (item["kind"], item["metadata"]["name"]) == OWNER_CLASSES:
            give_nobody(item)
        if item["kind"] in RAISING:
            item["apiVersion"] = f"{GROUP}/{raising}"
        if observe and item["kind"].endswith("Binding") and item["metadata"]["name"] in BINDINGS:
            item["spec"]["matchResources"] = NOWHERE
    return made


def give_nobody(item: Object) -> None:
    """Of OWNER_CLASSES: where nobody raises owners nobody marks forged labels, so no pod may have a class."""
    item["spec"]["validations"][0]["expression"] = "request.resource.resource != 'pods'"
