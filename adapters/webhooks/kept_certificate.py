"""A webhook's certificate, in a Secret: after a restart the API server knows it at once."""

from __future__ import annotations

import binascii
import logging
import ssl
from base64 import b64decode, b64encode
from ipaddress import ip_address

import orjson

from adapters import own_certificate
from adapters.api import SECRETS, APIError, ClusterAPI, Conflict, NotFound, Unreachable
from adapters.own_certificate import Certificate

log = logging.getLogger(__name__)


class KeptCertificate:
    """Made once, for one host (a DNS name or an IP address); another host gets another one.

    secret: its name, in this namespace.
    """

    def __init__(self, api: ClusterAPI, namespace: str, secret: str, host: str) -> None:
        self._api = api
        self._namespace = namespace
        self._secret = secret
        self._host = host
        self._known: Certificate | None = None
        self._version = ""

    async def provide(self) -> Certificate:
        """The one in the Secret; without access to it one for this life only."""
        try:
            return await self.shared()
        except (APIError, Unreachable) as error:
            name = f"{self._namespace}/{self._secret}"
            log.warning("webhook's certificate not kept secret=%s error=%s", name, error)
            self._known = _made(self._host)
        return self._known

    async def shared(self) -> Certificate:
        """The one in the Secret, which all replicas have. APIError, Unreachable: it cannot be had."""
        if self._known is None:
            self._known = await self._stored() or await self._store(_made(self._host))
        return self._known

    async def _stored(self) -> Certificate | None:
        """None when there is none, or of another name, or none that can be used."""
        try:
            secret = orjson.loads(await self._api.get(SECRETS, self._namespace, self._secret))
            self._version = secret["metadata"]["resourceVersion"]
            found = {key: b64decode(value) for key, value in (secret.get("data") or {}).items()}
            own = Certificate(found["key"], found["certificate"])
            own_certificate.context(own)
        except (NotFound, KeyError, binascii.Error, ssl.SSLError):
            return None
        return own if found["name"] == self._data() else None

    async def _store(self, made: Certificate) -> Certificate:
        parts = {"name": self._data(), "key": made.key, "certificate": made.certificate}
        data = {key: b64encode(value).decode() for key, value in parts.items()}
        seen = {"metadata": {"resourceVersion": self._version}, "data": data}
        try:
            try:
                await self._api.patch(SECRETS, self._namespace, self._secret, seen)  # installed empty
            except NotFound:
                await self._api.create(
                    SECRETS, self._namespace, {"metadata": {"name": self._secret}, "data": data}
                )
        except Conflict:
            if found := await self._stored():
                return found  # another replica was quicker
            raise
        return made

    def _data(self) -> bytes:
        return self._host.encode()


def _made(host: str) -> Certificate:
    try:
        ip_address(host)
    except ValueError:
        return own_certificate.made(host, "")
    return own_certificate.made("localhost", host)
