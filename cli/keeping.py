"""What is asked before placeholders are installed as keeper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from cli import installation
from cli.kubectl import Kubectl, Object

_CAPS: Final = ("max", "maxLimitRequestRatio", "default", "defaultRequest", "min")


class Keeper(StrEnum):
    """What makes schedulers respect holds; BOTH: each policy as its spec.keeper says."""

    EXTENDER = "extender"
    PLACEHOLDERS = "placeholders"
    BOTH = "both"


KeeperOption = Annotated[
    Keeper | None,
    typer.Option(
        "--keeper",
        case_sensitive=False,
        show_default="as it is installed; at first extender",
        help="What makes schedulers respect holds. extender: kube-scheduler calls it. placeholders: a pod of "
        "ours stands where each hold lies, on any kube-scheduler. both: the second scheduler's extender, and "
        "placeholders of policies with spec.keeper: Placeholders (docs/keepers.md).",
    ),
]


@dataclass(frozen=True, slots=True)
class Room:
    """The namespace of placeholders, None before it is made; what limits pods there, each as Kind/name."""

    namespace: Mapping[str, Any] | None = None
    quotas: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()


def found(kubectl: Kubectl) -> Room:
    """What there is of it."""
    name = installation.PLACEHOLDERS
    wanted = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    namespace = next(iter(kubectl.existing([wanted])), None)
    if namespace is None:
        return Room()
    limits = kubectl.objects("get", "resourcequotas,limitranges", "--namespace", name)
    ranges = [one for one in limits if one["kind"] == "LimitRange" and _concerns_pods(one)]
    return Room(namespace, _names(limits, "ResourceQuota"), _names(ranges, "LimitRange"))


def _names(items: Iterable[Object], kind: str) -> tuple[str, ...]:
    return tuple(f"{kind}/{one['metadata']['name']}" for one in items if one["kind"] == kind)


def _concerns_pods(limit_range: Object) -> bool:
    limits = limit_range.get("spec", {}).get("limits") or ()
    return any(one.get("type") in ("Pod", "Container") and one.keys() & {*_CAPS} for one in limits)


def refusals(room: Room) -> list[str]:
    """Why placeholders would not be made as they are to be; none: nothing is in their way."""
    name, said = installation.PLACEHOLDERS, []
    if room.namespace is not None and not installation.is_ours(room.namespace):
        said.append(f"namespace {name} is there and not ours: placeholders need one that nobody else uses")
    if room.quotas:
        said.append(
            f"{', '.join(room.quotas)} in namespace {name} counts placeholders, and refuses those beyond it: "
            "holds that lie there would have none. Remove it there; what namespaces may hold is for a "
            "ReservationBudget to say"
        )
    if room.ranges:
        said.append(
            f"{', '.join(room.ranges)} in namespace {name} changes or refuses placeholders, which request "
            "exactly a slot: remove it there"
        )
    return said
