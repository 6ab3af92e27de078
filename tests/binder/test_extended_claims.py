"""The claim that the binder makes for the extended resources of a pod, on a model of the API."""

import asyncio
import random
from typing import Any

import msgspec

from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.dra.plugin import DynamicResources, DynamicResourcesArguments
from bindery.binder.plugins.interface import BindContext
from bindery.kube.client import Client
from bindery.kube.environment import Environment
from bindery.kube.objects.bindrequests import CommittedStatement, PodBinding, StatementSpec
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.devices import RESOURCE_SLICES
from bindery.kube.objects.resources import PODS
from tests.histories.apiserver.carrier import ModelCarrier
from tests.histories.apiserver.server import ModelApiServer

RESULT = {"request": "r", "driver": "d.example.com", "pool": "n0", "device": "card-0"}
EXTENDED = {
    "requests": [{"name": "r", "exactly": {"deviceClassName": "card", "count": 1}}],
    "mappings": [
        {"containerName": "main", "resourceName": "d.example.com/card", "requestName": "r"}
    ],
    "allocation": {"devices": {"results": [RESULT]}},
}
SLICE: dict[str, Any] = {
    "metadata": {"name": "n0"},
    "spec": {
        "driver": "d.example.com", "nodeName": "n0", "devices": [{"name": "card-0"}],
        "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
    },
}  # fmt: skip
POD: dict[str, Any] = {
    "metadata": {"name": "worker"},
    "spec": {"containers": [{"name": "main", "image": "a:1"}]},
}


def whole(resource: Any, body: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


async def context_of(client: Client) -> BindContext:
    await client.create(RESOURCE_SLICES, whole(RESOURCE_SLICES, SLICE))
    pod = await client.create(PODS, whole(PODS, POD), "default")
    meta = pod.metadata
    binding = PodBinding(pod_name=meta.name, pod_uid=meta.uid, selected_node="n0")
    return BindContext(
        client=client,
        pod=PodView(meta.namespace, meta.name, meta.uid, "", ending=False),
        statement=msgspec.convert(
            {"metadata": {"name": "r"}, "spec": StatementSpec(id="g.1", pods=[binding])},
            CommittedStatement,
        ),
        binding=binding,
        data={"extended": EXTENDED},
    )


def test_devices_are_given_back_of_a_claim_that_people_have_deleted_meanwhile() -> None:
    """It waits for its finalizer, so that nothing else frees its devices (histories, seed 82)."""
    server = ModelApiServer(lambda: 1_800_000_000.0, random.Random(1))
    environment = Environment(lambda: 1_800_000_000.0, random.Random(2))
    client = Client(ModelCarrier(server, "binder"), 5.0, environment)
    plugin = DynamicResources(DynamicResourcesArguments())

    async def story() -> list[str]:
        context = await context_of(client)
        await plugin.pre_bind(context)
        [claim] = await client.list(RESOURCE_CLAIMS)
        await client.delete(RESOURCE_CLAIMS, claim.metadata.name, "default")
        [going] = await client.list(RESOURCE_CLAIMS)
        assert going.metadata.deletion_timestamp is not None
        await plugin.rollback(context)
        return [each.metadata.name for each in await client.list(RESOURCE_CLAIMS)]

    assert asyncio.run(story()) == []
