"""Where the API server reaches a webhook, as a configuration file says it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pydantic import Field

from adapters.configuration import HostPort, ObjectPath, Section


class WebhookPlace(Section):
    """Where a webhook is served, and how the API server reaches it."""

    address: HostPort = Field(description="Where it is served, by TLS with a certificate of its own.")
    url: str = Field(
        default="",
        pattern="^(https://.+)?$",
        description="How the API server reaches it; else by the Service.",
    )
    service: ObjectPath = Field(description="namespace/name of its Service, port 443.")

    @property
    def host(self) -> str:
        """The DNS name or IP address by which the API server knows it: the certificate's."""
        if self.url:
            return urlsplit(self.url).hostname or "localhost"
        namespace, _, name = self.service.partition("/")
        return f"{name}.{namespace}.svc"

    def client_config(self, path: str) -> dict[str, Any]:
        """A webhook's clientConfig without its certificate. path: such as /gate."""
        if self.url:
            return {"url": self.url.rstrip("/") + path}
        namespace, _, name = self.service.partition("/")
        return {"service": {"namespace": namespace, "name": name, "path": path}}
