"""Statuses of objects whose definition may have no status subresource.

Koordinator's and scheduler-plugins' definitions of ElasticQuota and PodGroup have none: there /status is
answered 404, and the status is a part of the object as its spec is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.api import ClusterAPI, NotFound, Resource


async def patch_status(
    api: ClusterAPI, resource: Resource, namespace: str, name: str, uid: str, status: Mapping[str, Any]
) -> bytes:
    """The object with this status merged in, by the subresource or without it.

    uid: of whose status it is; another object of that name is a Conflict. NotFound: the object is gone.
    APIError, Unreachable.
    """
    body = {"metadata": {"uid": uid}, "status": status}
    try:
        return await api.patch(resource, namespace, name, body, subresource="status")
    except NotFound:
        return await api.patch(resource, namespace, name, body)
