"""Kinds that are installed while the scheduler runs are watched."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.store import Change
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.feed import Feed
from tests.e2e.feeds import running
from tests.e2e.foreigncrds import CRDS

pytestmark = pytest.mark.e2e

WAIT_S = 60.0


class Later(KubeObject, frozen=True, rename="camel", kw_only=True):
    """An object of a kind that is installed later."""


class Seen:
    """An observer; `names` are the objects that it has seen."""

    def __init__(self) -> None:
        self.names = asyncio.Queue[str]()

    def observe(self, change: Change[KubeObject]) -> bool:
        self.names.put_nowait(change.object.metadata.name)
        return False


def definition(kind: Resource[Any]) -> dict[str, Any]:
    names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True}
    return {
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Cluster",
            "names": names,
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@contextlib.asynccontextmanager
async def followed(
    client: Client, kinds: Sequence[Resource[Any]], seen: Seen
) -> AsyncIterator[Feed]:
    """Run the scheduler's watches with a plugin that observes `kinds`."""
    configuration = SchedulerConfiguration(plugins=(PluginConfiguration(name="predicates"),))
    cluster = Cluster(configuration, lambda: 0.0)
    cluster.observe([(kinds, seen.observe)])
    async with running(Feed(client, cluster, kinds, look_again_s=0.2)) as feed:
        yield feed


@pytest.mark.usefixtures("installation")
async def test_a_kind_installed_later_is_watched(client: Client) -> None:
    group = f"g{uuid.uuid4().hex[:8]}.example.com"
    kind = Resource(group, "v1", "laters", "Later", False, Later)
    seen = Seen()
    async with followed(client, [kind], seen):
        await client.create(CRDS, definition(kind))
        try:
            async with asyncio.timeout(WAIT_S):
                while True:  # the kind is served a moment after its definition is created
                    with contextlib.suppress(NotFoundError):
                        await client.create(
                            kind,
                            {
                                "apiVersion": f"{group}/v1",
                                "kind": "Later",
                                "metadata": {"name": "one"},
                            },
                        )
                        break
                    await asyncio.sleep(0.1)
                assert await seen.names.get() == "one"
        finally:
            await client.delete(CRDS, f"{kind.plural}.{group}")
