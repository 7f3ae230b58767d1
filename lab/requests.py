"""What becomes of requests below the floor, on a lab cluster: the admission of manifests/base, at work."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any, Final

from lab import minors
from lab.admission import wait_for
from lab.cluster import Cluster

_PROBE: Final = "j10ce-requests-probe"
_STABLE: Final = "admissionregistration.k8s.io/v1"


def install(cluster: Cluster, seconds: float = 60) -> None:
    """Apply it, and wait until it raises: it takes effect some time after it was made. LabError when it does
    not.
    """
    file = resources.files("manifests") / "base" / "requests.yaml"
    text = file.read_text(encoding="utf-8")
    cluster.kubectl("apply", "--server-side", "--filename=-", stdin=as_served(text, cluster))
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(_policy()))
    wait_for(cluster, _pod(), "j10ce.io/raised-from", f"{file}: requests are not raised", seconds)
    cluster.kubectl("delete", "minimalreservationpolicies", _PROBE, "--namespace=default")


def as_served(text: str, cluster: Cluster) -> str:
    """The admission's manifest with MutatingAdmissionPolicy of the version that the cluster serves."""
    if not minors.has_beta_alone(cluster.versions.get("kube-apiserver", "")):
        return text
    return re.sub(rf"{_STABLE}(\n\s*kind: Mutating)", rf"{minors.BETA}\1", text)


def _policy() -> dict[str, Any]:
    spec = {
        "selector": {"matchLabels": {"app": _PROBE}},
        "floor": {"resources": {"cpu": "1"}},
        "slots": {"count": 0},
    }
    return {
        "apiVersion": "j10ce.io/v1alpha1",
        "kind": "MinimalReservationPolicy",
        "metadata": {"name": _PROBE, "namespace": "default"},
        "spec": spec,
    }


def _pod() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _PROBE, "namespace": "default", "labels": {"app": _PROBE}},
        "spec": {"containers": [{"name": "c", "image": "none"}], "automountServiceAccountToken": False},
    }
