"""The TLS settings of the agent's port.

Without a certificate of an authority, the server has one that it has signed itself, as a kubelet
without `serverTLSBootstrap`. The API server then connects without checking it.
"""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bindery.kube.access.credentials import load_pem
from bindery.kube.access.pem import key_pem
from bindery.nodeagent.containers.errors import ContainerError

_LIFE: Final = timedelta(days=365)
_CLOCKS_DIFFER: Final = timedelta(hours=1)


class ServingError(ContainerError):
    """Raised for a file of certificates that cannot be used."""


def context_of(client_authority: Path | None) -> ssl.SSLContext:
    """Return settings without a certificate; callers may show one of `client_authority`.

    Raises:
        ServingError: the authority cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if client_authority is not None:
        try:
            context.load_verify_locations(client_authority)
        except (OSError, ssl.SSLError) as error:
            raise ServingError(f"{client_authority}: no certificates: {error}") from error
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def use_own(context: ssl.SSLContext, name: str, address: str, now_s: float) -> None:
    """Serve with a new certificate for a name and an address, which no authority has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.fromtimestamp(now_s, UTC)
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address(address))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    load_pem(context, certificate.public_bytes(serialization.Encoding.PEM) + key_pem(key))
