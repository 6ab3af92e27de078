"""A node that its cloud provider describes otherwise while it runs, on a real API server."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest

from bindery.kube.client import Client
from bindery.kube.events.recorder import EventRecorder
from bindery.kube.objects.resources import NODES, Resource
from bindery.nodeagent.nodes import NodeKeeper
from bindery.nodeagent.shapes import ManagedNode, NodeShape, expand
from bindery.nodecore.addresses import Address
from devcluster.plane import ControlPlane
from tests.kube.mirror import WAIT_S

pytestmark = pytest.mark.e2e

RAW: Final[Resource[Any]] = NODES.decoded_as(dict)  # with all fields
INSIDE: Final = (Address("InternalIP", "10.0.0.1"), Address("InternalIP", "fd00::1"))
OUTSIDE: Final = Address("ExternalIP", "203.0.113.7")


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client.connect(control_plane.admin_kubeconfig, user_agent="bindery-test/0") as made:
        yield made


@pytest.fixture
async def node(client: Client) -> AsyncIterator[ManagedNode]:
    (made,) = expand((NodeShape(count=1, name_prefix=f"described-{secrets.token_hex(3)}-"),))
    yield made
    await client.delete(NODES, made.name)


async def with_addresses(client: Client, name: str, count: int) -> dict[str, Any]:
    """Wait until a node has so many addresses and a provider's id; return its object.

    The agent writes the two one after the other, in any order.
    """
    async with asyncio.timeout(WAIT_S):
        while True:
            found: dict[str, Any] = await client.get(RAW, name)
            if len(found["status"]["addresses"]) == count and "providerID" in found["spec"]:
                return found
            await asyncio.sleep(0.05)


async def test_labels_id_and_addresses_of_a_node_follow_its_provider(
    client: Client, node: ManagedNode
) -> None:
    registered = asyncio.Event()
    keeper = NodeKeeper(
        client,
        (node,),
        events=EventRecorder(client, "test"),
        prepare=lambda _: None,
        on_registered=lambda _: registered.set(),
    )
    running = asyncio.create_task(keeper.run())
    await registered.wait()
    await client.patch(NODES, node.name, {"metadata": {"labels": {"theirs": "kept"}}})
    labels = {**node.labels, "topology.kubernetes.io/region": "eu-1"}
    known = replace(node, labels=labels, provider_id="test://1", addresses=(*INSIDE, OUTSIDE))

    keeper.refresh(known)
    await with_addresses(client, node.name, 3)
    keeper.refresh(replace(known, provider_id="test://2", addresses=INSIDE))

    found = await with_addresses(client, node.name, 2)
    assert found["status"]["addresses"] == [
        {"type": one.kind, "address": one.address} for one in INSIDE
    ]
    assert found["metadata"]["labels"].items() >= {**labels, "theirs": "kept"}.items()
    assert found["spec"]["providerID"] == "test://1"
    running.cancel()
