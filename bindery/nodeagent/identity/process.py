"""The certificates of the node: the first one, their rotation, and their use.

The client certificate is for the agent's own calls, the serving certificate for its port.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from bindery.kube.access.credentials import Credentials
from bindery.kube.client import Client
from bindery.kube.environment import Environment
from bindery.kube.errors import ConfigurationError
from bindery.nodeagent.identity import kubeconfigs
from bindery.nodeagent.identity.errors import IdentityError
from bindery.nodeagent.identity.keys import RequestKey
from bindery.nodeagent.identity.rotating import CertificateLoop, Times
from bindery.nodeagent.identity.signing import (
    CLIENT,
    SERVING,
    CertificateKind,
    ServerSigning,
    SigningApi,
)
from bindery.nodecore.addresses import Address
from bindery.nodecore.certificates import requests
from bindery.nodecore.certificates.requests import CertificateError, Template
from bindery.nodecore.certificates.rotation import (
    TEMPLATE_PERIOD_S,
    CertificateManager,
    ConnectionWatcher,
    TransportAction,
)
from bindery.nodecore.certificates.store import (
    CertificateStore,
    DirectoryFiles,
    LinkedFiles,
    NoPairError,
    Pair,
)

EXIT_AFTER_S: Final = 300.0
"""How long the agent goes on without a certificate while the API server answers, as a kubelet."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class IdentityOptions:
    """How the node gets its certificates.

    Attributes:
        node: the node's name.
        bootstrap: the kubeconfig with the credentials for the first request.
        directory: where certificates and keys are kept.
        kubeconfig: the file that is written for the node's own credentials.
        user_agent: for the requests with the bootstrap credentials.
    """

    node: str
    bootstrap: Path
    directory: Path
    kubeconfig: Path
    user_agent: str

    @property
    def pem(self) -> Path:
        """The file with the current client certificate and its key."""
        return self.directory.absolute() / f"{CLIENT.prefix}-current.pem"


@dataclass(frozen=True)
class IdentitySurroundings:
    """What is outside of the certificates.

    Attributes:
        addresses: returns the addresses of the node.
    """

    environment: Environment
    addresses: Callable[[], Iterable[Address]]
    pause: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep)


