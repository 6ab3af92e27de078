"""Private keys as text; apart from `credentials`, which most processes load without this."""

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey


def key_pem(key: EllipticCurvePrivateKey | RSAPrivateKey) -> bytes:
    """Return a private key in PEM, as PKCS #8 and not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
