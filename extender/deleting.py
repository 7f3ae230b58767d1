"""Deletes a placeholder as it is thought to be: one that waits may have been bound, and keeps room then."""

from __future__ import annotations

from adapters.api import PODS, ClusterAPI, Conflict, NotFound
from adapters.kubernetes import placeholders
from qos.cluster.placeholders import Placeholder


async def delete(api: ClusterAPI, namespace: str, one: Placeholder) -> Placeholder | None:
    """None when it is gone; as it is, when it has changed and stays. APIError, Unreachable.

    Its status changes with each attempt of kube-scheduler and each nomination of ours; a watch may be late.
    """
    version = "" if one.bound else one.version
    try:
        await api.delete(PODS, namespace, one.name, uid=one.uid, version=version)
        return None
    except NotFound:
        return None
    except Conflict:
        pass
    try:
        found = placeholders.placeholder(await api.get(PODS, namespace, one.name))
    except NotFound:
        return None
    return found if found.uid == one.uid else None
