"""Where kube-scheduler keeps room for a pod that waits."""

from __future__ import annotations

from typing import Any


def nomination(uid: str, node: str | None) -> dict[str, Any]:
    """The merge patch of a pod's status by which kube-scheduler keeps its room there; None: no longer."""
    return {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node}}
