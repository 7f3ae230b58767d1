"""How the API server changes an object: merge patches, and the conditions under which it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.api import Conflict


def merge_patch(target: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 7396: None removes, mappings merge, everything else replaces."""
    merged = dict(target)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            below = merged.get(key)
            merged[key] = merge_patch(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def require_version(before: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    """Conflict when the body names another resourceVersion than the newest."""
    wanted = body.get("metadata", {}).get("resourceVersion", "")
    if wanted and wanted != before["metadata"]["resourceVersion"]:
        raise Conflict(
            409, "Conflict", "the object has been modified; apply your changes to the latest version"
        )


def require_uid(meta: Mapping[str, Any], uid: str) -> None:
    """Conflict when a UID is given and the object, whose metadata this is, has another."""
    if uid and meta["uid"] != uid:
        text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
        raise Conflict(409, "Conflict", text)


def require_bindable(pod: Mapping[str, Any], uid: str) -> None:
    """Conflict when the pod is another one, has a node, or is being deleted."""
    name = pod["metadata"]["name"]
    if pod["metadata"]["uid"] != uid:
        raise Conflict(
            409, "Conflict", f"Precondition failed: UID in precondition: {uid}, pod {name!r} has another"
        )
    if pod.get("spec", {}).get("nodeName"):
        raise Conflict(409, "Conflict", f"pod {name} is already assigned to node {pod['spec']['nodeName']!r}")
    if pod["metadata"].get("deletionTimestamp"):
        raise Conflict(409, "Conflict", f"pod {name} is being deleted, cannot be assigned to a host")
