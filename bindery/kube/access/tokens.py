"""Sources of the Authorization header, which renew it when a token has expired.

Used by `access.credentials`. Each way of naming a user in a kubeconfig has one source.
"""

import base64
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

from bindery.kube.access import execplugin
from bindery.kube.access.execplugin import Credential
from bindery.kube.access.kubeconfig import Context, Entry, read_file
from bindery.kube.errors import ConfigurationError

_BEFORE_END_S: Final = 60.0
"""Seconds before the end of a plugin's token at which a new one is requested."""


class TokenSource(Protocol):
    """Provides the current header."""

    async def header(self) -> str | None:
        """Return the value of the Authorization header; None for no header.

        Raises:
            ConfigurationError: the source fails.
        """
        ...


class Fixed:
    """A header that never changes."""

    def __init__(self, header: str | None) -> None:
        self._header = header

    async def header(self) -> str | None:
        """Return the header."""
        return self._header


class TokenFile:
    """A token file renewed by another process, such as a ServiceAccount's token."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def header(self) -> str | None:
        """Return the current token in the file."""
        raw = read_file(self._path, lambda problem: ConfigurationError(f"token file {problem}"))
        token = raw.decode(errors="replace").strip()
        if not token:
            raise ConfigurationError(f"token file {self._path}: it is empty")
        return f"Bearer {token}"


class ExecPlugin:
    """A command that is run again when its token or certificate expires.

    If its output has no expiry, the command is run again only after its token was rejected, as in
    kubectl: then the kubeconfig is read again, which makes a new source.
    """

    def __init__(self, user: Entry, context: Context, credential: Credential) -> None:
        self._user, self._context, self._credential = user, context, credential

    async def header(self) -> str | None:
        """Return the plugin's token; None if the plugin provides certificates."""
        expires = self._credential.expires
        if expires is not None and time.time() >= expires - _BEFORE_END_S:
            self._credential = await execplugin.ask(self._user, self._context)
        token = self._credential.token
        return f"Bearer {token}" if token else None


class AuthProvider:
    """OpenID Connect and other providers of old kubeconfigs, through the `kubernetes` client.

    The client is imported only when needed, because the import takes more than a second.
    """

    def __init__(self, user: Entry, context: Context) -> None:
        self._user = user
        cluster = {**context.cluster.value}
        self._document = {
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": cluster.get("server", "")}}],
            "users": [{"name": "it", "user": {"auth-provider": user.value["auth-provider"]}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        self._loader: Any = None
        self._configuration: Any = None

    async def header(self) -> str | None:
        """Return the provider's token, renewed if it has expired."""
        config: Any = import_module("kubernetes.aio.config.kube_config")
        try:
            if self._loader is None:
                self._configuration = config.Configuration()
                self._loader = config.KubeConfigLoader(self._document)
            await self._loader.load_and_set(self._configuration)
        except (config.ConfigException, OSError, ValueError, KeyError) as error:
            raise self._user.error(f"auth-provider: {error}") from error
        header: str | None = self._configuration.api_key.get("BearerToken")
        return header


def fixed_header(user: Entry) -> str | None:
    """Return the header for a token, or for a name and password, in the kubeconfig itself."""
    token = user.text("token")
    if token:
        return f"Bearer {token.strip()}"
    name, password = user.text("username"), user.text("password")
    if name:
        return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"
    return None
