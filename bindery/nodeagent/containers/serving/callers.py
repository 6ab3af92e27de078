"""Who calls the agent's port, and whether they may.

A caller has a certificate of the clients' authority, or a token that the API server knows. The API
server decides what a caller may do, as for a kubelet with `authorization: {mode: Webhook}`.
Source: `pkg/kubelet/server/auth.go`, Kubernetes 1.36.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bindery.kube.client import Client
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject

TOKEN_S: Final = 120.0
ALLOWED_S: Final = 300.0
REFUSED_S: Final = 30.0
"""How long answers of the API server count, as the kubelet's defaults."""
_MOST_KEPT: Final = 1000
_VERBS: Final = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_PROXY: Final = "proxy"
_SUBRESOURCES: Final = {"metrics": ("metrics",), "healthz": ("healthz", _PROXY)}
"""First part of a path -> the subresources of `nodes`; one of them must be allowed."""


class _TokenUser(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _TokenUser = _TokenUser()


class _TokenReview(KubeObject, frozen=True, kw_only=True):
    """`authentication.k8s.io/v1` TokenReview."""

    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(KubeObject, frozen=True, kw_only=True):
    """`authorization.k8s.io/v1` SubjectAccessReview."""

    status: _AccessStatus = _AccessStatus()


_TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, _TokenReview
)
_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    False,
    _AccessReview,
)


@dataclass(frozen=True)
class Caller:
    """A user of the API server."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


def caller_of(certificate: Mapping[str, Any] | None) -> Caller | None:
    """Return the user of a client's certificate, as `ssl` reads it; None without one."""
    names: dict[str, list[str]] = {}
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            names.setdefault(key, []).append(value)
    if "commonName" not in names:
        return None
    return Caller(names["commonName"][-1], tuple(names.get("organizationName", ())))


def verb_of(method: str) -> str:
    """Return the verb that a caller needs; empty for a method that has none."""
    return _VERBS.get(method, "")


def subresources_of(path: str) -> Sequence[str]:
    """Return the subresources of `nodes` of which a caller needs one for `path`."""
    return _SUBRESOURCES.get(path.strip("/").partition("/")[0], (_PROXY,))


class Callers:
    """Asks the API server about callers; its answers are kept for a while."""

    def __init__(self, client: Client, node_name: str, now_s: Callable[[], float]) -> None:
        self._client, self._node_name, self._now_s = client, node_name, now_s
        self._kept: dict[tuple[object, ...], tuple[float, Caller | bool]] = {}

    async def known(self, token: str) -> Caller | None:
        """Return the user with `token`, None if the API server does not know it.

        Raises:
            KubeError: the API server cannot be asked.
        """
        key = ("token", hashlib.sha256(token.encode()).digest())
        kept = self._recalled(key)
        if isinstance(kept, Caller):
            return kept
        body = {
            "apiVersion": _TOKEN_REVIEWS.api_version,
            "kind": _TOKEN_REVIEWS.kind,
            "spec": {"token": token},
        }
        status = (await self._client.create(_TOKEN_REVIEWS, body)).status
        if not status.authenticated:
            return None
        user = status.user
        caller = Caller(user.username, user.groups, user.uid)
        self._keep(key, caller, TOKEN_S)
        return caller

    async def may(self, caller: Caller, verb: str, subresources: Sequence[str]) -> bool:
        """Return whether a caller may do `verb` with one of the subresources of this node.

        Raises:
            KubeError: the API server cannot be asked.
        """
        for subresource in subresources:
            key = ("access", caller, verb, subresource)
            kept = self._recalled(key)
            is_allowed = (
                kept if isinstance(kept, bool) else await self._asked(caller, verb, subresource)
            )
            if kept is None:
                self._keep(key, is_allowed, ALLOWED_S if is_allowed else REFUSED_S)
            if is_allowed:
                return True
        return False

    async def _asked(self, caller: Caller, verb: str, subresource: str) -> bool:
        body = {
            "apiVersion": _ACCESS_REVIEWS.api_version,
            "kind": _ACCESS_REVIEWS.kind,
            "spec": {
                "user": caller.name,
                "groups": caller.groups,
                "uid": caller.uid,
                "resourceAttributes": {
                    "verb": verb,
                    "version": "v1",
                    "resource": "nodes",
                    "subresource": subresource,
                    "name": self._node_name,
                },
            },
        }
        return (await self._client.create(_ACCESS_REVIEWS, body)).status.allowed

    def _recalled(self, key: tuple[object, ...]) -> Caller | bool | None:
        end_s, found = self._kept.get(key, (0.0, None))
        return found if self._now_s() < end_s else None

    def _keep(self, key: tuple[object, ...], found: Caller | bool, for_s: float) -> None:
        now_s = self._now_s()
        if len(self._kept) >= _MOST_KEPT:
            self._kept = {kept: one for kept, one in self._kept.items() if now_s < one[0]}
        if len(self._kept) < _MOST_KEPT:
            self._kept[key] = (now_s + for_s, found)
