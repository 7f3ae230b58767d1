"""The webhook of owners: only namespaces with policies ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from adapters.api import WEBHOOKS, ClusterAPI
from adapters.webhooks.kept_certificate import KeptCertificate
from adapters.webhooks.registration import Registration
from adapters.webhooks.settings import WebhookPlace
from extender.gate import PATH
from qos.keys import NAMESPACE_NAME_LABEL

NAME: Final = "j10ce-hand-over"
"""Of the MutatingWebhookConfiguration, and of the certificate's Secret."""
TIMEOUT_SECONDS: Final = 1
"""The least there is: so long a pod's creation may take when we hang."""


class Webhook:
    """Its registration. `secrets`: the namespace of its certificate's Secret; `namespaces`: those of all
    policies.
    """

    def __init__(
        self,
        api: ClusterAPI,
        place: WebhookPlace,
        secrets: str,
        namespaces: Callable[[], Iterable[str]],
        *,
        clock: Callable[[], float],
    ) -> None:
        self.certificate = KeptCertificate(api, secrets, NAME, place.host)
        self._registration = Registration(
            api,
            WEBHOOKS,
            NAME,
            place,
            self.certificate,
            lambda: sorted(set(namespaces())),
            _hooks,
            missed="owners are not gated",
            clock=clock,
        )
        self.run_once = self._registration.run_once

    def asks(self, namespace: str) -> bool:
        """Whether the API server asks us of its pods; until we have written it: as before we began."""
        written = self._registration.written
        return not self._registration.refused if written is None else namespace in written


def _hooks(namespaces: list[str]) -> list[dict[str, Any]]:
    if not namespaces:
        return []
    chosen = {"key": NAMESPACE_NAME_LABEL, "operator": "In", "values": namespaces}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    hook = {
        "name": "hand-over.j10ce.io",
        "clientConfig": PATH,
        "rules": [rule | {"scope": "Namespaced"}],
        "namespaceSelector": {"matchExpressions": [chosen]},
        "failurePolicy": "Ignore",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return [hook]
