"""A real kubelet, Bindery's device plugin, scheduler and binder: HAMi's handshake, and kills.

The cards are those of a file; the containers are real and print what they got.
"""

from collections.abc import Iterator

import pytest

from bindery.api.hami import names
from bindery.api.hami.lock import NodeLock
from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import GPU_INDEXES_ANNOTATION
from bindery.kube.objects.resources import NODES, PODS
from bindery.kube.objects.watched import Pod
from bindery.nodeagent.devices.podresources import DeviceHolders
from devcluster.components import Component
from devcluster.errors import ControlPlaneError
from devcluster.realnode.cluster import RealCluster
from fakes import gpuplugin
from tests.e2e.realnode import realshareplugin
from tests.e2e.realnode.haltingshares import STEPS
from tests.e2e.realnode.realpods import submit_job, wait_phase, wait_running
from tests.e2e.realnode.realshareplugin import CARDS, GPU, SharingNode, container, pod, variables
from tests.e2e.support import Corner, Gang, Observer, wait_for
from tests.sizes import IS_LONG

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

VICTIMS = ("plugin", "kubelet", "binder")
STRIKES = [(victim, step) for victim in VICTIMS for step in STEPS]
SAMPLE = {("plugin", "after-pod"), ("kubelet", "before-pod"), ("binder", "read")}


@pytest.fixture(scope="module")
def sharing(cluster: RealCluster) -> Iterator[SharingNode]:
    with realshareplugin.added(cluster) as sharing:
        yield sharing


@pytest.fixture(autouse=True)
def going(sharing: SharingNode, cluster: RealCluster) -> Iterator[None]:
    """Each test begins with a plugin that works."""
    sharing.go_on()
    realshareplugin.wait_offered(cluster, len(CARDS) * realshareplugin.SHARES)
    yield
    sharing.go_on()


async def printed(cluster: RealCluster, corner: Corner, name: str, of: str) -> dict[str, str]:
    """Return the variables that a container has printed."""

    async def text() -> str:
        arguments = ("logs", name, f"--namespace={corner.namespace}", f"--container={of}")
        try:
            found = cluster.control_plane.kubectl(*arguments)
        except ControlPlaneError:
            return ""  # its container does not run yet
        return found if "done" in found else ""

    return variables(await wait_for(text, f"{name} prints its environment"))


async def test_two_pods_share_a_card_with_the_limits_that_were_planned(
    corner: Corner, observer: Observer, sharing: SharingNode, cluster: RealCluster
) -> None:
    policy = {"hami.io/gpu-scheduler-policy": "binpack"}
    first = Gang("first", 1, pod=pod(container("a", 3000, 30)), annotations=policy)
    second = Gang("second", 1, pod=pod(container("b", 5000, 20)), annotations=policy)

    await corner.submit(first, second)

    for gang in (first, second):
        await wait_phase(corner, gang, "Running")
    await realshareplugin.wait_unlocked(corner.client)
    seen = [
        await printed(cluster, corner, name, of)
        for name, of in (("first-0", "a"), ("second-0", "b"))
    ]
    assert len({each["NVIDIA_VISIBLE_DEVICES"] for each in seen}) == 1
    card = seen[0]["NVIDIA_VISIBLE_DEVICES"]
    assert card in CARDS
    assert [each["CUDA_DEVICE_MEMORY_LIMIT_0"] for each in seen] == ["3000m", "5000m"]
    assert [each["CUDA_DEVICE_SM_LIMIT"] for each in seen] == ["30", "20"]
    pods = [
        await corner.client.get(PODS, f"{name}-0", corner.namespace) for name in ("first", "second")
    ]
    assert handshake(pods[0]) == expected(f"{card},NVIDIA,3000,30:;", ";;", card)
    assert handshake(pods[1]) == expected(f"{card},NVIDIA,5000,20:;", ";;", card)
    for each in pods:
        bound_s, chosen_s = (
            int(each.metadata.annotations[key]) for key in (names.BIND_TIME, names.ASSIGNED_TIME)
        )
        assert bound_s >= chosen_s


def handshake(found: Pod) -> dict[str, str]:
    """Return the annotations of the handshake, without times."""
    keys = (
        *(NVIDIA.allocated_key, NVIDIA.to_allocate_key, names.ASSIGNED_NODE, names.BIND_PHASE),
        *(names.ISOLATION, GPU_INDEXES_ANNOTATION),
    )
    return {key: found.metadata.annotations.get(key, "") for key in keys}


