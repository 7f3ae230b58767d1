"""Kubeconfigs without the `kubernetes` package: for programs that run on every node, beside the kubelet.

A kubelet's own kubeconfig will do. Client certificates and tokens in files are read again when they are
renewed. Plugins are refused: they are for people's machines.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from adapters.kubernetes.credentials import CredentialsError, Endpoint, proxy_for, trusting

log = logging.getLogger(__name__)

_REFUSED: Final = {
    "exec": "plugins are not started here",
    "auth-provider": "plugins are not started here",
    "username": "API servers take no passwords any more",
    "as": "this program acts for itself",
}
_INSTEAD: Final = (
    "use client-certificate and client-key, token, or tokenFile, or run it in a Pod with a service account"
)


class _Section:
    """A part of the file, with the words for what is wrong with it."""

    def __init__(self, file: Path, name: str, values: object) -> None:
        self.file, self.name = file, name
        if not isinstance(values, Mapping):
            raise self.wrong("", values, "expected a mapping")
        self.values: Mapping[str, Any] = values

    def wrong(self, field: str, value: object, why: str) -> CredentialsError:
        where = f"{self.name}.{field}" if field and self.name else field or self.name or "the whole"
        return CredentialsError(f"kubeconfig {self.file}: {where}: {value!r}: {why}")

    def text(self, field: str) -> str:
        """A text; "" where there is none."""
        value = self.values.get(field)
        if value is not None and not isinstance(value, str):
            raise self.wrong(field, value, "expected text")
        return value or ""

    def path(self, field: str) -> Path | None:
        """A file, relative to the kubeconfig."""
        text = self.text(field)
        return self.file.parent / text if text else None

    def data(self, field: str) -> bytes:
        """Base64; b"" where there is none."""
        text = self.text(field)
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise self.wrong(field, f"{text[:8]}...", f"is not base64: {error}") from None

    def entry(self, field: str, name: str, part: str) -> _Section:
        """The named entry of a list: clusters, users, contexts."""
        for one in self.values.get(field) or ():
            if isinstance(one, Mapping) and one.get("name") == name:
                return _Section(self.file, f"{field}[{name}]", one.get(part) or {})
        raise self.wrong(field, name, "is not in it")


def from_file(file: Path) -> Endpoint:
    """The endpoint of a kubeconfig's current context. CredentialsError names file, field, and what to do."""
    whole = _Section(file, "", _load(file))
    context = whole.entry("contexts", whole.text("current-context"), "context")
    cluster = whole.entry("clusters", context.text("cluster"), "cluster")
    user = whole.entry("users", context.text("user"), "user")
    for field, why in _REFUSED.items():
        if user.values.get(field):
            raise user.wrong(field, "...", f"{why}: {_INSTEAD}")
    server = cluster.text("server")
    if not server.startswith(("https://", "http://")):
        raise cluster.wrong("server", server, "expected https://HOST:PORT")
    stated = cluster.text("proxy-url") or None
    secure = server.startswith("https://")
    tls = _Tls(cluster, user) if secure else None
    return Endpoint(
        server=server,
        tls=tls.first() if tls else None,
        authorization=_authorization(user),
        tls_server_name=cluster.text("tls-server-name") or None,
        proxy=proxy_for(server, stated),
        renew_tls=tls.renewed if tls and tls.renews else None,
    )


def _load(file: Path) -> object:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise CredentialsError(f"kubeconfig {file}: cannot be read: {error}") from None


def _authorization(user: _Section) -> Callable[[], str] | None:
    file, token = user.path("tokenFile"), user.text("token")
    if file is not None:
        return lambda: f"Bearer {file.read_text(encoding='utf-8').strip()}"
    return (lambda: f"Bearer {token}") if token else None


@dataclass(frozen=True, slots=True)
class _Part:
    """PEM in a file, or in the kubeconfig itself."""

    file: Path | None
    data: bytes

    @classmethod
    def of(cls, section: _Section, field: str) -> _Part | None:
        data, file = section.data(f"{field}-data"), section.path(field)
        return cls(None if data else file, data) if data or file else None

    def signature(self) -> tuple[int, ...]:
        if self.file is None:
            return ()
        status = self.file.stat()
        return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    @contextmanager
    def path(self) -> Iterator[str]:
        """Where OpenSSL can read it; what is inline gets no file on a disk."""
        if self.file is not None:
            yield str(self.file)
            return
        fd = os.memfd_create("pem", os.MFD_CLOEXEC)
        try:
            os.write(fd, self.data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)


class _Tls:
    """Contexts for a cluster and a user; a new one each time the user's certificate was renewed."""

    def __init__(self, cluster: _Section, user: _Section) -> None:
        self._cluster, self._user = cluster, user
        self._authority = _Part.of(cluster, "certificate-authority")
        self._certificate = _Part.of(user, "client-certificate")
        self._key = _Part.of(user, "client-key")
        if (self._certificate is None) != (self._key is None):
            raise user.wrong("client-certificate", "...", "and client-key: both or none")
        self._seen: tuple[int, ...] = ()
        self.renews = any(part is not None and part.file for part in (self._certificate, self._key))

    def first(self) -> ssl.SSLContext:
        try:
            self._seen = self._signature()
            return self._context()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise CredentialsError(f"kubeconfig {self._user.file}: certificates: {error}") from None

    def renewed(self) -> ssl.SSLContext | None:
        """None: nothing new, or not yet a certificate and a key that fit."""
        try:
            seen = self._signature()
            if seen == self._seen:
                return None
            context = self._context()
        except OSError as error:
            log.warning(
                "certificate unread kubeconfig=%s error=%r: the old one stays", self._user.file, error
            )
            return None
        self._seen = seen
        log.info("certificate renewed in=%s", self._user.file)
        return context

    def _signature(self) -> tuple[int, ...]:
        parts = [part.signature() for part in (self._certificate, self._key) if part is not None]
        return tuple(number for part in parts for number in part)

    def _context(self) -> ssl.SSLContext:
        authority = self._authority
        context = trusting(
            str(authority.file) if authority and authority.file else None,
            data=authority.data.decode("ascii") if authority and authority.data else None,
            verify=self._cluster.values.get("insecure-skip-tls-verify") is not True,
        )
        if self._certificate is not None and self._key is not None:
            with self._certificate.path() as certificate, self._key.path() as key:
                context.load_cert_chain(certificate, key)
        return context
