"""The key of the request that is open, in a file: a restart finds its request again."""

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bindery.kube.access.pem import key_pem
from bindery.nodecore.certificates.requests import PrivateKey
from bindery.nodecore.certificates.store import LinkedFiles, Pair

_CURVE = ec.SECP256R1()


class RequestKey:
    """The key in the file `name`. Methods raise OSError."""

    def __init__(self, files: LinkedFiles, name: str) -> None:
        self._files, self._name = files, name

    def key(self, current: Pair | None) -> PrivateKey:
        """Return the kept key, or a new one that is kept from now on.

        A process that was killed after it stored its certificate has left the key of `current`,
        and one that was killed while it wrote the key a part of it: neither is used.
        """
        kept = self._kept()
        if kept is not None and (current is None or key_pem(kept) != _key_pem_of(current)):
            return kept
        made = ec.generate_private_key(_CURVE)
        self._files.write(self._name, key_pem(made))
        return made

    def forget(self) -> None:
        """Remove the file: the next request has a new key."""
        if self._files.exists(self._name):
            self._files.remove(self._name)

    def _kept(self) -> PrivateKey | None:
        blob = self._files.read(self._name)
        return None if blob is None else _read(blob)


def _key_pem_of(pair: Pair) -> bytes | None:
    key = _read(pair.key)
    return None if key is None else key_pem(key)


def _read(blob: bytes) -> PrivateKey | None:
    try:
        key = serialization.load_pem_private_key(blob, password=None)
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, PrivateKey) else None
