"""Certificate signing requests of the node: names, usages, and whether a certificate has them."""

import base64
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.x509.oid import NameOID

from bindery.nodecore.addresses import Address
from bindery.nodecore.errors import NodeCoreError

CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
NAME_PREFIX: Final = "node-csr-"
"""Of the first request, whose name follows from its content so that it is found again."""

_CLIENT_AUTH: Final = "client auth"
_SERVER_AUTH: Final = "server auth"
_GROUP: Final = "system:nodes"

PrivateKey = EllipticCurvePrivateKey | RSAPrivateKey


class CertificateError(NodeCoreError):
    """A certificate or key cannot be read or kept."""


@dataclass(frozen=True)
class Template:
    """What a certificate is requested for.

    Attributes:
        common_name: the node's user.
        organizations: the user's groups.
    """

    common_name: str
    organizations: tuple[str, ...] = (_GROUP,)
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Leaf:
    """The content of a certificate; times are seconds since the epoch."""

    template: Template
    not_before_s: float
    not_after_s: float

    def is_expired(self, now_s: float) -> bool:
        """Return whether the validity is over."""
        return now_s > self.not_after_s

    def satisfies(self, wanted: Template) -> bool:
        """Return whether the certificate has all that is wanted; it may have more."""
        mine = self.template
        return mine.common_name == wanted.common_name and (
            set(wanted.organizations) <= set(mine.organizations)
            and set(wanted.dns_names) <= set(mine.dns_names)
            and set(wanted.ip_addresses) <= set(mine.ip_addresses)
        )


def client_template(node: str) -> Template:
    """Return what the node's client certificate is for."""
    return Template(f"system:node:{node}")


def serving_template(
    node: str, addresses: Iterable[Address], *, allow_dns_only: bool = False
) -> Template | None:
    """Return what the node's serving certificate is for, None while it has no IP address.

    `allow_dns_only`: whether a DNS name is enough (AllowDNSOnlyNodeCSR).
    """
    dns_names, ips = names_of(addresses)
    if not ips and not (allow_dns_only and dns_names):
        return None
    return Template(f"system:node:{node}", dns_names=dns_names, ip_addresses=ips)


def names_of(addresses: Iterable[Address]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the DNS names and the IP addresses of a node, each sorted."""
    dns_names: set[str] = set()
    ips: set[str] = set()
    for one in addresses:
        ip = _ip(one.address)
        if ip is not None and one.kind in ("Hostname", "InternalIP", "ExternalIP"):
            ips.add(ip)
        elif one.address and one.kind in ("Hostname", "InternalDNS", "ExternalDNS"):
            dns_names.add(one.address)
    return tuple(sorted(dns_names)), tuple(sorted(ips))


def usages(*, is_client: bool, is_rsa: bool = False) -> tuple[str, ...]:
    """Return the usages to ask for; only RSA keys are used to encrypt other keys."""
    auth = _CLIENT_AUTH if is_client else _SERVER_AUTH
    return ("digital signature", *(("key encipherment",) if is_rsa else ()), auth)


def digested_name(key: PrivateKey, template: Template, wanted: Sequence[str]) -> str:
    """Return the name of the first request, which follows from key, names and usages.

    Source: kubelet, certificate bootstrap (a SHA-512/256 over parts in base64, each with "|").
    """
    digest = hashes.Hash(hashes.SHA512_256())
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    texts = (template.common_name, *template.organizations, *wanted)
    for part in (public, *(text.encode() for text in texts)):
        digest.update(_base64(part) + b"|")
    return NAME_PREFIX + _base64(digest.finalize()).decode()


def request_pem(key: PrivateKey, template: Template) -> bytes:
    """Return the certificate signing request in PEM."""
    subject = [
        *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in template.organizations),
        x509.NameAttribute(NameOID.COMMON_NAME, template.common_name),
    ]
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    names: list[x509.GeneralName] = [x509.DNSName(one) for one in template.dns_names]
    names += [x509.IPAddress(ipaddress.ip_address(one)) for one in template.ip_addresses]
    if names:
        request = request.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def leaf_of(pem: bytes) -> Leaf:
    """Return the first certificate in `pem`; raises CertificateError if there is none."""
    try:
        certificate = x509.load_pem_x509_certificates(pem)[0]
    except ValueError as error:
        raise CertificateError(f"unable to parse certificate data: {error}") from error
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])

    def subject(oid: x509.ObjectIdentifier) -> tuple[str, ...]:
        return tuple(str(one.value) for one in certificate.subject.get_attributes_for_oid(oid))

    return Leaf(
        Template(
            "".join(subject(NameOID.COMMON_NAME)[-1:]),
            subject(NameOID.ORGANIZATION_NAME),
            tuple(names.get_values_for_type(x509.DNSName)),
            tuple(str(one) for one in names.get_values_for_type(x509.IPAddress)),
        ),
        certificate.not_valid_before_utc.astimezone(UTC).timestamp(),
        certificate.not_valid_after_utc.astimezone(UTC).timestamp(),
    )


def _ip(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def _base64(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")
