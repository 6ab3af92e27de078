"""A webhook that hangs delays only workloads of Bindery and pods of enabled namespaces."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bindery.api.names import PRIORITY_CLASS_KEY
from bindery.kube.client import Client
from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.objects.watched import KubeObject
from devcluster.install import Installation
from devcluster.plane import ControlPlane
from tests.e2e.support import Corner, wait_for
from tests.e2e.webhooks import Webhooks

pytestmark = pytest.mark.e2e


class Workload(KubeObject, frozen=True, kw_only=True):
    pass


DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True, Workload)
JOBS = Resource("batch", "v1", "jobs", "Job", True, Workload)


class Hanging:
    """A server that accepts connections and never answers."""

    def __init__(self) -> None:
        self.calls = 0
        self._ended = asyncio.Event()

    async def _hang(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        await self._ended.wait()
        writer.close()

    @asynccontextmanager
    async def listen(self, port: int) -> AsyncIterator["Hanging"]:
        server = await asyncio.start_server(self._hang, "127.0.0.1", port)
        try:
            yield self
        finally:
            self._ended.set()
            server.close()
            await server.wait_closed()


@pytest.fixture
async def hanging(
    control_plane: ControlPlane, installation: Installation, namespace: str
) -> AsyncIterator[Hanging]:
    webhooks = Webhooks(control_plane, namespace, failure_policy="Ignore")
    async with Hanging().listen(webhooks.port) as server:
        await asyncio.to_thread(webhooks.install)
        try:
            yield server
        finally:
            await asyncio.to_thread(webhooks.remove)


def deployment(name: str, scheduler: str, more: Mapping[str, str] | None = None) -> dict[str, Any]:
    labels = {"app": name}
    container: dict[str, Any] = {"name": "a", "image": "a", "env": []}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "annotations": dict(more or {})},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"schedulerName": scheduler, "containers": [container]},
            },
        },
    }


async def pods_of(client: Client, namespace: str, name: str) -> int:
    pods = await client.list(PODS, namespace=namespace)
    return sum(pod.metadata.labels.get("app") == name for pod in pods)


async def test_a_deployment_of_another_scheduler_does_not_wait_for_a_webhook_that_hangs(
    corner: Corner, hanging: Hanging
) -> None:
    client, ours = corner.client, corner.namespace
    # The configuration is in force once an object of Bindery's comes to the server.
    number = 0

    async def is_called() -> bool:
        nonlocal number
        number += 1
        body = deployment(f"ours-{number}", "bindery")
        body["spec"] |= {"replicas": 0, "paused": True}  # so no other object comes of it
        await client.create(DEPLOYMENTS, body, ours)
        return hanging.calls > 0

    await wait_for(is_called, "the webhook is called")
    before = hanging.calls

    foreign = deployment("foreign", "default-scheduler")
    padding = [{"name": f"KEY_{each}", "value": "x" * 200} for each in range(2000)]
    large = deployment("large", "volcano")
    large["spec"]["template"]["spec"]["containers"][0]["env"] = padding
    assert len(json.dumps(large)) > 400_000
    for each in (foreign, large):
        await client.create(DEPLOYMENTS, each, ours)
    for name in ("foreign", "large"):

        async def are_there(name: str = name) -> bool:
            return await pods_of(client, ours, name) == 2

        await wait_for(are_there, f"the pods of {name} are created")
    assert hanging.calls == before

    large["metadata"]["name"], large["spec"]["template"]["spec"]["schedulerName"] = "own", "bindery"
    await client.create(DEPLOYMENTS, large, ours)
    assert hanging.calls > before
    before = hanging.calls
    key = {PRIORITY_CLASS_KEY: "high"}
    await client.create(DEPLOYMENTS, deployment("keyed", "default-scheduler", key), ours)
    assert hanging.calls > before


async def test_every_webhook_but_that_of_enabled_namespaces_has_a_timeout_of_one_second(
    control_plane: ControlPlane, hanging: Hanging
) -> None:
    kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
    text = control_plane.kubectl("get", kinds, "bindery-webhook", "--output=json")
    timeouts = {
        webhook["name"]: webhook["timeoutSeconds"]
        for item in json.loads(text)["items"]
        for webhook in item["webhooks"]
    }
    assert timeouts.pop("adopt.mutating.scheduling.bindery.dev") == 10
    assert set(timeouts.values()) == {1}
    assert len(timeouts) > 5
