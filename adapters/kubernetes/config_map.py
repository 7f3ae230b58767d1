"""A ConfigMap: its name, and what it says under some keys."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from adapters.api import CONFIG_MAPS
from adapters.kubernetes.wire import Metadata, key_of, read


class _ConfigMap(msgspec.Struct, gc=False):
    metadata: Metadata
    data: dict[str, str] | None = None


_CONFIG_MAP: Final = msgspec.json.Decoder(_ConfigMap)


class ConfigMap(NamedTuple):
    """key: namespace/name."""

    key: str
    data: dict[str, str]


def config_map(raw: bytes) -> ConfigMap:
    """What a ConfigMap says. DecodeError."""
    found = read(_CONFIG_MAP, CONFIG_MAPS.kind, raw)
    return ConfigMap(key_of(found.metadata), found.data or {})
