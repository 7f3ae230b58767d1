"""Tells the API server of the webhook: where it is, by which certificate, and for which namespaces."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Any, Final

from adapters.api import WEBHOOKS, APIError, ClusterAPI, NotFound, Unreachable
from extender.gate import PATH
from extender.kept_certificate import KeptCertificate
from qos.keys import NAMESPACE_NAME_LABEL

log = logging.getLogger(__name__)

NAME: Final = "j10ce-hand-over"
TIMEOUT_SECONDS: Final = 1
"""The least there is: so long a pod's creation may take when we hang."""
LOOK_AGAIN_SECONDS: Final = 60.0
"""Somebody may have changed it."""


class Webhook:
    """Keeps the MutatingWebhookConfiguration: only namespaces with policies ask us.

    `where`: clientConfig without the `certificate`. `namespaces`: those of all policies.
    """

    def __init__(
        self,
        api: ClusterAPI,
        where: dict[str, Any],
        certificate: KeptCertificate,
        namespaces: Callable[[], Iterable[str]],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self.certificate = certificate
        self._where = where
        self._namespaces = namespaces
        self._clock = clock
        self._written: list[str] | None = None
        self._until = 0.0
        self._refused = False

    def asks(self, namespace: str) -> bool:
        """Whether the API server asks us of its pods; until we have written it: as before we began."""
        return not self._refused if self._written is None else namespace in self._written

    async def run_once(self) -> None:
        """Write it when it is not as it should be."""
        wanted = sorted(set(self._namespaces()))
        if wanted == self._written and self._clock() < self._until:
            return
        known_by = (await self.certificate.provide()).certificate
        client = {**self._where, "caBundle": b64encode(known_by).decode()}
        hooks = [self._hook(wanted, client)] if wanted else []
        try:
            try:
                await self._api.patch(WEBHOOKS, "", NAME, {"webhooks": hooks})
            except NotFound:
                metadata = {"name": NAME}
                await self._api.create(WEBHOOKS, "", {"metadata": metadata, "webhooks": hooks})
        except (APIError, Unreachable) as error:
            log.warning("webhook not registered then=%r error=%s", "owners are not gated", error)
            self._refused = self._refused or isinstance(error, APIError)
        else:
            self._written, self._until = wanted, self._clock() + LOOK_AGAIN_SECONDS

    def _hook(self, namespaces: list[str], client: dict[str, Any]) -> dict[str, Any]:
        chosen = {"key": NAMESPACE_NAME_LABEL, "operator": "In", "values": namespaces}
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
        return {
            "name": "hand-over.j10ce.io",
            "clientConfig": client,
            "rules": [rule | {"scope": "Namespaced"}],
            "namespaceSelector": {"matchExpressions": [chosen]},
            "failurePolicy": "Ignore",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }


def client_config(url: str, service: str) -> dict[str, Any]:
    """Where the API server finds it: a URL, or a Service (NAMESPACE/NAME)."""
    if url:
        return {"url": url.rstrip("/") + PATH}
    namespace, _, name = service.partition("/")
    return {"service": {"namespace": namespace, "name": name, "path": PATH}}
