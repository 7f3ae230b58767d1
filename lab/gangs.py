"""The admission that gates pods of gangs, on a lab cluster: manifests/quotas, at work."""

from __future__ import annotations

import json
import time
from importlib import resources
from typing import Any, Final

from lab.cluster import Cluster, LabError
from lab.requests import as_served
from qos.keys import GANG_GATE, GANG_NAME_ANNOTATION

_LOOK_SECONDS: Final = 0.1
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
    deadline = time.monotonic() + seconds
    dry_run = ("create", "--filename=-", "--dry-run=server", "-o", "json")
    while GANG_GATE not in cluster.kubectl(*dry_run, stdin=json.dumps(_PROBE)):
        if time.monotonic() > deadline:
            raise LabError(f"pods of gangs are not gated {seconds:g} s after {file} was applied")
        time.sleep(_LOOK_SECONDS)
