"""What kube-scheduler sends and expects: Go structs without json tags, so keys are Go field names, exactly.

Source: k8s.io/kube-scheduler/extender/v1. Absent values arrive as null. Only what a verb needs is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson

from adapters.kubernetes.decode import PodObject
from adapters.kubernetes.wire import AskedPod


class NodeList(msgspec.Struct, gc=False):
    """Full nodes, as sent where nodeCacheCapable is false; each is kept as it came."""

    items: list[msgspec.Raw] | None = None


class ExtenderArgs(msgspec.Struct, rename="pascal", gc=False):
    """The body of filter and prioritize."""

    pod: AskedPod
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class BindingArgs(msgspec.Struct, gc=False):
    """The body of bind."""

    pod_name: str = msgspec.field(name="PodName")
    pod_namespace: str = msgspec.field(name="PodNamespace")
    pod_uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class MetaPod(msgspec.Struct, gc=False):
    """A victim by its UID."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(msgspec.Struct, gc=False):
    """A node's victims by UID; null where there are none."""

    pods: list[MetaPod] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class ObjectMeta(msgspec.Struct, gc=False):
    """The part of an object's metadata that names it."""

    name: str = ""
    uid: str = ""


class Named(msgspec.Struct, gc=False):
    """Any object, for its metadata."""

    metadata: ObjectMeta


class Victims(msgspec.Struct, gc=False):
    """A node's victims as full pods."""

    pods: list[Named] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptionArgs(msgspec.Struct, gc=False):
    """The body of preempt: victims by UID where nodeCacheCapable is true, else as full pods."""

    pod: PodObject = msgspec.field(name="Pod")
    victims: dict[str, Victims | None] | None = msgspec.field(name="NodeNameToVictims", default=None)
    meta_victims: dict[str, MetaVictims | None] | None = msgspec.field(
        name="NodeNameToMetaVictims", default=None
    )

    def by_uid(self) -> dict[str, tuple[list[str], int]]:
        """Node name -> (UIDs of its victims, PodDisruptionBudget violations), whichever form was sent."""
        found: dict[str, tuple[list[str], int]] = {}
        for node, meta in (self.meta_victims or {}).items():
            found[node] = [pod.uid for pod in meta.pods or []] if meta else [], meta.violations if meta else 0
        for node, full in (self.victims or {}).items():
            if node not in found:
                found[node] = (
                    ([pod.metadata.uid for pod in full.pods or []], full.violations) if full else ([], 0)
                )
        return found


decode_args = msgspec.json.Decoder(ExtenderArgs).decode
decode_binding = msgspec.json.Decoder(BindingArgs).decode
decode_preemption = msgspec.json.Decoder(PreemptionArgs).decode
_decode_named = msgspec.json.Decoder(Named).decode


def names_of(nodes: NodeList | None) -> list[str]:
    """The names of full nodes, in their order; none where there is no list."""
    return [_decode_named(raw).metadata.name for raw in (nodes.items or [] if nodes else [])]


def filter_result(names: list[str], failed: Mapping[str, str], unresolvable: Mapping[str, str]) -> bytes:
    """The answer where names were sent."""
    return orjson.dumps(
        {
            "Nodes": None,
            "NodeNames": names,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": unresolvable,
            "Error": "",
        }
    )


def filter_result_nodes(
    items: Sequence[msgspec.Raw], failed: Mapping[str, str], unresolvable: Mapping[str, str]
) -> bytes:
    """The answer where full nodes were sent: the same bytes of those that pass."""
    return msgspec.json.encode(
        {
            "Nodes": {"metadata": {}, "items": items},
            "NodeNames": None,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": unresolvable,
            "Error": "",
        }
    )


def host_priorities(names: Sequence[str], scores: Sequence[int]) -> bytes:
    """A bare array; Score is an integer, or Go drops all of them."""
    return orjson.dumps([{"Host": name, "Score": score} for name, score in zip(names, scores, strict=True)])


def preemption_result(kept: Mapping[str, tuple[list[str], int]]) -> bytes:
    """Always the Meta form, whatever was sent."""
    answer: dict[str, Any] = {
        node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}
        for node, (uids, violations) in kept.items()
    }
    return orjson.dumps({"NodeNameToMetaVictims": answer})


def error_result(message: str) -> bytes:
    """An Error: the bind's refusal, or what was wrong with a body."""
    return orjson.dumps({"Error": message})


BOUND: bytes = error_result("")
"""The answer to a bind that happened."""