class NodeIdentity:
    """The certificates of one node: `join`, then `use`, then `run`.

    Raises:
        IdentityError: the files are not as they should be.
    """

    def __init__(self, options: IdentityOptions, around: IdentitySurroundings) -> None:
        self._options, self._around = options, around
        self._times = Times(around.environment.now_s, around.pause)
        self._own: Client | None = None
        self._credentials: Credentials | None = None
        self._bootstrapping: Client | None = None
        self._context: ssl.SSLContext | None = None
        self.complain: Callable[[str], None] = lambda _: None
        """Called with a sentence about a request that was refused."""
        self.problem = ""
        """Why the agent has to end; empty while it need not."""
        try:
            kubeconfigs.check_own(options.kubeconfig, options.pem)
            files = DirectoryFiles(options.directory)
            template = requests.client_template(options.node)
            self._client = self._manager(files, CLIENT, lambda: template)
            self._serving = self._manager(
                files, SERVING, lambda: requests.serving_template(options.node, around.addresses())
            )
        except (CertificateError, OSError) as error:
            raise IdentityError(f"{options.directory}: {error}") from error
        self._wanted = template
        now_s = self._times.now_s()
        self._watcher = ConnectionWatcher(self._client.current(), now_s, EXIT_AFTER_S)
        self._loop = self._loop_of(
            CLIENT, self._client, files, ServerSigning(self._asking), self._client_signed
        )
        self._serving_loop = self._loop_of(
            SERVING, self._serving, files, ServerSigning(self._authenticated), self._serving_signed
        )

    async def join(self) -> None:
        """Get the first client certificate, if there is none, and write the kubeconfig.

        Raises:
            IdentityError: the kubeconfig cannot be written.
        """
        if not self._is_usable:
            log.info("certificate wanted", node=self._options.node,
                     credentials=str(self._options.bootstrap))  # fmt: skip
        try:
            while not self._is_usable:
                await self._loop.step()
                if not self._is_usable:
                    await self._times.pause(TEMPLATE_PERIOD_S)
        finally:
            await self._close_bootstrapping()
        try:
            kubeconfigs.write(self._options.kubeconfig, self._options.bootstrap, self._options.pem)
        except (ConfigurationError, OSError) as error:
            raise IdentityError(f"{self._options.kubeconfig}: {error}") from error

    def use(self, client: Client, credentials: Credentials) -> None:
        """Take the client that has the credentials of the kubeconfig; call it before `run`."""
        self._own, self._credentials = client, credentials

    async def run(self, stop: asyncio.Event) -> None:
        """Rotate the certificates, until they are lost and a new start would get others.

        Sets `problem` and `stop` then.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each.run()) for each in (self._loop, self._serving_loop)]
                await self._watch()
                for task in tasks:
                    task.cancel()
        finally:
            await self._close_bootstrapping()
        self.problem = "the client certificate has expired; the next start requests another"
        log.error("certificate lost", node=self._options.node)
        stop.set()

    def serve(self, context: ssl.SSLContext) -> None:
        """Let a server with `context` use the serving certificate, now and after each rotation.

        Until the first one is signed, the context keeps its own.
        """
        self._context = context
        self._load()

    @property
    def kubeconfig(self) -> Path:
        """The file with the node's own credentials; `join` writes it."""
        return self._options.kubeconfig

    @property
    def _is_usable(self) -> bool:
        """Whether there is a valid client certificate of this node."""
        pair = self._client.current()
        return pair is not None and pair.leaf.satisfies(self._wanted)

    async def _asking(self) -> Client:
        """Return the client that asks for client certificates: an expired one cannot."""
        if self._own is not None and self._is_usable:
            return self._own
        if self._bootstrapping is None:
            self._bootstrapping = await Client.connect(
                self._options.bootstrap, user_agent=self._options.user_agent
            )
        return self._bootstrapping

    async def _authenticated(self) -> Client:
        if self._own is None:
            raise ConfigurationError("the node has no credentials of its own yet")
        return self._own

    async def _close_bootstrapping(self) -> None:
        if self._bootstrapping is not None:
            client, self._bootstrapping = self._bootstrapping, None
            await client.close()

    async def _watch(self) -> None:
        """Renew connections whose certificate has changed, until there is no certificate."""
        while await self._check() is not TransportAction.EXIT:
            await self._times.pause(self._watcher.period_s)

    async def _check(self) -> TransportAction:
        before = self._watcher.pair
        action = self._watcher.check(
            self._client.current(),
            self._times.now_s(),
            is_server_healthy=self._client.is_server_healthy,
        )
        if action is TransportAction.CLOSE_ALL and self._credentials is not None:
            try:
                await self._credentials.reload()
            except ConfigurationError as error:
                self._watcher.pair = before  # the next check tries again
                log.warning("certificate not used yet", error=str(error))
        return action

    async def _client_signed(self, _: Pair) -> None:
        if self._credentials is not None:
            await self._close_bootstrapping()
            await self._check()

    async def _serving_signed(self, _: Pair) -> None:
        self._load()

    def _load(self) -> None:
        if self._context is None or self._serving.current() is None:
            return
        try:
            self._context.load_cert_chain(self._options.directory / f"{SERVING.prefix}-current.pem")
        except (OSError, ValueError) as error:
            log.warning("certificate not used", certificate=SERVING.name, error=str(error))

    def _complain(self, problem: str) -> None:
        self.complain(problem)

    def _manager(
        self, files: LinkedFiles, kind: CertificateKind, template: Callable[[], Template | None]
    ) -> CertificateManager:
        environment = self._around.environment
        store = CertificateStore(files, kind.prefix, environment.now_s)
        try:
            store.current()
        except NoPairError:
            pass
        except CertificateError as error:
            current = f"{kind.prefix}-current.pem"
            if not files.is_link(current):
                raise
            # A broken disk; what was signed once is signed again.
            log.warning("certificate unreadable", certificate=kind.name, error=str(error))
            files.remove(current)
        return CertificateManager(store, template, environment.now_s, environment.random.random)

    def _loop_of(
        self,
        kind: CertificateKind,
        manager: CertificateManager,
        files: LinkedFiles,
        api: SigningApi,
        on_signed: Callable[[Pair], Awaitable[None]],
    ) -> CertificateLoop:
        return CertificateLoop(
            kind,
            manager,
            RequestKey(files, kind.key_file),
            api,
            self._times,
            on_signed,
            self._complain,
        )
