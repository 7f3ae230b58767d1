"""PersistentVolumeClaims, PersistentVolumes and StorageClasses from JSON: what says where pods can run."""

from __future__ import annotations

from typing import Final

import msgspec

from adapters.kubernetes import wire
from adapters.kubernetes.templates import terms_of
from adapters.kubernetes.wire import Identity, key_of, read
from qos.cluster.objects import NodeSelectorTerm, Requirement
from qos.cluster.volumes import StorageClass, Volume, VolumeClaim

_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"


class _Wire(msgspec.Struct, rename="camel"):
    pass


class _VolumeAffinity(_Wire):
    required: wire.NodeSelector | None = None


class _VolumeSpec(_Wire):
    node_affinity: _VolumeAffinity | None = None
    claim_ref: Identity | None = None


class _VolumeObject(_Wire):
    metadata: Identity
    spec: _VolumeSpec


class _LabelValues(_Wire):
    key: str
    values: list[str]


class _Topology(_Wire):
    match_label_expressions: list[_LabelValues] | None = None


class _ClassMetadata(Identity):
    annotations: dict[str, str] | None = None


class _ClassObject(_Wire):
    metadata: _ClassMetadata
    allowed_topologies: list[_Topology] | None = None


_CLAIM: Final = msgspec.json.Decoder(wire.VolumeClaimObject)
_VOLUME: Final = msgspec.json.Decoder(_VolumeObject)
_CLASS: Final = msgspec.json.Decoder(_ClassObject)


def volume_claim(raw: bytes) -> VolumeClaim:
    """A PersistentVolumeClaim. DecodeError."""
    obj = read(_CLAIM, "PersistentVolumeClaim", raw)
    meta, spec = obj.metadata, obj.spec
    return VolumeClaim(meta.namespace, meta.name, spec.volume_name, spec.storage_class_name)


def volume(raw: bytes) -> Volume:
    """A PersistentVolume. DecodeError."""
    obj = read(_VOLUME, "PersistentVolume", raw)
    spec = obj.spec
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    claim = key_of(spec.claim_ref) if spec.claim_ref is not None else ""
    return Volume(obj.metadata.name, terms_of(required) if required is not None else None, claim)


def storage_class(raw: bytes) -> StorageClass:
    """A StorageClass. DecodeError."""
    obj = read(_CLASS, "StorageClass", raw)
    allowed = tuple(
        NodeSelectorTerm(tuple(Requirement(one.key, "In", tuple(one.values)) for one in named))
        for topology in obj.allowed_topologies or ()
        if (named := topology.match_label_expressions)
    )
    default = (obj.metadata.annotations or {}).get(_DEFAULT) == "true"
    return StorageClass(obj.metadata.name, allowed or None, default)
