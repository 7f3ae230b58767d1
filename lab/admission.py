"""Admission on a lab cluster takes effect some time after it was made."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from lab.cluster import Cluster, LabError

_LOOK_SECONDS: Final = 0.1


def wait_for(cluster: Cluster, pod: Mapping[str, Any], mark: str, missed: str, seconds: float) -> None:
    """Wait until the API server's answer to a dry run of this pod has the mark. LabError: what is missed."""
    deadline = time.monotonic() + seconds
    dry_run = ("create", "--filename=-", "--dry-run=server", "-o", "json")
    while mark not in cluster.kubectl(*dry_run, stdin=json.dumps(pod)):
        if time.monotonic() > deadline:
            raise LabError(f"{missed} {seconds:g} s after it was applied")
        time.sleep(_LOOK_SECONDS)
