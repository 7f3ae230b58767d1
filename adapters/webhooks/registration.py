"""Tells the API server of webhooks: where they are, by which certificate, and what they are asked about."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from adapters.api import APIError, ClusterAPI, NotFound, Resource, Unreachable
from adapters.webhooks.kept_certificate import KeptCertificate
from adapters.webhooks.settings import WebhookPlace

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS: Final = 60.0
"""Somebody may have changed it."""

Hook = dict[str, Any]
Wanted = TypeVar("Wanted")


class Registration(Generic[Wanted]):
    """Keeps a webhook configuration of this name; one leader at a time.

    `wanted`: what it depends on, to be compared; `hooks`: the webhooks for that, each with the path below
    `place` in `clientConfig`. `missed`: what is not done while nobody is asked, for the log. `written`: what
    the API server was told last.
    """

    def __init__(
        self,
        api: ClusterAPI,
        resource: Resource,
        name: str,
        place: WebhookPlace,
        certificate: KeptCertificate,
        wanted: Callable[[], Wanted],
        hooks: Callable[[Wanted], list[Hook]],
        *,
        missed: str,
        clock: Callable[[], float],
    ) -> None:
        self.certificate = certificate
        self.written: Wanted | None = None
        self.refused = False
        self._api = api
        self._resource = resource
        self._name = name
        self._place = place
        self._wanted = wanted
        self._hooks = hooks
        self._missed = missed
        self._clock = clock
        self._until = 0.0

    async def run_once(self) -> None:
        """Write it when it is not as it should be."""
        wanted = self._wanted()
        if wanted == self.written and self._clock() < self._until:
            return
        known_by = b64encode((await self.certificate.provide()).certificate).decode()
        hooks = [self._reached(hook, known_by) for hook in self._hooks(wanted)]
        try:
            try:
                await self._api.patch(self._resource, "", self._name, {"webhooks": hooks})
            except NotFound:
                metadata = {"name": self._name}
                await self._api.create(self._resource, "", {"metadata": metadata, "webhooks": hooks})
        except (APIError, Unreachable) as error:
            log.warning("webhook not registered then=%r error=%s", self._missed, error)
            self.refused = self.refused or isinstance(error, APIError)
        else:
            self.written, self._until = wanted, self._clock() + LOOK_AGAIN_SECONDS

    def _reached(self, hook: Hook, known_by: str) -> Hook:
        where = self._place.client_config(hook["clientConfig"])
        return {**hook, "clientConfig": where | {"caBundle": known_by}}


async def withdraw(api: ClusterAPI, resource: Resource, name: str) -> bool:
    """Empty a configuration of which nobody serves the webhooks; where it is not there, or not for us, there
    is nothing to be done. False: the API server did not answer.
    """
    try:
        await api.patch(resource, "", name, {"webhooks": []})
    except APIError as error:
        log.debug("nothing withdrawn name=%s error=%s", name, error)
    except Unreachable:
        return False
    return True
