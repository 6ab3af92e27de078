"""The webhook's certificate authority and certificates, and their renewal.

Pure; the time is passed in. Used by `rotation`, which keeps a `Bundle` in a Secret. Invariant: a
served certificate was signed by an authority that has been published in `authorities` for at least
`overlap_s`, so that the API server always trusts it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bindery.kube.access.pem import key_pem

AUTHORITIES: Final = "ca.crt"
AUTHORITY_KEY: Final = "ca.key"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
_PARTS: Final = (AUTHORITIES, AUTHORITY_KEY, CERTIFICATE, KEY)

_RENEW_AT: Final = 2 / 3
"""The fraction of a lifetime after which a certificate is renewed; the rest is a reserve."""
_AUTHORITY_NAME: Final = "bindery-webhook-ca"
_CLOCKS_DIFFER: Final = timedelta(minutes=5)


@dataclass(frozen=True)
class Lifetimes:
    """Lifetimes of certificates, in seconds."""

    authority_s: float = 5 * 365 * 86400.0
    certificate_s: float = 90 * 86400.0
    overlap_s: float = 600.0
    """Time for which a new authority is published before it signs, so that API servers and other
    replicas know it."""


@dataclass(frozen=True)
class Bundle:
    """The content of the Secret, in PEM."""

    authorities: str
    """Certificates of authorities, the newest first."""
    authority_key: str
    """The key of the newest authority."""
    certificate: str
    key: str

    @classmethod
    def of(cls, data: Mapping[str, str]) -> "Bundle":
        """Return the bundle in `data`; missing parts are empty."""
        return cls(*(data.get(name, "") for name in _PARTS))

    def data(self) -> dict[str, str]:
        """Return the bundle in the form of the Secret's data."""
        return dict(zip(_PARTS, astuple(self), strict=True))


def renewed(bundle: Bundle, hosts: Sequence[str], lifetimes: Lifetimes, now_s: float) -> Bundle:
    """Return `bundle` with due certificates renewed; all new if it is damaged.

    Args:
        bundle: the current bundle; may be empty or damaged.
        hosts: names and addresses by which the API server calls the webhook.
        lifetimes: lifetimes of new certificates.
        now_s: seconds since the epoch.
    """
    now = datetime.fromtimestamp(now_s, UTC)
    try:
        state = _State.of(bundle, now)
    except (ValueError, IndexError, TypeError, InvalidSignature):
        return _new(hosts, lifetimes, now)
    if _is_old(state.authorities[0], now):
        authority, key = _authority(lifetimes, now)
        kept = [authority, *(each for each in state.authorities if each.not_valid_after_utc > now)]
        state = _State(kept, key, state.certificate, state.key)
    signer_is_known = (now - _issued(state.authorities[0])).total_seconds() >= lifetimes.overlap_s
    is_signed_by_newest = state.certificate.issuer == state.authorities[0].subject
    is_due = _is_old(state.certificate, now) or not is_signed_by_newest
    if _hosts_of(state.certificate) != set(hosts) or (is_due and signer_is_known):
        certificate, key = _certificate(
            state.authorities[0], state.authority_key, hosts, lifetimes, now
        )
        state = _State(state.authorities, state.authority_key, certificate, key)
    return state.bundle()


def next_check_s(bundle: Bundle, lifetimes: Lifetimes, now_s: float) -> float:
    """Return the seconds until a certificate of `bundle` may be due."""
    found = x509.load_pem_x509_certificates((bundle.certificate + bundle.authorities).encode())
    due = [_renewal(each).timestamp() - now_s for each in found]
    due += [_issued(each).timestamp() + lifetimes.overlap_s - now_s for each in found]
    return min((seconds for seconds in due if seconds > 0), default=lifetimes.overlap_s)


@dataclass(frozen=True)
class _State:
    authorities: list[x509.Certificate]
    authority_key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def of(cls, bundle: Bundle, now: datetime) -> "_State":
        """Return the parsed content of `bundle`.

        Raises:
            ValueError, TypeError, InvalidSignature: `bundle` is damaged, has expired or does not
                match.
        """
        authorities = x509.load_pem_x509_certificates(bundle.authorities.encode())
        authority_key, key = _load_key(bundle.authority_key), _load_key(bundle.key)
        certificate = x509.load_pem_x509_certificate(bundle.certificate.encode())
        signer = next((a for a in authorities if a.subject == certificate.issuer), None)
        if (
            signer is None
            or min(signer.not_valid_after_utc, certificate.not_valid_after_utc) <= now
        ):
            raise ValueError("the served certificate is not signed by a trusted authority")
        certificate.verify_directly_issued_by(signer)
        for made, of in ((authority_key, authorities[0]), (key, certificate)):
            if made.public_key() != of.public_key():
                raise ValueError("a key does not belong to its certificate")
        return cls(authorities, authority_key, certificate, key)

    def bundle(self) -> Bundle:
        """Return the content in PEM."""
        return Bundle(
            "".join(map(_pem, self.authorities)),
            key_pem(self.authority_key).decode(),
            _pem(self.certificate),
            key_pem(self.key).decode(),
        )


def _new(hosts: Sequence[str], lifetimes: Lifetimes, now: datetime) -> Bundle:
    authority, authority_key = _authority(lifetimes, now)
    certificate, key = _certificate(authority, authority_key, hosts, lifetimes, now)
    return _State([authority], authority_key, certificate, key).bundle()


def _authority(
    lifetimes: Lifetimes, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key, serial = ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number()
    # Each authority has a name of its own, which identifies it among several.
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"{_AUTHORITY_NAME}-{serial:x}"[:60])]
    )
    builder = (
        _builder(name, name, key, serial, lifetimes.authority_s, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return builder.sign(key, hashes.SHA256()), key


def _certificate(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    hosts: Sequence[str],
    lifetimes: Lifetimes,
    now: datetime,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key, serial = ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bindery-webhook")])
    names = x509.SubjectAlternativeName([_host(each) for each in hosts])
    builder = (
        _builder(name, authority.subject, key, serial, lifetimes.certificate_s, now)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    return builder.sign(authority_key, hashes.SHA256()), key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    serial: int,
    lifetime_s: float,
    now: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(seconds=lifetime_s))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _hosts_of(certificate: x509.Certificate) -> set[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(each.value) for each in found}


def _issued(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + _CLOCKS_DIFFER


def _renewal(certificate: x509.Certificate) -> datetime:
    return _issued(certificate) + _RENEW_AT * (
        certificate.not_valid_after_utc - _issued(certificate)
    )


def _is_old(certificate: x509.Certificate, now: datetime) -> bool:
    return now >= _renewal(certificate)


def _load_key(text: str) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(text.encode(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the key is of another kind")
    return key


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
