"""When this installation began: pods bound before that were bound without us by right."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from adapters.api import LEASES, APIError, ClusterAPI, Unreachable
from extender.config import ExtenderConfig


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: datetime


class _Lease(msgspec.Struct):
    metadata: _Metadata


_decode = msgspec.json.Decoder(_Lease).decode


async def installed_at(api: ClusterAPI, config: ExtenderConfig, clock: Callable[[], float]) -> float:
    """When the Lease was made, which every restart leaves as it is; now, when that cannot be read."""
    try:
        raw = await api.get(LEASES, config.lease_namespace, config.lease_name)
        return _decode(raw).metadata.creation_timestamp.timestamp()
    except (APIError, Unreachable, msgspec.DecodeError):
        return clock()
