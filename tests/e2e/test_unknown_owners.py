"""Made-up owner references of pods cost the API server little."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from prometheus_client import REGISTRY

from bindery.grouper.objects import OwnerObject
from bindery.grouper.owners import KindKey, Missing, Owners
from bindery.grouper.table.facts import Reference
from bindery.kube.client import Client
from devcluster.install import Installation
from tests.e2e.support import wait_for
from tests.e2e.workloads import JOBS
from tests.sizes import IS_LONG

pytestmark = pytest.mark.e2e

MADE_UP = 4_000 if IS_LONG else 400
"""Kinds of groups, and kinds of a group that is served."""
UNREADABLE = [
    ("v1", "Secret"),
    ("v1", "PersistentVolume"),
    ("v1", "ConfigMap"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
]
"""Served, and not in the grouper's role."""
OLD_INTERVAL_S = 12.0
"""A little more than the time between two looks for a kind."""


def requests(**labels: str) -> float:
    """Return how many requests this process has sent."""
    return sum(
        sample.value
        for family in REGISTRY.collect()
        if family.name == "bindery_api_requests"
        for sample in family.samples
        if sample.name.endswith("_total") and labels.items() <= sample.labels.items()
    )


@asynccontextmanager
async def watched(
    installation: Installation, changed: Callable[[str], None] = lambda _: None
) -> AsyncIterator[Owners]:
    """Owners, with the rights of the grouper."""
    connecting = Client.connect(
        installation.kubeconfigs["grouper"], user_agent="bindery-test/0", request_timeout_s=60
    )
    async with connecting as client:
        owners = Owners(client, lambda _: True, changed)
        running = asyncio.create_task(owners.run())
        try:
            yield owners
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def reference(api_version: str, kind: str) -> Reference:
    return Reference(api_version, kind, "x", f"{kind}-{secrets.token_hex(8)}", "default")


async def test_missing_and_unreadable_kinds_are_looked_up_together(
    installation: Installation,
) -> None:
    made_up = [
        reference(f"{'batch' if number % 2 else f'g{number}.example.com'}/v1", f"Kind{number}")
        for number in range(MADE_UP)
    ]
    unreadable = [reference(*each) for each in UNREADABLE]
    readable = reference("batch/v1", "Job")
    before, refused = requests(), requests(code="403")

    async with watched(installation) as owners:

        async def answered() -> bool:
            every = [owners.find(each) for each in (*made_up, *unreadable, readable)]
            return Missing.PENDING not in every

        await wait_for(answered, "all owners were looked for", timeout_s=120)

        assert {owners.find(each) for each in made_up} == {Missing.NOT_INSTALLED}
        assert {owners.find(each) for each in unreadable} == {Missing.FORBIDDEN}
        assert owners.find(readable) is Missing.GONE
        assert owners.is_settled()
        assert owners.watched == 1
        # Groups, three versions, two looks at each right, and the watch of Jobs.
        assert requests() - before < 40
        assert requests(code="403") == refused

        for each in (*made_up, *unreadable):
            owners.forget(each.uid)
        after = requests()
        await asyncio.sleep(OLD_INTERVAL_S)

        sent = requests() - after
        assert sent <= 2, f"only the watch goes on, but {sent / OLD_INTERVAL_S:.1f} requests/s"


async def test_a_kind_looked_up_by_name_is_forgotten_with_its_workload(
    installation: Installation,
) -> None:
    told: list[str] = []
    lost = KindKey("lost.example.com/*", "Lost")

    async with watched(installation, told.append) as owners:
        assert owners.find_named(lost, "default", "x", "workload") is Missing.PENDING

        async def is_told() -> bool:
            return told == ["workload"]

        await wait_for(is_told, "the workload is told that the kind is not installed")
        assert owners.find_named(lost, "default", "x", "workload") is Missing.NOT_INSTALLED
        after = requests()

        owners.forget("workload")
        await asyncio.sleep(OLD_INTERVAL_S)

        assert requests() == after


async def test_an_owner_is_known_until_it_is_deleted(
    installation: Installation, client: Client, namespace: str
) -> None:
    container = {"name": "worker", "image": "worker"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"suspend": True, "template": template},
    }
    job = await client.create(JOBS, body, namespace)
    at = Reference("batch/v1", "Job", "train", job.metadata.uid, namespace)

    async with watched(installation) as owners:

        async def is_known() -> bool:
            return isinstance(owners.find(at), OwnerObject)

        async def is_gone() -> bool:
            return owners.find(at) is Missing.GONE

        await wait_for(is_known, "the watch shows the Job")
        await client.delete(JOBS, "train", namespace)
        await wait_for(is_gone, "the watch shows that it is gone", timeout_s=20)
        owners.forget(at.uid)

        assert owners.find(at) is Missing.PENDING, "it is asked for again"
        await wait_for(is_gone, "the API server says that it is gone")
