"""Reads the kinds that an API server serves; they depend on its version.

Used before watches and lists of optional kinds. Every account that can log in may use discovery, so
no permission is needed.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject

T = TypeVar("T")


class ServedKind(msgspec.Struct, frozen=True):
    """A kind, or a subresource of one, of a group and version."""

    name: str = ""
    """The plural; the name of a subresource has a slash."""
    kind: str = ""
    namespaced: bool = False


class _ServedKinds(KubeObject, frozen=True, kw_only=True):
    """`metav1.APIResourceList`."""

    resources: list[ServedKind] = msgspec.field(default_factory=list)


class _GroupVersion(msgspec.Struct, frozen=True):
    version: str = ""


class _ServedGroup(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """`metav1.APIGroup`."""

    name: str = ""
    versions: list[_GroupVersion] = []
    preferred_version: _GroupVersion = _GroupVersion()


class _ServedGroups(KubeObject, frozen=True, kw_only=True):
    """`metav1.APIGroupList`."""

    groups: list[_ServedGroup] = msgspec.field(default_factory=list)


class _Groups(Resource[_ServedGroups]):
    """The groups beside the core group."""

    root = ""


_GROUPS: Final = _Groups("", "", "apis", "APIGroupList", False, _ServedGroups)


async def served(client: Client, resources: Sequence[Resource[Any]]) -> list[Resource[Any]]:
    """Return the served ones of `resources`, in their order.

    Raises:
        KubeError: the API server cannot be asked.
    """
    versions = list(dict.fromkeys((r.group, r.version) for r in resources))
    answers = await asyncio.gather(*(_plurals(client, *version) for version in versions))
    plurals = dict(zip(versions, answers, strict=True))
    return [r for r in resources if r.plural in plurals[r.group, r.version]]


class Catalogue:
    """The kinds that an API server serves, for callers that check often.

    Groups that the server does not have cost no request, and all callers share the answers: each
    group version is requested at most once in `REREAD_AFTER_S`.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._groups = _Page(self._read_groups)
        self._versions: dict[tuple[str, str], _Page[ServedKind]] = {}

    async def find(self, api_version: str, kind: str) -> tuple[str, ServedKind] | None:
        """Return version and discovery entry of `kind`; None if the server does not have it.

        The version may be `*`, for the version preferred by the server.

        Raises:
            KubeError: the API server cannot be asked.
        """
        group, _, version = api_version.rpartition("/")
        if group:
            served = (await self._groups.get(group)).get(group)
            if served is None:
                return None
            version = served.preferred_version.version if version == "*" else version
            if _GroupVersion(version) not in served.versions:
                return None
        elif version != _CORE_VERSION:
            return None
        page = self._versions.get((group, version))
        if page is None:
            page = _Page(partial(self._read_kinds, group, version))
            self._versions[group, version] = page
        found = (await page.get(kind)).get(kind)
        return None if found is None else (f"{group}/{version}" if group else version, found)

    async def _read_groups(self) -> dict[str, _ServedGroup]:
        return {each.name: each for each in (await self._client.get(_GROUPS, "")).groups}

    async def _read_kinds(self, group: str, version: str) -> dict[str, ServedKind]:
        kinds = await _kinds(self._client, group, version)
        return {each.kind: each for each in kinds if "/" not in each.name}


REREAD_AFTER_S: Final = 5.0
"""Minimum seconds between two requests for one page of the catalogue."""
_STILL_NEW_S: Final = 1.0
"""Seconds for which a page proves that an entry is missing; an older page is read again first."""
_CORE_VERSION: Final = "v1"


class _Page(Generic[T]):
    """The entries of one discovery document, by key. Concurrent callers share one request."""

    def __init__(self, read: Callable[[], Awaitable[dict[str, T]]]) -> None:
        self._read = read
        self._lock = asyncio.Lock()
        self._asked_at = self._read_at = -math.inf
        self._found: dict[str, T] = {}

    async def get(self, key: str) -> dict[str, T]:
        """Return a document that has `key`, or is new enough to prove that `key` is missing."""
        async with self._lock:
            loop = asyncio.get_running_loop()
            now = loop.time()
            is_there = key in self._found and now - self._read_at < REREAD_AFTER_S
            if not is_there and now - self._read_at > _STILL_NEW_S:
                await asyncio.sleep(max(0.0, self._asked_at + REREAD_AFTER_S - now))
                self._asked_at = loop.time()
                self._found = await self._read()
                self._read_at = self._asked_at
            return self._found


async def _plurals(client: Client, group: str, version: str) -> frozenset[str]:
    return frozenset(kind.name for kind in await _kinds(client, group, version))


async def _kinds(client: Client, group: str, version: str) -> list[ServedKind]:
    listing = Resource(group, version, "", "APIResourceList", False, _ServedKinds)
    try:
        return (await client.get(listing, "")).resources
    except NotFoundError:
        return []
