"""Address and credentials of the API server: kubeconfig files, in-cluster configuration.

Read by `http.transport`. `kubeconfig` finds cluster and user, `tokens` provides the Authorization
header, `execplugin` runs the plugins of cloud providers. Client certificates are read at the start
and by `reload`. Tokens are renewed while requests are sent, and no token is used for longer than
`_RENEW_AFTER_S` without another read of its source.
"""

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bindery.kube.access import execplugin, kubeconfig
from bindery.kube.access.kubeconfig import Context, Entry, read_file
from bindery.kube.access.tokens import (
    AuthProvider,
    ExecPlugin,
    Fixed,
    TokenFile,
    TokenSource,
    fixed_header,
)
from bindery.kube.errors import ConfigurationError

# Not structlog, whose import takes too long for a short command; its formatter also writes the
# records of `logging`.
_log = logging.getLogger(__name__)

_RENEW_AFTER_S = 60.0
"""Seconds until a ServiceAccount's token is read again; a token lives for an hour."""

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory of `token` and `ca.crt` in a pod."""

_DEFAULT_NAMESPACE: Final = "default"
"""Namespace that kubectl uses by default."""


@dataclass(frozen=True)
class _Access:
    """A server, and the user's credentials for the server."""

    server: str
    tokens: TokenSource
    tls: ssl.SSLContext | None = None
    proxy: str | None = None
    tls_server_name: str | None = None


@dataclass(frozen=True)
class ServerAddress:
    """How an API server is reached, without any user: for tokens of other users."""

    server: str
    tls: ssl.SSLContext | None
    proxy: str | None
    tls_server_name: str | None

    @classmethod
    def load(cls, path: Path | None, context: str | None = None) -> "ServerAddress":
        """Read the address; `path` and `context` as in `Credentials.load`.

        Raises:
            ConfigurationError: no usable configuration was found.
        """
        access = _in_cluster() if path is None and context is None else None
        if access is not None:
            return cls(access.server, access.tls, access.proxy, access.tls_server_name)
        cluster = kubeconfig.read(path, context).cluster
        server = _server(cluster, has_pair=False)
        tls = _tls_context(cluster) if server.startswith("https:") else None
        proxy = cluster.text("proxy-url") or None
        return cls(server, tls, proxy, cluster.text("tls-server-name") or None)


class Credentials:
    """The address of an API server, with the TLS context and the Authorization header."""

    def __init__(
        self, access: _Access, header: str | None, origin: tuple[Path | None, str | None] | None
    ) -> None:
        self._tokens = access.tokens
        self._origin = origin  # kubeconfig and context; None in a cluster
        self._renewing = asyncio.Lock()
        self._renew_at_s = asyncio.get_running_loop().time() + _RENEW_AFTER_S
        self.server = access.server
        """`https://host:port`, without a slash at the end."""
        self.proxy = access.proxy
        self.tls_server_name = access.tls_server_name
        self.tls = access.tls
        self.authorization = header
        """The header's value since the last `renew`; None for client certificates."""
        self.reloaded: list[Callable[[], None]] = []
        """Called after each `reload`: connections have the old certificate."""

    @classmethod
    async def load(cls, kubeconfig: Path | None, context: str | None = None) -> "Credentials":
        """Read `kubeconfig`, else the in-cluster configuration, else the default kubeconfig.

        `context` is the name of a context in the kubeconfig; default: the current context.

        Raises:
            ConfigurationError: no usable configuration was found.
        """
        origin = None
        access = _in_cluster() if kubeconfig is None and context is None else None
        if access is None:
            origin = (kubeconfig, context)
            access = await _by_kubeconfig(*origin)
        return cls(access, await access.tokens.header(), origin)

    @classmethod
    def of_token(cls, address: ServerAddress, token: str) -> "Credentials":
        """Return the credentials of the user with `token`, and of no other."""
        source = Fixed(f"Bearer {token}")
        access = _Access(
            address.server, source, address.tls, address.proxy, address.tls_server_name
        )
        return cls(access, f"Bearer {token}", None)

    @property
    def due(self) -> bool:
        """Whether to read the token's source again before the next request."""
        now_s = asyncio.get_running_loop().time()
        return self.authorization is not None and now_s >= self._renew_at_s

    async def renew(self, *, rejected: str | None = None) -> None:
        """Read the token's source again; `rejected` is the header that got a 401, if any.

        If the source fails, the old token stays, and the server decides whether it is still valid.
        """
        async with self._renewing:
            if rejected is not None and rejected != self.authorization:
                return  # another task has renewed the token meanwhile
            if rejected is None and not self.due:
                return
            self._renew_at_s = asyncio.get_running_loop().time() + _RENEW_AFTER_S
            try:
                if rejected is not None and self._origin is not None:
                    self._tokens = (await _by_kubeconfig(*self._origin)).tokens
                self.authorization = await self._tokens.header()
            except ConfigurationError as error:
                _log.warning("token not renewed: %s", error)

    async def reload(self) -> None:
        """Read the client certificate and key of the kubeconfig again, for new connections.

        Raises:
            ConfigurationError: they cannot be read, or do not belong together; the old ones stay.
        """
        if self.tls is None or self._origin is None:
            return
        context = kubeconfig.read(*self._origin)
        pair, _ = await _identity(context)
        if pair is None or context.user is None:
            return
        # A pair that does not fit would leave the context with one half of it.
        _load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pair, context.user)
        _load_pair(self.tls, pair, context.user)
        for replace in self.reloaded:
            replace()


