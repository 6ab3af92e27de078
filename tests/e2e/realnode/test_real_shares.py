"""Shares of one GPU by resource claims: planned by Bindery, prepared for a real kubelet."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from bindery.kube.objects.claims import (
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    ResourceClaim,
)
from bindery.kube.objects.resources import NODES, PODS
from bindery.nodeagent.gpuclaims.slices import DRIVER
from bindery.nodeagent.sockets.definitions import dra_pb2 as api
from devcluster.errors import ControlPlaneError
from devcluster.realnode.cluster import RealCluster
from tests.e2e.realnode import realshares
from tests.e2e.realnode.realpods import running, wait_phase
from tests.e2e.realnode.realshares import FIRST, GPUS, SECOND, SharesNode, request, wait_offered
from tests.e2e.support import Corner, Gang, Observer, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

PRINT = "env | grep -E '^(NVIDIA|CUDA)_' | sort"
SHARE = {
    "NVIDIA_VISIBLE_DEVICES": FIRST,
    "CUDA_DEVICE_MEMORY_LIMIT_0": "10240m",
    "CUDA_DEVICE_SM_LIMIT": "30",
    "CUDA_DEVICE_SM_LIMIT_0": "30",
}


@pytest.fixture(scope="module")
def node(cluster: RealCluster) -> Iterator[SharesNode]:
    with realshares.added(cluster) as node:
        yield node


@pytest.fixture(autouse=True)
async def offered(node: SharesNode, corner: Corner) -> AsyncIterator[None]:
    """Both GPUs, healthy; no claim is left over."""
    await wait_offered(corner)
    yield
    node.node.release(realshares.SERVICE)
    node.write(*GPUS)


async def make_template(corner: Corner, name: str, *requests: dict[str, Any]) -> None:
    spec = {"spec": {"devices": {"requests": list(requests)}}}
    body = {"metadata": {"name": name}, "spec": spec}
    await corner.client.create(RESOURCE_CLAIM_TEMPLATES, body, corner.namespace)


def gang(name: str, size: int, template: str, script: str, restart_policy: str = "Never") -> Gang:
    """Return a gang whose pods have a claim each, and a variable that the claim replaces."""
    pod = running(script)
    pod["restartPolicy"] = restart_policy
    pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    [container] = pod["containers"]
    container["resources"]["claims"] = [{"name": "gpu"}]
    container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    return Gang(name, size, pod=pod)


async def claims(corner: Corner) -> list[ResourceClaim]:
    return await corner.client.list(RESOURCE_CLAIMS, namespace=corner.namespace)


def asked(claim: ResourceClaim) -> api.Claim:
    meta = claim.metadata
    return api.Claim(namespace=meta.namespace, name=meta.name, uid=meta.uid)


def printed(cluster: RealCluster, corner: Corner, pod: str, container: str = "worker") -> Any:
    text = cluster.control_plane.kubectl(
        "logs", pod, f"--container={container}", f"--namespace={corner.namespace}"
    )
    return dict(line.split("=", 1) for line in text.splitlines())


async def wait_given_back(node: SharesNode) -> None:
    async def none_is_left() -> bool:
        return not node.names()

    await wait_for(none_is_left, "the CDI files of claims are gone")


async def test_the_gpus_of_a_node_are_one_slice_that_the_node_owns(
    corner: Corner, node: SharesNode
) -> None:
    found = await wait_offered(corner)

    owner = await corner.client.get(NODES, realshares.NAME)
    assert [each.uid for each in found.metadata.owner_references] == [owner.metadata.uid]
    first, second = found.spec.devices
    assert (first.name, second.name) == (FIRST.lower(), SECOND.lower())
    assert first.attributes["resource.kubernetes.io/numaNode"].int_value == 0
    assert first.attributes["productName"].string_value == "NVIDIA H100"
    assert {name: each.value for name, each in first.capacity.items()} == {
        "memory": "80Gi",
        "cores": "100",
    }
    assert first.allow_multiple_allocations


async def test_the_slice_comes_back_after_a_restart_of_the_kubelet(
    corner: Corner, node: SharesNode
) -> None:
    before = await wait_offered(corner)

    node.node.kill("kubelet")

    after = await wait_offered(corner, newer_than=before.spec.pool.generation)
    assert after.spec.devices == before.spec.devices
    assert after.metadata.uid != before.metadata.uid


async def test_two_containers_get_shares_of_one_gpu_and_give_them_back(
    corner: Corner, observer: Observer, cluster: RealCluster, node: SharesNode
) -> None:
    template = realshares.example("ResourceClaimTemplate")
    await corner.client.create(RESOURCE_CLAIM_TEMPLATES, template, corner.namespace)
    pair = gang("pair", 2, template["metadata"]["name"], f"{PRINT}; sleep 600")
    await corner.submit(pair)
    await wait_phase(corner, pair, "Running")

    assert [printed(cluster, corner, f"pair-{index}") for index in range(2)] == [SHARE, SHARE]
    results = [claim.status.allocation for claim in await claims(corner)]
    shares = {each.devices.results[0].share_id for each in results if each is not None}
    assert len(shares) == 2
    assert None not in shares
    assert len({each.devices.results[0].device for each in results if each is not None}) == 1
    assert len(node.files()) == 2
    await corner.delete_gang(pair)
    await wait_given_back(node)


async def test_a_gang_waits_until_the_gpu_has_room_for_its_share(
    corner: Corner, observer: Observer, cluster: RealCluster, node: SharesNode
) -> None:
    """The pods are deleted by force: their claims are free before their containers have ended.

    So the claim of the next pod waits in the driver, and the kubelet need not ask again.
    """
    await make_template(corner, "small", request(memory="10Gi", cores="30"))
    await make_template(corner, "large", request(memory="65Gi", cores="30"))
    pair, large = gang("two", 2, "small", "sleep 600"), gang("large", 1, "large", PRINT)
    await corner.submit(pair)
    await wait_phase(corner, pair, "Running")
    await corner.submit(large)

    await corner.wait_condition(large, "False", "Unschedulable")

    await corner.delete_gang(pair)
    await wait_phase(corner, large, "Succeeded")
    assert not await corner.events("FailedPrepareDynamicResources")
    limit = {"CUDA_DEVICE_MEMORY_LIMIT_0": f"{65 * 1024}m"}
    assert printed(cluster, corner, "large-0") == {**SHARE, **limit}


async def test_containers_of_a_pod_get_the_requests_that_they_name(
    corner: Corner, observer: Observer, cluster: RealCluster, node: SharesNode
) -> None:
    requests = request("small", memory="1Gi", cores="5"), request("large", memory="2Gi", cores="9")
    await make_template(corner, "both", *requests)
    pod = dict(gang("split", 1, "both", PRINT).pod)
    [worker] = pod["containers"]
    pod["containers"] = [
        {
            **worker,
            "name": name,
            "resources": {**worker["resources"], "claims": [{"name": "gpu", "request": name}]},
        }
        for name in ("small", "large")
    ]
    split = Gang("split", 1, pod=pod)
    await corner.submit(split)

    await wait_phase(corner, split, "Succeeded")

    small, large = (printed(cluster, corner, "split-0", name) for name in ("small", "large"))
    assert (small["CUDA_DEVICE_MEMORY_LIMIT_0"], small["CUDA_DEVICE_SM_LIMIT"]) == ("1024m", "5")
    assert (large["CUDA_DEVICE_MEMORY_LIMIT_0"], large["CUDA_DEVICE_SM_LIMIT"]) == ("2048m", "9")


async def test_a_container_that_uses_two_requests_does_not_start_and_has_the_reason(
    corner: Corner, observer: Observer, node: SharesNode
) -> None:
    requests = request("small", memory="1Gi", cores="5"), request("large", memory="2Gi", cores="9")
    await make_template(corner, "both", *requests)
    greedy = gang("greedy", 1, "both", PRINT)
    await corner.submit(greedy)

    async def is_told() -> bool:
        return bool(await corner.events("FailedPrepareDynamicResources"))

    await wait_for(is_told, "the pod has an event with the driver's words")
    [event] = await corner.events("FailedPrepareDynamicResources")
    assert "container worker of pod greedy-0 uses several requests" in event.note
    assert node.files() == {}
    await corner.delete_gang(greedy)


async def test_a_driver_that_is_killed_forgets_nothing(
    corner: Corner, observer: Observer, cluster: RealCluster, node: SharesNode
) -> None:
    await make_template(corner, "share", request(memory="10Gi", cores="30"))
    script = f"{PRINT}; until [ -e /tmp/end ]; do sleep 0.2; done"
    held = gang("held", 2, "share", script, "Always")
    await corner.submit(held)
    await wait_phase(corner, held, "Running")
    wanted = [asked(claim) for claim in await claims(corner)]
    answer, files, stamps = await node.prepare(*wanted), node.files(), node.stamps()
    assert all(not each.error for each in answer.claims.values())

    await node.restart()

    assert await node.prepare(*wanted) == answer
    assert (node.files(), node.stamps()) == (files, stamps)
    await restart_beneath(cluster, corner, node, "held-0")
    assert printed(cluster, corner, "held-0") == SHARE
    assert (node.files(), node.stamps()) == (files, stamps)
    # The pods end while the driver is down; the kubelet gives their claims back when it is there.
    node.node.hold(realshares.SERVICE)
    node.kill()
    for index in range(2):
        await corner.client.delete(PODS, f"held-{index}", corner.namespace, grace_period_s=1)
    assert node.files() == files
    node.node.release(realshares.SERVICE)
    await wait_given_back(node)

    async def pods_are_gone() -> bool:
        return not await corner.pods(held)

    await wait_for(pods_are_gone, "the pods are gone")
    again = await node.unprepare(*wanted)
    assert {each.error for each in again.claims.values()} == {""}


async def restart_beneath(cluster: RealCluster, corner: Corner, node: SharesNode, pod: str) -> None:
    """Kill the kubelet, and then let the container of `pod` end, so that it is started again."""
    node.node.kill("kubelet")
    end = ("exec", pod, f"--namespace={corner.namespace}", "--", "touch", "/tmp/end")

    async def is_served() -> bool:
        try:
            cluster.control_plane.kubectl(*end)
        except ControlPlaneError:
            return False
        return True

    async def is_restarted() -> bool:
        status = ".status.containerStatuses[0]"
        path = f"--output=jsonpath={{{status}.restartCount}}{{{status}.state.running.startedAt}}"
        place = ("pod", pod, f"--namespace={corner.namespace}")
        found = cluster.control_plane.kubectl("get", *place, path)
        return found.startswith("1") and len(found) > 1

    await wait_for(is_served, "the kubelet serves again")
    await wait_for(is_restarted, f"the container of {pod} runs again")


async def test_a_mig_instance_is_given_to_one_claim_after_the_other(
    corner: Corner, observer: Observer, cluster: RealCluster, node: SharesNode
) -> None:
    generation = (await wait_offered(corner)).spec.pool.generation
    instance = {
        "uuid": "MIG-33333333-aaaa-bbbb-cccc-000000000003",
        "profile": "1g.5gb",
        "memoryMib": 4864,
        "placement": {"start": 0, "size": 1},
    }
    divided = {"uuid": "GPU-3", "index": 2, "memoryMib": 40960, "isMig": True}
    node.write(*GPUS, {**divided, "migSlices": [instance]})
    await wait_offered(corner, newer_than=generation)
    await make_template(
        corner, "instance", {"name": "gpu", "exactly": {"deviceClassName": "gpu-mig"}}
    )
    first = gang("first", 1, "instance", f"{PRINT}; sleep 600")
    second = gang("second", 1, "instance", f"{PRINT}; sleep 600")
    await corner.submit(first)
    await wait_phase(corner, first, "Running")
    assert printed(cluster, corner, "first-0") == {"NVIDIA_VISIBLE_DEVICES": instance["uuid"]}

    await corner.submit(second)
    await corner.wait_condition(second, "False", "Unschedulable")
    await corner.delete_gang(first)

    await wait_phase(corner, second, "Running")
    assert printed(cluster, corner, "second-0") == {"NVIDIA_VISIBLE_DEVICES": instance["uuid"]}
    await corner.delete_gang(second)
    await wait_given_back(node)


async def test_a_claim_that_is_gone_leaves_no_file(
    corner: Corner, observer: Observer, node: SharesNode
) -> None:
    name = "gpu.bindery.dev-share_00000000-0000-0000-0000-00000000dead.json"
    await make_template(corner, "share", request(memory="10Gi", cores="30"))
    kept = gang("kept", 1, "share", "sleep 600")
    await corner.submit(kept)
    await wait_phase(corner, kept, "Running")
    files = node.files()
    [content] = files.values()

    (node.node.root / "run/cdi" / name).write_text(content)
    await node.restart()

    async def it_is_gone() -> bool:
        return name not in node.names()

    await wait_for(it_is_gone, "the file of the claim that is gone is removed")
    assert node.files() == files


async def test_an_unhealthy_gpu_is_shown_at_its_pods_and_gets_no_new_ones(
    corner: Corner, observer: Observer, cluster: RealCluster, node: SharesNode
) -> None:
    async def shown(health: str) -> bool:
        pod = ("pod", "old-0", f"--namespace={corner.namespace}", "--output=json")
        status = json.loads(cluster.control_plane.kubectl("get", *pod))["status"]
        [container] = status["containerStatuses"]
        devices = [
            device
            for resource in container.get("allocatedResourcesStatus", ())
            for device in resource["resources"]
        ]
        return [device["health"] for device in devices] == [health]

    await make_template(corner, "share", request(memory="10Gi", cores="30"))
    old, new = (gang(name, 1, "share", "sleep 600") for name in ("old", "new"))
    await corner.submit(old)
    await wait_phase(corner, old, "Running")
    before = await wait_offered(corner)

    node.write({**GPUS[0], "problem": "fell off the bus"}, GPUS[1])

    await wait_offered(corner, newer_than=before.spec.pool.generation)
    await corner.submit(new)
    await corner.wait_condition(new, "False", "Unschedulable")
    await wait_for(lambda: shown("Unhealthy"), "the pod's status has its health")
    node.write(*GPUS)
    await wait_phase(corner, new, "Running")
    await wait_for(lambda: shown("Healthy"), "the pod's status is healthy")


async def test_a_claim_that_cannot_be_prepared_has_the_reason_at_its_pod(
    corner: Corner, node: SharesNode
) -> None:
    """No scheduler chooses a GPU that the node lacks, so this test allocates it by hand."""
    pod = dict(gang("wrong", 1, "none", PRINT).pod)
    pod["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "wrong"}]
    body = {"metadata": {"name": "wrong"}, "spec": {**pod, "schedulerName": "none"}}
    created = await corner.client.create(PODS, body, corner.namespace)
    spec = {"metadata": {"name": "wrong"}, "spec": {"devices": {"requests": [request()]}}}
    await corner.client.create(RESOURCE_CLAIMS, spec, corner.namespace)
    result = {"request": "gpu", "driver": DRIVER, "pool": realshares.NAME, "device": "gpu-gone"}
    consumer = {"resource": "pods", "name": "wrong", "uid": created.metadata.uid}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
    await corner.client.patch(
        RESOURCE_CLAIMS, "wrong", {"status": status}, namespace=corner.namespace,
        subresource="status",
    )  # fmt: skip

    await corner.client.bind(corner.namespace, "wrong", created.metadata.uid, realshares.NAME)

    async def is_told() -> bool:
        return bool(await corner.events("FailedPrepareDynamicResources"))

    await wait_for(is_told, "the pod has an event with the driver's words")
    [event] = await corner.events("FailedPrepareDynamicResources")
    assert "the node node-3 has no device gpu-gone of pool node-3" in event.note
    await corner.delete_pod("wrong")
