"""A TLS certificate of one's own, made anew at each start, as kubelet and controllers have it.

Who connects cannot verify it: it keeps what is sent from those who only listen.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

_LIFETIME: Final = dt.timedelta(days=3650)
_EARLIER: Final = dt.timedelta(days=1)
"""Clocks of others are late."""


class Certificate(NamedTuple):
    """A private key and its certificate, PEM; the certificate is its own authority."""

    key: bytes
    certificate: bytes


def server_context(name: str, host: str, folder: Path) -> ssl.SSLContext:
    """For a server of TLS 1.2 and later that clients know by this name and IP address; see made, context."""
    return context(made(name, host), folder)


def made(name: str, host: str) -> Certificate:
    """A new one. host: "" or localhost: by the name only."""
    from cryptography import x509  # 9 MB, for who serves TLS
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])
    names: list[x509.GeneralName] = [x509.DNSName(name)]
    if host not in ("", "localhost"):
        names.append(x509.IPAddress(ipaddress.ip_address(host)))
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return Certificate(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain), certificate.public_bytes(pem)
    )


def context(own: Certificate, folder: Path | None = None) -> ssl.SSLContext:
    """For a server of TLS 1.2 and later.

    folder: where the key is written, for a moment and for its owner alone: OpenSSL takes it from a file.
    None: where temporary files are.
    """
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tls-") as file:  # mode 0600
        file.write(own.key + own.certificate)
        file.flush()
        found.load_cert_chain(file.name)
    return found
