"""What the account of the agents beside kubelets may write: only about the node of its token."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from bindery.api.names import GPU_INDEXES_ANNOTATION, GPUS_IDLE_SINCE_ANNOTATION
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects.devices import RESOURCE_SLICES
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES
from bindery.kube.objects.resources import NODES, PODS
from devcluster import kubeconfig, nodeaccount
from devcluster.install import Installation
from devcluster.plane import ControlPlane
from tests.definitions import install_node_topologies
from tests.e2e.support import Corner, wait_for

pytestmark = pytest.mark.e2e

OF_NODE = "hami.io/node-nvidia-register"
OF_POD = "hami.io/bind-phase"
REPORT = NODE_RESOURCE_TOPOLOGIES.api_version
SLICE = "resource.k8s.io/v1"

Wire = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """Two nodes with a pod each, and a client with the token of the first."""

    corner: Corner
    client: Client
    own: str
    other: str

    def pod(self, node: str) -> str:
        return f"on-{node}"


@pytest.fixture
async def scene(
    installation: Installation, corner: Corner, control_plane: ControlPlane
) -> AsyncIterator[Scene]:
    install_node_topologies(control_plane)
    nodeaccount.apply(control_plane, {"claims": {"enabled": True}})
    own, other = await corner.add_nodes("a", "b")
    path = nodeaccount.node_kubeconfig(control_plane, own)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client.connect(path, user_agent="test/0"))
        scene = Scene(corner, client, own, other)
        for node in (own, other):
            body = {
                "metadata": {"name": scene.pod(node)},
                "spec": {"nodeName": node, "containers": [{"name": "worker", "image": "worker"}]},
            }
            await corner.client.create(PODS, body, corner.namespace)

        async def holds() -> bool:
            try:
                await client.patch(NODES, other, annotated(OF_NODE))
            except ForbiddenError as error:
                return "belongs to a pod on" in error.message
            return False

        await wait_for(holds, "the policy is in force")
        yield scene


def annotated(key: str) -> Wire:
    return {"metadata": {"annotations": {key: "x"}}}


def report(node: str) -> Wire:
    metadata = {"name": node}
    kind = NODE_RESOURCE_TOPOLOGIES.kind
    return {"apiVersion": REPORT, "kind": kind, "metadata": metadata, "zones": []}


def device_slice(node: str) -> Wire:
    return {
        "apiVersion": SLICE,
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{node}"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }


async def refused(call: Callable[[], Awaitable[Any]]) -> str:
    with pytest.raises(ForbiddenError) as found:
        await call()
    return found.value.message


async def test_a_token_writes_about_its_own_node(scene: Scene) -> None:
    client, own = scene.client, scene.own
    namespace, pod = scene.corner.namespace, scene.pod(own)

    await client.create(NODE_RESOURCE_TOPOLOGIES, report(own))
    await client.patch(NODE_RESOURCE_TOPOLOGIES, own, report(own))
    await client.patch(NODES, own, annotated(OF_NODE))
    for key in (OF_POD, GPUS_IDLE_SINCE_ANNOTATION, GPU_INDEXES_ANNOTATION):
        await client.patch(PODS, pod, annotated(key), namespace=namespace)
    await client.create(RESOURCE_SLICES, device_slice(own))
    await client.delete(RESOURCE_SLICES, f"slice-{own}")

    seen = await scene.corner.client.get(NODES, own)
    assert seen.metadata.annotations[OF_NODE] == "x"


async def test_a_stolen_token_of_another_node_is_refused_with_the_reason(scene: Scene) -> None:
    """The token of one node is tried on all that belongs to another node."""
    client, own, other = scene.client, scene.own, scene.other
    admin, namespace, pod = scene.corner.client, scene.corner.namespace, scene.pod(other)
    await admin.create(RESOURCE_SLICES, device_slice(other))
    label = {"metadata": {"labels": {"a": "b"}}}
    attacks: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
        ("noderesourcetopologies", lambda: client.create(NODE_RESOURCE_TOPOLOGIES, report(other))),
        ("nodes", lambda: client.patch(NODES, other, annotated(OF_NODE))),
        ("pods", lambda: client.patch(PODS, pod, annotated(OF_POD), namespace=namespace)),
        ("resourceslices", lambda: client.patch(RESOURCE_SLICES, f"slice-{other}", label)),
        ("resourceslices", lambda: client.delete(RESOURCE_SLICES, f"slice-{other}")),
    ]

    for kind, attack in attacks:
        message = await refused(attack)
        assert f"the token belongs to a pod on {own} and may write only about this node" in message
        assert kind in message
        assert other in message
    await admin.delete(RESOURCE_SLICES, f"slice-{other}")


async def test_only_annotations_about_devices_are_written(scene: Scene) -> None:
    client, own = scene.client, scene.own
    namespace, pod = scene.corner.namespace, scene.pod(own)
    labels = {"metadata": {"labels": {"a": "b"}}}
    finalizer = {"metadata": {"finalizers": ["example.com/stays"]}}

    assert "own/key is not an annotation" in await refused(
        lambda: client.patch(NODES, own, annotated("own/key"))
    )
    assert "own/key is not an annotation" in await refused(
        lambda: client.patch(PODS, pod, annotated("own/key"), namespace=namespace)
    )
    for change in (labels, finalizer, {"spec": {"unschedulable": True}}):
        assert "nothing but annotations" in await refused(partial(client.patch, NODES, own, change))
    assert "nothing but annotations" in await refused(
        lambda: client.patch(PODS, pod, labels, namespace=namespace)
    )


async def test_a_token_without_a_node_writes_nothing(
    scene: Scene, control_plane: ControlPlane
) -> None:
    account, scope = nodeaccount.ACCOUNT, f"--namespace={nodeaccount.NAMESPACE}"
    token = control_plane.kubectl("create", "token", account, scope).strip()
    path = control_plane.state_dir / "kubeconfigs" / "beside-nowhere.kubeconfig"
    server = kubeconfig.Server.read(control_plane.admin_kubeconfig)
    kubeconfig.write(path, server, account, token)

    async with Client.connect(path, user_agent="test/0") as client:
        message = await refused(lambda: client.create(NODE_RESOURCE_TOPOLOGIES, report(scene.own)))

    assert "names no node" in message


async def test_without_devices_the_account_may_not_even_try(
    installation: Installation, corner: Corner, control_plane: ControlPlane
) -> None:
    nodeaccount.apply(control_plane, {"devices": {"enabled": False}})
    (own,) = await corner.add_nodes("a")
    path = nodeaccount.node_kubeconfig(control_plane, own)

    async with Client.connect(path, user_agent="test/0") as client:

        async def is_refused() -> bool:
            try:
                await client.patch(NODES, own, annotated(OF_NODE))
            except ForbiddenError as error:
                return "cannot patch resource" in error.message
            return False

        await wait_for(is_refused, "the role has no right to patch nodes")
        await client.get(NODES, own)
