"""The configuration of the manager: a file, and what the command line overrides in it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from pydantic import Field

from adapters import configuration
from adapters.configuration import HostPort, ObjectPath, Section
from adapters.webhooks.settings import WebhookPlace
from manager.rescheduling_config import Rescheduling


class Webhook(WebhookPlace):
    """Where the API server asks about quotas."""

    address: HostPort = Field(
        default="0.0.0.0:10266",
        description="Where it is served, by TLS with a certificate of its own.",
    )
    service: ObjectPath = Field(
        default="j10ce-system/j10ce-manager", description="namespace/name of its Service, port 443."
    )


class ManagerConfig(Section):
    """Everything that can be configured; JSON names are camelCase, unknown fields are refused."""

    address: HostPort = Field(
        default="127.0.0.1:10265", description="Where /healthz, /readyz and /metrics are served."
    )
    kubeconfig: Path | None = Field(
        default=None, description="How to reach the API server; without it, as the pod's service account."
    )
    context: str | None = Field(
        default=None, description="The kubeconfig's context; without it, the current one."
    )
    identity: str = Field(
        default="", max_length=253, description="Holder of the Lease; without it, the host's name."
    )
    lease: ObjectPath = Field(
        default="j10ce-system/j10ce-manager",
        description="namespace/name of the Lease; its holder alone reads pods and writes Events.",
    )
    stale_seconds: float = Field(
        default=90.0, gt=0, description="How long a watch may be without contact before it is not ready."
    )
    look_seconds: float = Field(
        default=60.0, gt=0, description="Between two looks at the pods of namespaces that have policies."
    )
    rescheduling: Rescheduling = Field(
        default=Rescheduling(), description="Load-aware rescheduling (docs/rescheduling.md)."
    )

    quotas: bool = Field(
        default=False,
        description="Refuse ElasticQuotas that break a rule, and pods on parent quotas (docs/quota.md).",
    )
    webhook: Webhook = Field(default=Webhook(), description="The webhook that does so.")

    def named(self) -> ManagerConfig:
        """With an identity: one that no other manager has at the same time."""
        return self if self.identity else self.model_copy(update={"identity": socket.gethostname()})


def load(path: Path | None, overrides: dict[str, Any]) -> ManagerConfig:
    """The file's configuration with the overrides on top; ConfigError says what is wrong and where."""
    return configuration.load(ManagerConfig, path, overrides)
