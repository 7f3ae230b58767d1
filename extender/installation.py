"""When this installation began: pods bound before that were bound without us by right."""

from __future__ import annotations

import logging
from datetime import datetime

import msgspec

from adapters.api import LEASES, APIError, ClusterAPI, NotFound, Unreachable
from extender.config import ExtenderConfig

log = logging.getLogger(__name__)


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: datetime


class _Lease(msgspec.Struct):
    metadata: _Metadata


_decode = msgspec.json.Decoder(_Lease).decode


async def installed_at(api: ClusterAPI, config: ExtenderConfig) -> float | None:
    """When the Lease was made, which every restart leaves as it is; None: it cannot be read, ask again."""
    try:
        raw = await api.get(LEASES, config.lease_namespace, config.lease_name)
        return _decode(raw).metadata.creation_timestamp.timestamp()
    except NotFound:
        return None  # the very first extender has not made it yet
    except (APIError, Unreachable, msgspec.DecodeError) as error:
        name = f"{config.lease_namespace}/{config.lease_name}"
        log.warning("when this was installed is not known yet lease=%s error=%s", name, error)
        return None
