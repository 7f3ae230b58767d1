"""Where the API server is, and how it is made to trust us: a kubeconfig, or a Pod's service account.

Kubeconfigs go through the `kubernetes` package, which knows exec plugins, token files and OIDC; it is
imported only then, and reads client certificates once: a process that is given new ones is restarted. It
takes 58 MB: adapters.kubernetes.kubeconfig does without it and without plugins, and follows what is renewed.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class CredentialsError(Exception):
    """No usable kubeconfig or service account; the message names the file and what to do."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An API server. `authorization` makes the Authorization header's value, and may read files or start a
    plugin; None where a client certificate is enough. `renew_tls`: a context with a newer client certificate
    than the last one, None where there is none; it reads files, too.
    """

    server: str
    tls: ssl.SSLContext | None = None
    authorization: Callable[[], str] | None = None
    tls_server_name: str | None = None
    proxy: str | None = None
    renew_tls: Callable[[], ssl.SSLContext | None] | None = None


def from_kubeconfig(path: Path | None = None, context: str | None = None) -> Endpoint:
    """The endpoint of a kubeconfig's context; by default kubectl's file and the current context."""
    from kubernetes import client, config

    named = path or os.environ.get("KUBECONFIG") or config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    configuration = client.Configuration()
    try:
        config.load_kube_config(str(named), context, configuration)  # type: ignore[no-untyped-call]
        tls = _tls(configuration) if configuration.host.startswith("https") else None
    # The package lets through whatever a malformed file made its parser, its plugins or OpenSSL raise.
    except Exception as error:
        raise CredentialsError(f"kubeconfig {named}, context {context or '(current)'}: {error}") from error
    return Endpoint(
        server=configuration.host,
        tls=tls,
        authorization=_authorization(configuration),
        tls_server_name=configuration.tls_server_name or None,
        proxy=proxy_for(configuration.host, configuration.proxy),
    )


def in_cluster(root: Path = _SERVICE_ACCOUNT) -> Endpoint:
    """The endpoint of the Pod this runs in; the token is read again when it is renewed."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    token, authority = root / "token", root / "ca.crt"
    if not host or not port or not token.is_file():
        raise CredentialsError(
            f"not in a Pod with a service account: KUBERNETES_SERVICE_HOST={host!r},"
            f" KUBERNETES_SERVICE_PORT={port!r}, {token}; elsewhere give --kubeconfig"
        )
    return Endpoint(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=trusting(str(authority)),
        authorization=lambda: f"Bearer {token.read_text().strip()}",
    )


def trusting(authority: str | None = None, *, data: str | None = None, verify: bool = True) -> ssl.SSLContext:
    """Trusts the authorities of a file, or of PEM text, or those of the system. OSError, ssl.SSLError."""
    context = ssl.create_default_context(cafile=authority, cadata=data)
    # Cluster authorities often lack the extensions that Python 3.13 began to demand and Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _tls(configuration: Any) -> ssl.SSLContext:
    context = trusting(configuration.ssl_ca_cert, verify=configuration.verify_ssl)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _authorization(configuration: Any) -> Callable[[], str] | None:
    def header() -> str:
        # The package renews an expired token of a plugin inside this call.
        return configuration.get_api_key_with_prefix("BearerToken") or ""

    return header if configuration.api_key.get("BearerToken") else None


def proxy_for(server: str, stated: str | None) -> str | None:
    """The kubeconfig's proxy-url, else the environment's proxy; none for loopback, as kubectl has it."""
    address = urlsplit(server)
    host = address.hostname or ""
    from_environment = getproxies()
    if host in _LOOPBACK or proxy_bypass(host):
        return None if stated in from_environment.values() else stated
    return stated or from_environment.get(address.scheme)
