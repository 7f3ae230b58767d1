"""The admission that gates pods of gangs, on a lab cluster: manifests/quotas, at work."""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

from lab.admission import wait_for
from lab.cluster import Cluster
from lab.requests import as_served
from qos.keys import GANG_GATE, GANG_NAME_ANNOTATION

_PROBE: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "j10ce-gangs-probe",
        "namespace": "default",
        "annotations": {GANG_NAME_ANNOTATION: "probe"},
    },
    "spec": {"containers": [{"name": "c", "image": "none"}], "automountServiceAccountToken": False},
}


def install(cluster: Cluster, seconds: float = 60) -> None:
    """Apply it, and wait until it gates: it takes effect some time after it was made. LabError when it does
    not.
    """
    file = resources.files("manifests") / "quotas" / "gangs.yaml"
    text = as_served(file.read_text(encoding="utf-8"), cluster)
    cluster.kubectl("apply", "--server-side", "--filename=-", stdin=text)
    wait_for(cluster, _PROBE, GANG_GATE, f"{file}: pods of gangs are not gated", seconds)
