"""The admission policy of the chart limits the hollow agent's account to its own nodes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError
from bindery.kube.http.requests import PatchKind
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES
from bindery.kube.objects.resources import LEASES, NODES, PODS
from devcluster import kubeconfig
from devcluster.components import Components
from devcluster.install import Installation, render
from devcluster.plane import ControlPlane
from tests.definitions import install_node_topologies
from tests.nodeagent.hollowagents import Cluster

pytestmark = pytest.mark.e2e

RELEASE = "limited"
ACCOUNT = f"{RELEASE}-nodeagent"
NAMESPACE = "bindery-system"
PREFIX = "mine-"
PROBE = "other-probe"


@pytest.fixture(scope="module")
def limited(control_plane: ControlPlane, installation: Installation) -> Iterator[Path]:
    """A kubeconfig of an account that is limited to nodes with the prefix."""
    install_node_topologies(control_plane)
    values: dict[str, Any] = {
        "workloads": {"enabled": False},
        "webhook": {"enabled": False},
        "hollow": {"enabled": True, "namePrefixes": [PREFIX]},
    }
    documents = [
        each
        for each in render(control_plane, values, RELEASE)
        if isinstance(each["metadata"], dict) and each["metadata"]["name"] == ACCOUNT
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    control_plane.kubectl("apply", "--server-side", "--filename=-", stdin=text)
    token = control_plane.kubectl("create", "token", ACCOUNT, f"--namespace={NAMESPACE}").strip()
    path = control_plane.state_dir / "kubeconfigs" / "limited.kubeconfig"
    server = kubeconfig.Server.read(control_plane.admin_kubeconfig)
    control_plane.kubectl("create", "--filename=-", stdin=json.dumps(node(PROBE)))
    yield kubeconfig.write(path, server, ACCOUNT, token)
    control_plane.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=text)
    control_plane.kubectl("delete", "node", PROBE)


@pytest.fixture
async def client(limited: Path) -> AsyncIterator[Client]:
    async with Client.connect(limited, user_agent="bindery-test/0") as made:
        await _until_the_policy_holds(made)
        yield made


async def _until_the_policy_holds(client: Client) -> None:
    """A new policy takes effect some time after it was stored.

    The attempt is a patch, because a patch that is still allowed leaves nothing to undo.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            await client.patch(NODES, PROBE, {"metadata": {"labels": {"a": "b"}}})
        except ForbiddenError:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the policy did not take effect within 60 s")


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


async def test_other_nodes_are_refused_with_a_clear_message(
    client: Client, cluster: Cluster
) -> None:
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(node("other-0")))
    cluster.create_pod("theirs", "other-0")
    label = {"metadata": {"labels": {"a": "b"}}}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    zones = {"apiVersion": NODE_RESOURCE_TOPOLOGIES.api_version, "kind": "NodeResourceTopology"}
    name = {"metadata": {"name": "other-0"}}
    of_lease = {"namespace": "kube-node-lease"}
    larger, failed = {"status": {"capacity": {"cpu": "1"}}}, {"status": {"phase": "Failed"}}
    strategic = PatchKind.STRATEGIC
    try:
        for attempt in (
            client.create(NODES, node("other-1")),
            client.patch(NODES, "other-0", label),
            client.patch(NODES, "other-0", larger, subresource="status", kind=strategic),
            client.delete(NODES, "other-0"),
            client.create(LEASES, {**lease, **name}, **of_lease),
            client.create(NODE_RESOURCE_TOPOLOGIES, {**zones, **name, "zones": []}),
            client.patch(
                PODS,
                "theirs",
                failed,
                namespace=cluster.namespace,
                subresource="status",
                kind=strategic,
            ),
            client.delete(PODS, "theirs", cluster.namespace, grace_period_s=0),
        ):
            with pytest.raises(ForbiddenError, match=r"whose names begin with mine-.*other-"):
                await attempt
    finally:
        cluster.kubectl("delete", "node", "other-0")
        cluster.kubectl("delete", "pod", "theirs", "--force", "--grace-period=0")


async def test_the_agent_cannot_write_a_pod_without_a_node(
    client: Client, cluster: Cluster
) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "waiting"},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(body))

    with pytest.raises(ForbiddenError, match="a pod without a node"):
        await client.delete(PODS, "waiting", cluster.namespace)


async def test_the_agent_can_write_its_own_nodes_and_their_pods(
    client: Client, cluster: Cluster, installation: Installation, limited: Path
) -> None:
    account = replace(installation, kubeconfigs={"nodeagent": limited})
    options = (f"--name-prefix={PREFIX}", "--set=numa.sockets=2", "--remove-on-exit")
    with Components(account) as components:
        agent = components.start_hollow_nodes(1, options, name="limited-nodeagent")
        cluster.create_pod("pod", "mine-0")
        cluster.phase("pod", "Running")
        cluster.wait("noderesourcetopology/mine-0", "create")
        Cluster(cluster._plane, "kube-node-lease").wait("lease/mine-0", "create")
        cluster.kubectl("delete", "pod", "pod", "--timeout=30s")
        agent.stop()
    assert agent.process.exit_code == 0
    assert "mine-0" not in cluster.names("nodes")