def expected(allocated: str, left: str, *cards: str) -> dict[str, str]:
    return {
        NVIDIA.allocated_key: allocated,
        NVIDIA.to_allocate_key: left,
        names.ASSIGNED_NODE: realshareplugin.NAME,
        names.BIND_PHASE: "success",
        names.ISOLATION: "none",
        GPU_INDEXES_ANNOTATION: ",".join(str(CARDS.index(card)) for card in cards),
    }


async def test_the_containers_of_a_pod_get_their_own_shares_in_their_order(
    corner: Corner, sharing: SharingNode, cluster: RealCluster
) -> None:
    plain = {key: value for key, value in container("plain", 0).items() if key != "resources"}
    spec = pod(container("a", 1000), plain, container("b", 2000, 50), container("both", 500, 0, 2))
    trio = Gang("trio", 1, pod=spec)

    await corner.submit(trio)

    await wait_phase(corner, trio, "Running")
    seen = {name: await printed(cluster, corner, "trio-0", name) for name in ("a", "b", "both")}
    limits = {name: each["CUDA_DEVICE_MEMORY_LIMIT_0"] for name, each in seen.items()}
    assert limits == {"a": "1000m", "b": "2000m", "both": "500m"}
    assert seen["both"]["CUDA_DEVICE_MEMORY_LIMIT_1"] == "500m"
    assert set(seen["both"]["NVIDIA_VISIBLE_DEVICES"].split(",")) == set(CARDS)
    await realshareplugin.wait_unlocked(corner.client)
    found = await corner.client.get(PODS, "trio-0", corner.namespace)
    assert found.metadata.annotations[names.BIND_PHASE] == "success"
    assert "NVIDIA" not in found.metadata.annotations[NVIDIA.to_allocate_key]
    kubelets = await kubelets_view(sharing, corner, "trio-0")
    assert kubelets == {
        name: sorted(each["NVIDIA_VISIBLE_DEVICES"].split(",")) for name, each in seen.items()
    }


async def kubelets_view(sharing: SharingNode, corner: Corner, name: str) -> dict[str, list[str]]:
    """Return container -> cards, as the kubelet's PodResources reports them."""
    socket = sharing.node.root / "var/lib/kubelet/pod-resources/kubelet.sock"
    held = await DeviceHolders(socket, GPU).holders()
    containers = held.get((corner.namespace, name), {})
    return {
        each: sorted({share.rpartition("-")[0] for share in shares})
        for each, shares in containers.items()
    }


async def test_many_pods_at_once_get_what_each_was_given(
    corner: Corner, sharing: SharingNode, cluster: RealCluster
) -> None:
    gangs = [Gang(f"g{n}", 1, pod=pod(container("c", 1000 + n, n))) for n in range(1, 9)]

    await corner.submit(*gangs)

    for number, gang in enumerate(gangs, start=1):
        await wait_phase(corner, gang, "Running")
        seen = await printed(cluster, corner, f"g{number}-0", "c")
        assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{1000 + number}m"
        assert seen["CUDA_DEVICE_SM_LIMIT"] == str(number)
    await realshareplugin.wait_unlocked(corner.client)


async def test_an_unhealthy_card_takes_no_more_pods(
    corner: Corner, sharing: SharingNode, cluster: RealCluster
) -> None:
    sharing.describe(realshareplugin.gpus(problem="Xid 79: it has fallen off the bus"))
    realshareplugin.wait_offered(cluster, realshareplugin.SHARES)
    try:
        gang = Gang("careful", 2, pod=pod(container("c", 4000)))
        await corner.submit(gang)
        await wait_phase(corner, gang, "Running")
        seen = [await printed(cluster, corner, f"careful-{n}", "c") for n in range(2)]
        assert {each["NVIDIA_VISIBLE_DEVICES"] for each in seen} == {CARDS[1]}
    finally:
        sharing.describe(realshareplugin.gpus())


