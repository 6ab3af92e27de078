"""A certificate authority for tests: signs requests as kube-controller-manager does."""

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bindery.kube.access.pem import key_pem
from bindery.nodecore.certificates.requests import Template, request_pem

YEAR_S = 365 * 86400.0
START_S = 1_700_000_000.0
_USES = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class SigningAuthority:
    """Signs whatever is asked for."""

    def __init__(self) -> None:
        self._key = new_key()
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self._serial = 0
        self._certificate = (
            self._builder(self._name, self._key.public_key(), START_S, START_S + 99 * YEAR_S)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def sign(
        self, request: bytes, start_s: float = START_S, end_s: float = START_S + 90 * YEAR_S
    ) -> bytes:
        """Return the certificate of a request in PEM."""
        asked = x509.load_pem_x509_csr(request)
        made = self._builder(asked.subject, asked.public_key(), start_s, end_s)
        for extension in asked.extensions:
            made = made.add_extension(extension.value, extension.critical)
        made = made.add_extension(x509.ExtendedKeyUsage(_USES), critical=False)
        signed = made.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    def pair(self, template: Template) -> bytes:
        """Return a certificate and its key in one PEM."""
        key = new_key()
        return self.sign(request_pem(key, template)) + key_pem(key)

    def write(self, template: Template, file: Path) -> Path:
        file.write_bytes(self.pair(template))
        return file

    def _builder(
        self, subject: x509.Name, key: object, start_s: float, end_s: float
    ) -> x509.CertificateBuilder:
        self._serial += 1
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)  # type: ignore[arg-type]  # any key that a request can have
            .serial_number(self._serial)
            .not_valid_before(datetime.fromtimestamp(start_s, UTC))
            .not_valid_after(datetime.fromtimestamp(end_s, UTC))
        )
