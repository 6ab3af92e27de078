"""The grouper makes HyperNodes from labels of nodes, and leaves those of others alone."""

from collections.abc import AsyncIterator

import pytest

from bindery.api.configuration import GrouperConfiguration, LeaderElection
from bindery.api.names import API_VERSION
from bindery.kube.client import Client
from bindery.kube.objects.resources import NODES
from bindery.kube.objects.topology import HYPER_NODES, HyperNode
from devcluster.components import Components
from tests.e2e.support import Corner, wait_for

pytestmark = pytest.mark.e2e

LEAF, SPINE = "test.bindery.dev/leaf", "test.bindery.dev/spine"
CONFIGURATION = GrouperConfiguration(
    hyper_node_levels=((LEAF,), (SPINE,)), leader_election=LeaderElection(enabled=False)
)


@pytest.fixture
async def nodes(corner: Corner) -> AsyncIterator[list[str]]:
    """Three nodes below two leaf switches and one spine switch."""
    names = await corner.add_nodes("a", "b", "c")
    for name, leaf in zip(names, ("l1", "l1", "l2"), strict=True):
        await label(corner.client, name, {LEAF: leaf, SPINE: "s"})
    yield names
    for made in await corner.client.list(HYPER_NODES):
        await corner.client.delete(HYPER_NODES, made.metadata.name)


async def label(client: Client, name: str, labels: dict[str, str | None]) -> None:
    await client.patch(NODES, name, {"metadata": {"labels": labels}})


async def made(client: Client) -> dict[str, HyperNode]:
    """Return the HyperNodes, by their names without a digest."""
    found = await client.list(HYPER_NODES)
    return {each.metadata.name.rpartition("-")[0]: each for each in found}


async def wait_made(client: Client, *names: str) -> dict[str, HyperNode]:
    async def are_made() -> dict[str, HyperNode] | None:
        found = await made(client)
        return found if set(found) == set(names) else None

    return await wait_for(are_made, f"the HyperNodes are {', '.join(names) or 'none'}")


async def test_hyper_nodes_follow_the_labels_and_give_way_to_those_of_others(
    corner: Corner, nodes: list[str], components: Components
) -> None:
    client = corner.client
    grouper = components.start_grouper(CONFIGURATION).wait_ready()
    found = await wait_made(client, "leaf-l1", "leaf-l2", "spine-s")
    spine = found["spine-s"].spec
    assert (spine.tier, found["leaf-l1"].spec.tier) == (2, 1)
    assert {member.name for member in spine.members} == {
        found[name].metadata.name for name in ("leaf-l1", "leaf-l2")
    }

    await label(client, nodes[2], {LEAF: "l3"})
    found = await wait_made(client, "leaf-l1", "leaf-l3", "spine-s")

    async def is_changed() -> bool:
        found = await made(client)
        names = {member.name for member in found["spine-s"].spec.members}
        return names == {found[name].metadata.name for name in ("leaf-l1", "leaf-l3")}

    await wait_for(is_changed, "the spine has its new leaf")

    grouper.kill()
    await label(client, nodes[2], {LEAF: None})
    grouper.restart()
    await wait_made(client, "leaf-l1", "spine-s")

    mine = {"tier": 1, "members": [{"type": "Node", "name": nodes[0]}]}
    body = {
        "apiVersion": API_VERSION, "kind": "HyperNode",
        "metadata": {"name": "mine-x"}, "spec": mine,
    }  # fmt: skip
    await client.create(HYPER_NODES, body)
    await wait_made(client, "mine")
    await client.delete(HYPER_NODES, "mine-x")
    await wait_made(client, "leaf-l1", "spine-s")