async def test_a_lock_of_another_scheduler_is_honoured_and_its_pod_is_served_first(
    corner: Corner, sharing: SharingNode, cluster: RealCluster
) -> None:
    """HAMi's scheduler has annotated and bound two pods that differ in their limits only."""
    for name, memory in (("left", 1111), ("right", 2222)):
        device = f"{CARDS[0]},NVIDIA,{memory},5:;"
        meta = {
            "name": name,
            "namespace": corner.namespace,
            "annotations": {
                names.ASSIGNED_NODE: realshareplugin.NAME,
                names.ASSIGNED_TIME: "1786000000",
                NVIDIA.allocated_key: device,
                NVIDIA.to_allocate_key: device,
                names.BIND_PHASE: "allocating",
                names.BIND_TIME: "1786000001",
            },
        }
        spec = pod(container("c", memory, 5), schedulerName="hami-scheduler")
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        await corner.client.create(PODS, body, corner.namespace)
    for name in ("left", "right"):
        value = NodeLock(1786000001, corner.namespace, name).encode()
        patch = {"metadata": {"annotations": {names.NODE_LOCK: value}}}
        await corner.client.patch(NODES, realshareplugin.NAME, patch)
        found = await corner.client.get(PODS, name, corner.namespace)
        await corner.client.bind(corner.namespace, name, found.metadata.uid, realshareplugin.NAME)
        await realshareplugin.wait_unlocked(corner.client)

    limits = [
        (await printed(cluster, corner, name, "c"))["CUDA_DEVICE_MEMORY_LIMIT_0"]
        for name in ("left", "right")
    ]
    assert limits == ["1111m", "2222m"]


@pytest.mark.parametrize(
    ("victim", "step"), STRIKES if IS_LONG else sorted(SAMPLE), ids=lambda word: word
)
async def test_a_kill_at_a_step_of_the_handshake_leaves_no_lock_and_no_card_over_its_limit(
    corner: Corner,
    sharing: SharingNode,
    cluster: RealCluster,
    binder: Component,
    victim: str,
    step: str,
) -> None:
    sharing.halt_at(step)
    # Both fill a card nearly: what is counted wrongly once shows at the second.
    job = Gang("job", 2, pod=pod(container("c", 6000), restartPolicy="Never"))
    await submit_job(corner, job)
    await sharing.wait_halted()

    match victim:
        case "plugin":
            sharing.kill_plugin()
        case "kubelet":
            sharing.node.kill("kubelet")
        case "binder":
            binder.kill()
    sharing.go_on()
    if victim == "binder":
        binder.restart()

    running = await wait_running(corner, job, 2)
    await realshareplugin.wait_unlocked(corner.client)
    await check_truth(corner, cluster, [pod.metadata.name for pod in running.values()])


async def check_truth(corner: Corner, cluster: RealCluster, running: list[str]) -> None:
    """Check that each running container got what its pod was given, and no card more than it has;
    and that each pod has a final phase.
    """

    async def all_final() -> bool:
        pods = await corner.client.list(PODS, namespace=corner.namespace)
        phases = [pod.metadata.annotations.get(names.BIND_PHASE) for pod in pods]
        return all(phase in (None, "success", "failed") for phase in phases)

    await wait_for(all_final, "each phase is final")
    texts = []
    for name in running:
        found = await corner.client.get(PODS, name, corner.namespace)
        text = found.metadata.annotations[NVIDIA.allocated_key]
        seen = await printed(cluster, corner, name, "c")
        uuid, _, memory, _ = text.rstrip(";:").split(",")
        assert seen["NVIDIA_VISIBLE_DEVICES"] == uuid
        assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{memory}m"
        assert found.metadata.annotations[names.BIND_PHASE] == "success"
        texts.append(text)
    assert max(realshareplugin.held_mib(texts).values()) <= realshareplugin.MEMORY_MIB


async def test_the_gpus_of_pods_that_another_device_plugin_serves_are_observed(
    corner: Corner, sharing: SharingNode, cluster: RealCluster
) -> None:
    """The last test: the node has another device plugin from here on."""
    sharing.give_whole_gpus()
    register = {"metadata": {"annotations": {NVIDIA.register_key: None}}}
    await corner.client.patch(NODES, realshareplugin.NAME, register)
    realshareplugin.wait_offered(cluster, len(CARDS))
    plain = container("c", 0)
    plain["resources"] = {"limits": {GPU: "1"}}
    gang = Gang("whole", 2, pod=pod(plain))

    await corner.submit(gang)

    await wait_phase(corner, gang, "Running")
    uuids = gpuplugin.devices(realshareplugin.NAME, len(CARDS))
    for name in ("whole-0", "whole-1"):
        seen = await printed(cluster, corner, name, "c")
        index = uuids.index(seen["NVIDIA_VISIBLE_DEVICES"])

        async def is_observed(name: str = name, index: int = index) -> bool:
            found = await corner.client.get(PODS, name, corner.namespace)
            return found.metadata.annotations.get(GPU_INDEXES_ANNOTATION) == str(index)

        await wait_for(is_observed, f"{name} has the index of its GPU")
