"""Where the API server is and who we are: kubeconfig files and in-cluster configuration.

Read by `bindery.kube.transport` through `kubernetes.aio.config`, which knows client certificates,
tokens, token files, OIDC and exec plugins. Client certificates are read once; tokens are renewed
while requests go out, and none is used for longer than `_RENEW_AFTER_S` without asking its source
again.
"""

import asyncio
import ssl
import time
from pathlib import Path
from typing import Any, Final

import structlog
import yaml
from kubernetes.aio import config as _untyped_config
from kubernetes.aio.client import Configuration

from bindery.kube.errors import UnreachableError

_config: Any = _untyped_config  # the library carries no annotations

_SOURCE_ERRORS: Final = (_config.ConfigException, OSError, ValueError, yaml.YAMLError)
"""What a kubeconfig or token that cannot be read raises."""

_log = structlog.get_logger()

_RENEW_AFTER_S = 60.0
"""The library rereads the ServiceAccount's token after as long; tokens live for an hour."""


class Credentials:
    """The address of an API server, the TLS context and the Authorization header for it."""

    def __init__(
        self, configuration: Any, loader: Any, kubeconfig: Path | None, context: str | None
    ) -> None:
        self._configuration = configuration
        self._loader = loader  # None in a cluster
        self._kubeconfig = kubeconfig
        self._context = context
        self._renewing = asyncio.Lock()
        self._renew_at_s = time.monotonic() + _RENEW_AFTER_S
        self.server: str = configuration.host.rstrip("/")
        """`https://host:port`, without a slash at the end."""
        self.proxy: str | None = configuration.proxy or None
        self.tls_server_name: str | None = configuration.tls_server_name or None
        self.tls = _tls_context(configuration) if self.server.startswith("https:") else None
        self.authorization: str | None = configuration.api_key.get("BearerToken")
        """The header's value, as of the last `renew`; None for client certificates."""

    @classmethod
    async def load(cls, kubeconfig: Path | None, context: str | None = None) -> "Credentials":
        """Read `kubeconfig`; without one, the cluster we run in, else the default kubeconfig.

        `context` names one of the kubeconfig's; default: its current one.

        Raises UnreachableError when there is no usable configuration.
        """
        configuration = Configuration()
        try:
            if kubeconfig is None and context is None and _load_in_cluster(configuration):
                return cls(configuration, None, None, None)
            loader = await _load_kubeconfig(kubeconfig, context, configuration)
        except _SOURCE_ERRORS as error:
            raise UnreachableError(f"no usable configuration: {error}") from error
        return cls(configuration, loader, kubeconfig, context)

    @property
    def due(self) -> bool:
        """Whether the token's source should be asked again before the next request."""
        return self.authorization is not None and time.monotonic() >= self._renew_at_s

    async def renew(self, *, rejected: str | None = None) -> None:
        """Ask the source of the token again; `rejected` is the header that got a 401, if any.

        A source that fails leaves the token as it is: the server decides whether it still counts.
        """
        async with self._renewing:
            if rejected is not None and rejected != self.authorization:
                return  # somebody else renewed it while we waited
            if rejected is None and not self.due:
                return
            self._renew_at_s = time.monotonic() + _RENEW_AFTER_S
            try:
                await self._ask_source(was_rejected=rejected is not None)
            except _SOURCE_ERRORS as error:
                _log.warning("token not renewed", error=str(error))
            self.authorization = self._configuration.api_key.get("BearerToken")

    async def _ask_source(self, *, was_rejected: bool) -> None:
        if self._loader is None:
            _load_in_cluster(self._configuration)
        elif was_rejected:
            self._loader = await _load_kubeconfig(
                self._kubeconfig, self._context, self._configuration
            )
        elif self._source_is_cheap():
            await self._loader.load_and_set(self._configuration)

    def _source_is_cheap(self) -> bool:
        # An exec plugin that names no expiry would run at every renewal: it is asked again only
        # when the server rejects what it gave, as kubectl does.
        user = self._loader._user  # noqa: SLF001  # the loader offers no public view
        return "exec" not in (user or {}) or hasattr(self._loader, "exec_plugin_expiry")


def _load_in_cluster(configuration: Any) -> bool:
    try:
        _config.load_incluster_config(client_configuration=configuration)
    except _config.ConfigException:
        return False
    return True


async def _load_kubeconfig(path: Path | None, context: str | None, configuration: Any) -> Any:
    return await _config.load_kube_config(
        config_file=str(path) if path is not None else None,
        context=context,
        client_configuration=configuration,
        persist_config=False,
    )


def _tls_context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
