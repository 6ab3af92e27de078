"""A signer that a test directs, and a clock that only its pauses move."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bindery.kube.errors import NotFoundError, UnreachableError
from bindery.kube.objects.watched import Condition, Meta
from bindery.nodeagent.identity.keys import RequestKey
from bindery.nodeagent.identity.rotating import CertificateLoop, Times
from bindery.nodeagent.identity.signing import (
    CLIENT,
    SigningRequest,
    SigningSpec,
    SigningStatus,
    WantedCertificate,
)
from bindery.nodecore.certificates.requests import Template, client_template, leaf_of
from bindery.nodecore.certificates.rotation import CertificateManager
from bindery.nodecore.certificates.store import CertificateStore, DirectoryFiles, LinkedFiles, Pair
from tests.signing import START_S, SigningAuthority

LIFE_S = 1000.0
NODE = client_template("node")


class FakeSigning:
    """The API server with its signer; `judge` decides about a request when it is looked at."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.authority = SigningAuthority()
        self.requests: dict[str, SigningRequest] = {}
        self.sent: list[str] = []
        self.times: list[float] = []
        """When requests were sent."""
        self.judge: Callable[[str], SigningStatus | None] = self.sign
        self.is_reachable = True
        self._now_s = now_s

    async def send(self, wanted: WantedCertificate) -> None:
        self.times.append(self._now_s())
        if not self.is_reachable:
            raise UnreachableError("no route")
        self.sent.append(wanted.name)
        spec = msgspec.convert(wanted.body()["spec"], SigningSpec)
        new = SigningRequest(metadata=Meta(name=wanted.name), spec=spec)
        self.requests.setdefault(wanted.name, new)

    async def found(self, name: str) -> SigningRequest:
        if name not in self.requests:
            raise NotFoundError(404, "NotFound", name)
        status = self.judge(name)
        if status is not None:
            self.requests[name] = msgspec.structs.replace(self.requests[name], status=status)
        return self.requests[name]

    def sign(self, name: str, life_s: float = LIFE_S, ago_s: float = 0.0) -> SigningStatus:
        request = base64.b64decode(self.requests[name].spec.request)
        now_s = self._now_s() - ago_s
        pem = self.authority.sign(request, now_s, now_s + life_s)
        return SigningStatus(certificate=base64.b64encode(pem).decode())

    def deny(self, _name: str) -> SigningStatus:
        denied = Condition(type="Denied", status="True", reason="Stranger", message="not known")
        return SigningStatus(conditions=[denied])


def wait(_name: str) -> None:
    """Decide nothing."""


@dataclass
class Node:
    """A node with one certificate; `start` is a new process on the same files."""

    directory: Path
    files: LinkedFiles = field(init=False)
    now: float = START_S
    template: Template | None = NODE
    complaints: list[str] = field(default_factory=list)
    signed: list[Pair] = field(default_factory=list)
    on_pause: Callable[[], None] = lambda: None
    draw: float = 0.0

    def __post_init__(self) -> None:
        self.files = DirectoryFiles(self.directory)
        self.server = FakeSigning(lambda: self.now)

    def start(self) -> None:
        """Start the process."""
        store = CertificateStore(self.files, CLIENT.prefix, lambda: self.now)
        self.manager = CertificateManager(
            store, lambda: self.template, lambda: self.now, lambda: self.draw
        )
        self.loop = CertificateLoop(
            CLIENT,
            self.manager,
            RequestKey(self.files, CLIENT.key_file),
            self.server,
            Times(lambda: self.now, self.pause),
            self._note,
            self.complaints.append,
        )

    async def pause(self, seconds: float) -> None:
        self.now += seconds
        self.on_pause()

    async def steps_until(self, end_s: float) -> None:
        """Let the loop run until the time `end_s`."""
        while self.now < end_s:
            await self.loop.step()
            await self.pause(1.0)

    @property
    def template_held(self) -> Template:
        """What the certificate in the files is for."""
        blob = self.files.read(f"{CLIENT.prefix}-current.pem")
        assert blob is not None
        return leaf_of(blob).template

    async def _note(self, pair: Pair) -> None:
        self.signed.append(pair)
