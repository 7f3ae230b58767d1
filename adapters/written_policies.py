"""Policies and profiles as people write them: what the API server would refuse is refused in words.

The models that check them also make the CRDs; adapters.kubernetes.policies reads what they let pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import BaseModel, ValidationError

from adapters.kubernetes import policies
from adapters.kubernetes.wire import DecodeError, Object, key_of, read
from qos.api.policy import MinimalReservationPolicy
from qos.api.profile import QoSProfile
from qos.cluster.policy import Policy, Profile

_OBJECT = msgspec.json.Decoder(Object)


def policy(raw: bytes) -> Policy:
    """A MinimalReservationPolicy. DecodeError names object, field and value."""
    _check(MinimalReservationPolicy, raw)
    return policies.policy(raw)


def profile(raw: bytes) -> Profile:
    """A QoSProfile. DecodeError names object, field and value."""
    _check(QoSProfile, raw)
    return policies.profile(raw)


def _check(model: type[BaseModel], raw: bytes) -> None:
    kind = model.__name__
    metadata = read(_OBJECT, kind, raw).metadata
    body: Mapping[str, Any] = msgspec.json.decode(raw)
    try:
        model.model_validate({name: part for name, part in body.items() if name != "status"})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"]) or "object"
        raise DecodeError(
            kind, key_of(metadata), field, first["input"], first["msg"].removeprefix("Value error, ")
        ) from None
