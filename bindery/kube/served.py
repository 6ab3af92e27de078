"""Asks an API server for the kinds it serves, which depend on its version.

Asked before kinds are watched or listed that a cluster may do without. Discovery is open to every
account that can log in, so no permission is needed.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects import KubeObject
from bindery.kube.resources import Resource


class ServedKind(msgspec.Struct, frozen=True):
    """A kind, or a subresource of one, of a group and version."""

    name: str = ""
    """The plural; that of a subresource has a slash."""
    kind: str = ""
    namespaced: bool = False


class _ServedKinds(KubeObject, frozen=True, kw_only=True):
    """`metav1.APIResourceList`."""

    resources: list[ServedKind] = msgspec.field(default_factory=list)


class _GroupVersion(msgspec.Struct, frozen=True):
    version: str = ""


class _ServedGroup(KubeObject, frozen=True, rename="camel", kw_only=True):
    """`metav1.APIGroup`."""

    preferred_version: _GroupVersion = _GroupVersion()


class _Groups(Resource[_ServedGroup]):
    """The groups beside the core group."""

    root = "/apis"


async def served(client: Client, resources: Sequence[Resource[Any]]) -> list[Resource[Any]]:
    """Return those of `resources` that the API server serves, in their order.

    Raises:
        KubeError: it does not say.
    """
    versions = list(dict.fromkeys((r.group, r.version) for r in resources))
    answers = await asyncio.gather(*(_plurals(client, *version) for version in versions))
    plurals = dict(zip(versions, answers, strict=True))
    return [r for r in resources if r.plural in plurals[r.group, r.version]]


async def find(client: Client, api_version: str, kind: str) -> ServedKind | None:
    """Return how the API server serves `kind`; None when it does not.

    Raises:
        KubeError: it does not say.
    """
    group, _, version = api_version.rpartition("/")
    kinds = await _kinds(client, group, version)
    return next((each for each in kinds if each.kind == kind and "/" not in each.name), None)


async def preferred_version(client: Client, group: str) -> str | None:
    """Return the version that the API server prefers of a group; None when it has no such group.

    Raises:
        KubeError: it does not say.
    """
    listing = _Groups("", "", group, "APIGroup", False, _ServedGroup)
    try:
        return (await client.get(listing, "")).preferred_version.version
    except NotFoundError:
        return None


async def _plurals(client: Client, group: str, version: str) -> frozenset[str]:
    return frozenset(kind.name for kind in await _kinds(client, group, version))


async def _kinds(client: Client, group: str, version: str) -> list[ServedKind]:
    listing = Resource(group, version, "", "APIResourceList", False, _ServedKinds)
    try:
        return (await client.get(listing, "")).resources
    except NotFoundError:
        return []
