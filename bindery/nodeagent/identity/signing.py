"""CertificateSigningRequests of the node: written, found again and read.

Source: `certificates.k8s.io/v1`. kube-controller-manager approves those of client certificates;
those of serving certificates are approved by an administrator or a controller of theirs.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec
from cryptography import x509

from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import Condition, KubeObject
from bindery.nodeagent.identity.errors import RequestEndedError, RequestOutcome
from bindery.nodecore.certificates.bootstrap import KEY_FILE
from bindery.nodecore.certificates.requests import (
    CLIENT_SIGNER,
    SERVING_SIGNER,
    PrivateKey,
    Template,
    digested_name,
    request_pem,
    usages,
)
from bindery.nodecore.certificates.store import CLIENT_PREFIX, SERVER_PREFIX

_REFUSALS: Final = ("Denied", "Failed")


class SigningSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`CertificateSigningRequestSpec`; `request` is PEM in base64."""

    request: str = ""


class SigningStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`CertificateSigningRequestStatus`; `certificate` is PEM in base64."""

    certificate: str = ""
    conditions: list[Condition] | None = None


class SigningRequest(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """`CertificateSigningRequest`."""

    spec: SigningSpec = msgspec.field(default_factory=SigningSpec)
    status: SigningStatus = msgspec.field(default_factory=SigningStatus)


SIGNING_REQUESTS: Final = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False,
    SigningRequest,
)  # fmt: skip


@dataclass(frozen=True)
class CertificateKind:
    """A certificate that a node has.

    Attributes:
        name: for people and metrics.
        prefix: how the names of its files start.
        key_file: the file with the key of an open request.
    """

    name: str
    prefix: str
    key_file: str
    signer: str
    is_client: bool


CLIENT: Final = CertificateKind("client", CLIENT_PREFIX, KEY_FILE, CLIENT_SIGNER, is_client=True)
SERVING: Final = CertificateKind(
    "serving", SERVER_PREFIX, "kubelet-server.key.tmp", SERVING_SIGNER, is_client=False
)


@dataclass(frozen=True)
class WantedCertificate:
    """A request for a certificate."""

    kind: CertificateKind
    key: PrivateKey
    template: Template

    @cached_property
    def name(self) -> str:
        """The name of the object; the same for the same key and template."""
        return digested_name(self.key, self.template, self._usages)

    def body(self) -> dict[str, Any]:
        """Return the object."""
        return {
            "apiVersion": SIGNING_REQUESTS.api_version,
            "kind": SIGNING_REQUESTS.kind,
            "metadata": {"name": self.name},
            "spec": {
                "request": base64.b64encode(request_pem(self.key, self.template)).decode(),
                "signerName": self.kind.signer,
                "usages": self._usages,
            },
        }

    def is_request_of(self, found: SigningRequest) -> bool:
        """Return whether `found` asks for a certificate of the same key."""
        try:
            request = x509.load_pem_x509_csr(base64.b64decode(found.spec.request))
        except (ValueError, binascii.Error):
            return False
        return request.public_key() == self.key.public_key()

    @property
    def _usages(self) -> tuple[str, ...]:
        return usages(is_client=self.kind.is_client)


class SigningApi(Protocol):
    """The API server's part of a request. Methods raise KubeError."""

    async def send(self, wanted: WantedCertificate) -> None:
        """Create the request, or find the one of an earlier attempt; raises RequestEndedError."""

    async def found(self, name: str) -> SigningRequest:
        """Return the request."""


class ServerSigning:
    """The API server; `client` returns the client that may ask for certificates now."""

    def __init__(self, client: Callable[[], Awaitable[Client]]) -> None:
        self._client = client

    async def send(self, wanted: WantedCertificate) -> None:
        """Create the request, or find the one of an earlier attempt."""
        client = await self._client()
        try:
            await client.create(SIGNING_REQUESTS, wanted.body())
        except AlreadyExistsError as error:
            if not wanted.is_request_of(await client.get(SIGNING_REQUESTS, wanted.name)):
                text = f"{wanted.name} exists and has another key"
                raise RequestEndedError(RequestOutcome.REFUSED, text) from error

    async def found(self, name: str) -> SigningRequest:
        """Return the request."""
        return await (await self._client()).get(SIGNING_REQUESTS, name)


def certificate_of(found: SigningRequest) -> bytes | None:
    """Return the certificate in PEM, None while it is not signed.

    Raises:
        RequestEndedError: the request was denied, or its signer failed.
    """
    for one in found.status.conditions or ():
        if one.type in _REFUSALS and one.status != "False":
            text = f"{one.type}: {one.reason}: {one.message}"
            raise RequestEndedError(RequestOutcome.REFUSED, text)
    try:
        return base64.b64decode(found.status.certificate) or None
    except (ValueError, binascii.Error) as error:
        raise RequestEndedError(
            RequestOutcome.UNUSABLE, f"the certificate is not base64: {error}"
        ) from error
