"""A tenant of a lab cluster: may make policies in its namespace, and use no PriorityClass and no QoSProfile.

Whether a name may be used is admission's to say (manifests/base); acting as the tenant is impersonation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from importlib import resources
from typing import Any

from lab.cluster import Cluster, LabError

USER = "tenant"
_ROLE = "j10ce-policy-editor"
_MANIFESTS = ("user-rights.yaml", "profile-use.yaml", "class-use.yaml")
_LOOK_SECONDS = 0.1


def install(cluster: Cluster) -> None:
    """What a cluster of tenants is installed with: roles for users, and what asks for the verb use."""
    with resources.as_file(resources.files("manifests") / "base") as folder:
        cluster.kubectl("apply", "--server-side", *(f"--filename={folder / name}" for name in _MANIFESTS))


def admit(cluster: Cluster, namespace: str) -> None:
    """Let the tenant make policies there."""
    role = ("create", "rolebinding", USER, f"--clusterrole={_ROLE}", f"--user={USER}")
    cluster.kubectl(*role, f"--namespace={namespace}")


def create(cluster: Cluster, manifest: Mapping[str, Any], *, try_only: bool = False) -> str:
    """Create an object as the tenant: "", or why it was refused. try_only: ask, and create nothing."""
    options = ["--dry-run=server"] if try_only else []
    try:
        cluster.kubectl("create", "--filename=-", f"--as={USER}", *options, stdin=json.dumps(manifest))
    except LabError as error:
        return str(error)
    return ""


def wait_for_answer(cluster: Cluster, manifest: Mapping[str, Any], refusal: str, seconds: float = 30) -> str:
    """The answer that the tenant gets in the end: rules of admission take effect some time after they were
    made.

    refusal: text that it will contain, empty: none. Nothing is created.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = create(cluster, manifest, try_only=True)
        if (refusal in answer if refusal else not answer) or time.monotonic() > deadline:
            return answer
        time.sleep(_LOOK_SECONDS)
