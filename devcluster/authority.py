"""The certificate authority for kubelets, and for the API server as their client."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME: Final = timedelta(days=30)
_CLOCKS_DIFFER: Final = timedelta(minutes=5)


@dataclass(frozen=True)
class Authority:
    """Files, in PEM, of the authority and of one certificate signed by it."""

    certificate: Path
    key: Path
    client_certificate: Path
    """Certificate with which the API server calls kubelets."""
    client_key: Path


def make(directory: Path) -> Authority:
    """Make an authority; write its files into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    files = Authority(*(directory / each for each in ("ca.crt", "ca.key", "api.crt", "api.key")))
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("bindery-nodes")
    authority = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    client_key = ec.generate_private_key(ec.SECP256R1())
    client = (
        _builder(_name("kube-apiserver", "system:masters"), name, client_key.public_key())
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    for path, made in ((files.certificate, authority), (files.client_certificate, client)):
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    for path, secret in ((files.key, key), (files.client_key, client_key)):
        path.touch(mode=0o600)
        path.write_bytes(
            secret.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
    return files


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _LIFETIME)
    )


def _name(common: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)
