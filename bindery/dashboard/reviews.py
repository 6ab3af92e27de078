"""Asks the API server for the rights of a person, with the person's own token.

The connection has no certificate of the page's account: with one, the API server would take the
person for that account.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec

from bindery import __version__
from bindery.dashboard.rights import Rights, read_rights
from bindery.kube.access.credentials import Credentials, ServerAddress
from bindery.kube.client import Client, Connecting
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject

_CONNECTIONS: Final = 16
_TIMEOUT_S: Final = 10.0


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class _UserStatus(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _UserInfo = _UserInfo()


class _SelfReview(KubeObject, frozen=True, kw_only=True):
    """`authentication.k8s.io/v1` SelfSubjectReview."""

    status: _UserStatus = _UserStatus()


_SELF_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False, _SelfReview
)


@dataclass(frozen=True)
class TokenReviewer:
    """Reviews tokens at one API server."""

    address: ServerAddress

    async def name_of(self, token: str) -> str:
        """Return the name of the user with `token`.

        Raises:
            ForbiddenError: the API server does not accept the token.
            KubeError: it cannot be asked.
        """
        body = {"apiVersion": _SELF_REVIEWS.api_version, "kind": _SELF_REVIEWS.kind}
        async with self._client(token) as client:
            return (await client.create(_SELF_REVIEWS, body)).status.user_info.username

    async def rights_of(self, token: str, namespaces: Collection[str]) -> Rights:
        """Return the rights of the user with `token` in `namespaces`.

        Raises:
            ForbiddenError: the API server does not accept the token.
            KubeError: it cannot be asked.
        """
        async with self._client(token) as client:
            return await read_rights(client, namespaces)

    def _client(self, token: str) -> Connecting:
        return Client.connect(
            credentials=Credentials.of_token(self.address, token),
            user_agent=f"bindery-dashboard/{__version__}",
            request_timeout_s=_TIMEOUT_S,
            connections=_CONNECTIONS,
        )
