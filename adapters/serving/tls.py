"""TLS from files that others made; a certificate of one's own: adapters.own_certificate."""

from __future__ import annotations

import ssl
from pathlib import Path


def mutual(cert_file: Path, key_file: Path, client_ca_file: Path) -> ssl.SSLContext:
    """For a server that takes only clients with a certificate of that authority; PEM, the chain with it.

    OSError (ssl.SSLError is one) for files that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_file, key_file)
    context.load_verify_locations(client_ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
