"""What becomes of requests below the floor when it is installed: by the API server's version, and by mode."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from cli.kubectl import Kubectl, Object

RAISING: Final = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
BINDINGS: Final = ("j10ce-requests-raised", "j10ce-requests-refused")
NOWHERE: Final = {
    # Every namespace has this label.
    "namespaceSelector": {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"}]
    }
}


def raises(kubectl: Kubectl) -> bool:
    """Whether the API server itself can raise requests: MutatingAdmissionPolicy v1, Kubernetes 1.36."""
    served = json.loads(kubectl.run("get", "--raw", "/apis/admissionregistration.k8s.io/v1"))
    return any(one.get("kind") == RAISING[0] for one in served.get("resources", []))


def fitting(items: Iterable[Object], *, can_raise: bool, observe: bool) -> list[Object]:
    """The objects, without those that the API server does not know.

    can_raise: as `raises` says. observe: requests are left alone, as mode Observe refuses nothing.
    """
    made = [item for item in items if can_raise or item["kind"] not in RAISING]
    if observe:
        for item in made:
            if item["kind"].endswith("Binding") and item["metadata"]["name"] in BINDINGS:
                item["spec"]["matchResources"] = NOWHERE
    return made
