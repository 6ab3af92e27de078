"""Where the Authorization header comes from, and comes from again when a token has ended.

Used by `access.credentials`, one source for each way in which a kubeconfig names a user.
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
"""A token of a plugin is asked for this long before its end."""


class TokenSource(Protocol):
    """Something that knows the header of the moment."""

    async def header(self) -> str | None:
        """Return the value of the Authorization header; None for none.

        Raises:
            ConfigurationError: the source does not answer.
        """
        ...


class Fixed:
    """A header that never changes."""

    def __init__(self, header: str | None) -> None:
        self._header = header

    async def header(self) -> str | None:
        """Return it."""
        return self._header


class TokenFile:
    """A token file renewed by another process, such as a ServiceAccount's token."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def header(self) -> str | None:
        """Return the token that is in the file now."""
        raw = read_file(self._path, lambda problem: ConfigurationError(f"token file {problem}"))
        token = raw.decode(errors="replace").strip()
        if not token:
            raise ConfigurationError(f"token file {self._path}: it is empty")
        return f"Bearer {token}"


class ExecPlugin:
    """A command; it is run again when what it has handed out ends.

    One that names no end is run again only when its token has been rejected, as kubectl does: then
    the kubeconfig is read again, and with it comes a new source.
    """

    def __init__(self, user: Entry, context: Context, credential: Credential) -> None:
        self._user, self._context, self._credential = user, context, credential

    async def header(self) -> str | None:
        """Return the plugin's token; None if it hands out certificates."""
        expires = self._credential.expires
        if expires is not None and time.time() >= expires - _BEFORE_END_S:
            self._credential = await execplugin.ask(self._user, self._context)
        token = self._credential.token
        return f"Bearer {token}" if token else None


class AuthProvider:
    """OpenID Connect and other providers of old kubeconfigs, through the `kubernetes` client.

    The client takes more than a second to import, which only those pay who need it.
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
        """Return the provider's token, renewed if it has ended."""
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
    """Return the header of a token, or of a name and password, in the kubeconfig itself."""
    token = user.text("token")
    if token:
        return f"Bearer {token.strip()}"
    name, password = user.text("username"), user.text("password")
    if name:
        return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"
    return None
