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


class _ServedKind(msgspec.Struct, frozen=True):
    name: str = ""


class _ServedKinds(KubeObject, frozen=True, kw_only=True):
    """`metav1.APIResourceList`."""

    resources: list[_ServedKind] = msgspec.field(default_factory=list)


async def served(client: Client, resources: Sequence[Resource[Any]]) -> list[Resource[Any]]:
    """Return those of `resources` that the API server serves, in their order.

    Raises:
        KubeError: it does not say.
    """
    versions = list(dict.fromkeys((r.group, r.version) for r in resources))
    answers = await asyncio.gather(*(_plurals(client, *version) for version in versions))
    plurals = dict(zip(versions, answers, strict=True))
    return [r for r in resources if r.plural in plurals[r.group, r.version]]


async def _plurals(client: Client, group: str, version: str) -> frozenset[str]:
    listing = Resource(group, version, "", "APIResourceList", False, _ServedKinds)
    try:
        found = await client.get(listing, "")
    except NotFoundError:
        return frozenset()
    return frozenset(kind.name for kind in found.resources)