def default_namespace(path: Path | None, context: str | None = None) -> str:
    """Return the namespace that kubectl would use: from the context, or from this process's pod.

    `path` and `context` as in `Credentials.load`.

    Raises:
        ConfigurationError: no usable configuration was found.
    """
    if path is None and context is None and _in_cluster() is not None:
        own = os.environ.get("POD_NAMESPACE", "")
        file = _SERVICE_ACCOUNT / "namespace"
        if not own and file.is_file():
            own = read_file(file, ConfigurationError).decode(errors="replace").strip()
        return own or _DEFAULT_NAMESPACE
    return kubeconfig.read(path, context).namespace or _DEFAULT_NAMESPACE


def _in_cluster() -> _Access | None:
    """Return the in-cluster configuration of a pod; None outside of a cluster."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    authority, token = _SERVICE_ACCOUNT / "ca.crt", _SERVICE_ACCOUNT / "token"
    if not host or not port or not authority.is_file() or not token.is_file():
        return None
    pem = read_file(authority, lambda problem: ConfigurationError(f"service account: {problem}"))
    try:
        tls = ssl.create_default_context(cadata=pem.decode())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"service account: {authority}: {error}") from error
    bracketed = f"[{host}]" if ":" in host else host
    return _Access(f"https://{bracketed}:{port}", TokenFile(token), tls)


async def _by_kubeconfig(path: Path | None, name: str | None) -> _Access:
    context = kubeconfig.read(path, name)
    cluster, user = context.cluster, context.user
    pair, tokens = await _identity(context)
    server = _server(cluster, has_pair=pair is not None)
    tls = None
    if server.startswith("https:"):
        tls = _tls_context(cluster)
        if pair is not None and user is not None:
            _load_pair(tls, pair, user)
    return _Access(
        server,
        tokens,
        tls,
        cluster.text("proxy-url") or None,
        cluster.text("tls-server-name") or None,
    )


def _server(cluster: Entry, *, has_pair: bool) -> str:
    """Return the address of `cluster`; `has_pair`: whether its user has a certificate."""
    server = cluster.text("server").rstrip("/")
    if not server:
        raise cluster.error("there is no server")
    if "://" not in server:
        return f"{'https' if has_pair or _knows_tls(cluster) else 'http'}://{server}"
    return server


async def _identity(context: Context) -> tuple[bytes | None, TokenSource]:
    """Return the user's certificate and key in one PEM, if there are any, and the source of tokens.

    Raises:
        ConfigurationError: a file or a plugin that the kubeconfig names cannot be used.
    """
    user = context.user
    if user is None:
        return None, Fixed(None)
    if user.value.get("auth-provider"):
        return None, AuthProvider(user, context)
    if user.value.get("exec"):
        given = await execplugin.ask(user, context)
        pem = f"{given.client_certificate_data}\n{given.client_key_data}".strip()
        return pem.encode() or None, ExecPlugin(user, context, given)
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if (certificate is None) != (key is None):
        raise user.error("client-certificate and client-key go together")
    pair = None if certificate is None or key is None else certificate + b"\n" + key
    path = user.path("tokenFile")
    return pair, Fixed(fixed_header(user)) if path is None else TokenFile(path)


def _knows_tls(cluster: Entry) -> bool:
    """Return whether `cluster` configures TLS; then a server without a scheme uses https."""
    names = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")
    return any(cluster.value.get(name) for name in names)


def _tls_context(cluster: Entry) -> ssl.SSLContext:
    """Return a context that trusts the cluster's authority, or the machine's if it names none."""
    authority = cluster.content("certificate-authority")
    try:
        context = ssl.create_default_context(
            cadata=None if authority is None else authority.decode()
        )
    except (OSError, ValueError) as error:
        raise cluster.error(f"certificate-authority: no certificate in PEM ({error})") from error
    if cluster.value.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_pair(context: ssl.SSLContext, pem: bytes, user: Entry) -> None:
    try:
        load_pem(context, pem)
    except (OSError, ValueError) as error:
        text = f"client-certificate and client-key: no matching pair in PEM ({error})"
        raise user.error(text) from error


def load_pem(context: ssl.SSLContext, pem: bytes) -> None:
    """Load the certificate and key in `pem` into `context`; `ssl` reads them only from a file.

    Raises:
        OSError, ValueError: they are no matching pair, or no temporary file can be written.
    """
    with tempfile.NamedTemporaryFile(prefix="bindery-") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
