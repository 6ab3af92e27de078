"""kube-scheduler itself, on a real API server, binds pods to the nodes that Bindery chooses.

kube-scheduler shows one node at most, so less is compared than with its filters: whether the pod is
bound, and whether its node is among the nodes that Bindery finds.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.client import Client
from bindery.kube.errors import ApiError, InvalidError, NotFoundError
from bindery.kube.objects.resources import NAMESPACES, NODES, PODS
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.engine import Engine
from devcluster import settings
from devcluster.local import LocalControlPlane
from devcluster.plane import ControlPlane
from devcluster.processes import Command, Process
from tests.randomclusters import Manifest, RandomCluster, feasible_places
from tests.required import lacking

pytestmark = pytest.mark.e2e

CASES = 20
WAIT_S = 60.0
THEIRS = "real-scheduler"


@pytest.fixture(scope="module")
def kube_scheduler(control_plane: ControlPlane) -> Iterator[None]:
    """kube-scheduler, for pods that name it."""
    if not isinstance(control_plane, LocalControlPlane):
        lacking("only the own control plane has the program")
    file = control_plane.state_dir / "real-scheduler.yaml"
    text = settings.kube_scheduler(control_plane.admin_kubeconfig)
    file.write_text(f"{text}profiles: [{{schedulerName: {THEIRS}}}]\n", encoding="utf-8")
    program = str(control_plane.binaries.kube_scheduler)
    log = control_plane.state_dir / "logs" / "real-scheduler.log"
    arguments = [program, f"--config={file}", "--secure-port=0"]
    process = Process(Command(THEIRS, arguments, log), tethered=True)
    yield
    process.stop()


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client.connect(control_plane.admin_kubeconfig, user_agent="bindery-test/0") as made:
        yield made


def is_simple(cluster: RandomCluster) -> bool:
    """Return whether other controllers leave the cluster as it is until the pod is bound."""
    is_kept = all(
        taint["effect"] != "NoExecute" for node in cluster.nodes for taint in node["spec"]["taints"]
    )
    are_present = all(
        "deletionTimestamp" not in pod["metadata"] and "nodeName" in pod["spec"]
        for pod in cluster.pods
    )
    return is_kept and are_present


async def until(condition: Any, what: str) -> None:
    deadline_s = asyncio.get_running_loop().time() + WAIT_S
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline_s, what
        await asyncio.sleep(0.1)


def pod_body(manifest: Manifest, scheduler: str) -> Manifest:
    spec = {**manifest["spec"], "schedulerName": scheduler}
    for kind in ("containers", "initContainers"):
        if kind in spec:
            spec[kind] = [{"image": "none.invalid/work", **each} for each in spec[kind]]
    metadata = {key: manifest["metadata"][key] for key in ("name", "namespace", "labels")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def make(client: Client, cluster: RandomCluster) -> None:
    for node in cluster.nodes:
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", **node})

    async def admitted() -> bool:
        wanted = {
            node["metadata"]["name"]: node["spec"].get("unschedulable") for node in cluster.nodes
        }
        found = {node.metadata.name: node for node in await client.list(NODES)}
        keys = {name: {t.key for t in found[name].spec.taints or ()} for name in wanted}
        return all(
            "node.kubernetes.io/not-ready" not in keys[name]
            and ("node.kubernetes.io/unschedulable" in keys[name]) == bool(is_closed)
            for name, is_closed in wanted.items()
        )

    await until(admitted, "the nodes are as they should be")
    for pod in cluster.pods:
        body = pod_body(pod, "somebody-else")
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        await client.create(PODS, body, namespace)
        status = {"status": {"phase": pod["status"]["phase"]}}
        await client.patch(PODS, name, status, namespace=namespace, subresource="status")


async def verdict(client: Client, cluster: RandomCluster) -> Pod:
    """Return the pod after kube-scheduler has bound it or found no node for it."""
    body = pod_body(cluster.pod, THEIRS)
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    await client.create(PODS, body, namespace)
    found: list[Pod] = []

    async def decided() -> bool:
        pod = await client.get(PODS, name, namespace)
        found[:] = [pod]
        return any(each.type == "PodScheduled" for each in pod.status.conditions or ())

    await until(decided, "kube-scheduler decides")
    return found[0]


async def ours(client: Client, decided: Pod) -> set[str]:
    """Return the nodes where Bindery would place the pod, in the cluster as it was before."""
    waiting = msgspec.structs.replace(
        decided,
        spec=msgspec.structs.replace(decided.spec, node_name="", scheduler_name="bindery"),
        status=msgspec.structs.replace(decided.status, phase="Pending", conditions=None),
    )
    pods = [each for each in await client.list(PODS) if each.metadata.uid != decided.metadata.uid]
    engine = Engine(SchedulerConfiguration(), lambda: 1_800_000_000.0)
    namespaces, nodes = await client.list(NAMESPACES), await client.list(NODES)
    items: list[KubeObject] = [*namespaces, *nodes, *pods, waiting]
    for item in items:
        engine.cluster.apply(Change(EventType.ADDED, item, None))
    return feasible_places(engine, decided.metadata.uid)


async def clean(client: Client, cluster: RandomCluster) -> None:
    for pod in (*cluster.pods, cluster.pod):
        meta = pod["metadata"]
        with suppress(NotFoundError):
            await client.delete(PODS, meta["name"], meta["namespace"], grace_period_s=0)
    for node in cluster.nodes:
        with suppress(NotFoundError):
            await client.delete(NODES, node["metadata"]["name"])


async def make_namespaces(client: Client, cluster: RandomCluster) -> None:
    for namespace in cluster.namespaces:
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", **namespace})
    probe = {"containers": [{"name": "main", "image": "none.invalid/work"}]}
    for namespace in cluster.namespaces:
        name = namespace["metadata"]["name"]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": probe}
        body["spec"] = {**probe, "schedulerName": "nobody"}

        async def has_account(body: Manifest = body, name: str = name) -> bool:
            try:
                await client.create(PODS, body, name)
            except ApiError:  # its ServiceAccount has not been created yet
                return False
            await client.delete(PODS, "probe", name, grace_period_s=0)
            return True

        await until(has_account, "pods can be created")


@pytest.mark.usefixtures("kube_scheduler")
async def test_kube_scheduler_binds_a_pod_to_a_node_that_bindery_chooses(client: Client) -> None:
    for node in await client.list(NODES):  # what earlier tests have left is in the way
        with suppress(NotFoundError):
            await client.delete(NODES, node.metadata.name)
    await make_namespaces(client, RandomCluster(0))
    compared: dict[int, tuple[str, set[str]]] = {}
    seed = 0
    while len(compared) < CASES:
        seed += 1
        cluster = RandomCluster(seed)
        if not is_simple(cluster):
            continue
        try:
            await make(client, cluster)
            decided = await verdict(client, cluster)
            compared[seed] = decided.spec.node_name, await ours(client, decided)
        except InvalidError:  # the API server refuses some random pods
            continue
        finally:
            await clean(client, cluster)
    for namespace in RandomCluster(0).namespaces:
        await client.delete(NAMESPACES, namespace["metadata"]["name"])

    differences = {
        seed: (node, found)
        for seed, (node, found) in compared.items()
        if (node not in found if node else found)
    }
    assert differences == {}, "seed: (node of kube-scheduler, nodes of Bindery)"
    assert {bool(node) for node, _ in compared.values()} == {True, False}, "the cases vary"
