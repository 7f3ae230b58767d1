"""QoSProfile: what a pod may expect of a node, by name."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from qos.api.fields import DNS_SUBDOMAIN, Model
from qos.api.upstream import ObjectMeta


class QoSProfileSpec(Model):
    """What policies that use this profile have in common."""

    class_name: Literal["SYSTEM", "LSE", "LSR", "LS", "BE"] = Field(
        alias="class",
        description=(
            "The class: SYSTEM, LSE (latency sensitive, exclusive CPUs), LSR (latency sensitive, reserved "
            "CPUs), LS (latency sensitive, shared CPUs), BE (best effort). BE has no floor: nothing is held"
            " for a policy with a BE profile."
        ),
    )
    description: str | None = Field(
        default=None, max_length=1024, description="What the profile is for, for people."
    )
    priority_class_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=DNS_SUBDOMAIN,
        description="The PriorityClass of policies that use this profile and name none themselves.",
    )


class QoSProfile(Model):
    """A class of service under a name. A policy that names it needs RBAC verb `use` on it."""

    api_version: Literal["j10ce.io/v1alpha1"] = "j10ce.io/v1alpha1"
    kind: Literal["QoSProfile"] = "QoSProfile"
    metadata: ObjectMeta = ObjectMeta()
    spec: QoSProfileSpec = Field(description="What the profile's policies have in common.")
