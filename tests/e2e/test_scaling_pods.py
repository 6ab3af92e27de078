"""Scaling pods on the real API server, with the chart's roles. No autoscaler runs.

What is checked is what an autoscaler would see: pods with `PodScheduled=False`, `Unschedulable`.
"""

from collections.abc import Iterator

import pytest

from bindery.api.configuration import DEFAULT_PLUGINS, PluginConfiguration
from bindery.api.names import SCALED_BY_LABEL, SCALES_FOR_ANNOTATION
from bindery.api.scaling import ScalingArguments
from bindery.kube.errors import ApiError
from bindery.kube.objects.resources import PODS, PRIORITY_CLASSES
from bindery.kube.objects.watched import Pod
from bindery.scheduler.status.conditions import NO_ROOM_FOR_SHARE
from bindery.scheduler.status.scaling import owner_label
from devcluster.components import Component, Components
from devcluster.install import Installation, install
from devcluster.plane import ControlPlane
from fakes.reservations import GpuDevicePlugins
from tests.e2e.gpunodes import HALF, sharing, start_gpu_nodes, submit_share, submit_shares
from tests.e2e.support import Corner, Gang, binder_configuration, scheduler_configuration, wait_for
from tests.sizes import IS_LONG

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("binder")]

NAMESPACE = ScalingArguments().namespace
PLUGINS = (
    *(PluginConfiguration(name=name) for name in DEFAULT_PLUGINS),
    PluginConfiguration(name="scalingpods", arguments={"cooldownSeconds": 1}),
)


@pytest.fixture(scope="module")
def installation(control_plane: ControlPlane) -> Iterator[Installation]:
    """The chart with the plugin, which has a namespace; afterwards the chart without it."""
    plugins = [each.to_wire() for each in PLUGINS]
    yield install(control_plane, {"scheduler": {"configuration": {"plugins": plugins}}})
    control_plane.kubectl("delete", "--wait=false", f"namespace/{NAMESPACE}")
    install(control_plane)


@pytest.fixture(scope="module")
def binder(module_components: Components) -> Component:
    return module_components.start_binder(binder_configuration(sharing())).wait_ready()


@pytest.fixture
def scheduler(components: Components, pool: str) -> Component:
    return start_scheduler(components, pool)


def start_scheduler(components: Components, pool: str) -> Component:
    configuration = scheduler_configuration(pool).model_copy(update={"plugins": PLUGINS})
    return components.start_scheduler(configuration).wait_ready()


async def scaling_pods(corner: Corner) -> list[Pod]:
    owner = owner_label(scheduler_configuration(corner.pool))
    selector = f"{SCALED_BY_LABEL}={owner}"
    return await corner.client.list(PODS, namespace=NAMESPACE, label_selector=selector)


def covered(pods: list[Pod]) -> list[list[str]]:
    """Return the UIDs of the pods for which each of the marked scaling pods stands."""
    return sorted(
        sorted(pod.metadata.annotations[SCALES_FOR_ANNOTATION].split())
        for pod in pods
        if any(said.reason == "Unschedulable" for said in pod.status.conditions or ())
    )


async def wait_covered(corner: Corner, *groups: list[Pod]) -> list[Pod]:
    """Wait until there are exactly marked scaling pods for `groups` of pods."""
    expected = sorted(sorted(pod.metadata.uid for pod in group) for group in groups)

    found: list[Pod] = []

    async def is_so() -> bool:
        found[:] = await scaling_pods(corner)
        return len(found) == len(expected) and covered(found) == expected

    await wait_for(is_so, f"{len(expected)} scaling pods")
    return found


async def test_shares_get_a_scaling_pod_that_is_deleted_when_their_node_exists(
    corner: Corner, components: Components, scheduler: Component, stand_in: GpuDevicePlugins
) -> None:
    (a,) = await submit_shares(corner, "a", HALF)
    pair = await submit_shares(corner, "g", HALF, HALF)

    found = await wait_covered(corner, [a, pair[0]], [pair[1]])

    requests = [pod.spec.containers[0].resources for pod in found]
    assert [each.requests["nvidia.com/gpu"] for each in requests if each and each.requests] == [
        "1",
        "1",
    ]

    async def is_hidden() -> bool:
        pod = await corner.client.get(PODS, a.metadata.name, corner.namespace)
        return [each.reason for each in pod.status.conditions or ()] == [NO_ROOM_FOR_SHARE]

    await wait_for(is_hidden, "autoscalers do not see the share itself")
    with pytest.raises(ApiError, match="schedulingGates"):
        await corner.client.bind(NAMESPACE, found[0].metadata.name, found[0].metadata.uid, "node")

    start_gpu_nodes(components, corner, 1, gpus=2).wait_ready()
    await corner.wait_bound(Gang("a", size=1), Gang("g", size=2))
    await wait_covered(corner)


async def test_a_scheduler_killed_at_any_time_leaves_one_set_of_scaling_pods(
    corner: Corner, components: Components, scheduler: Component
) -> None:
    (first,) = await submit_shares(corner, "first", HALF)
    for number in range(8 if IS_LONG else 2):
        scheduler.kill()
        scheduler = start_scheduler(components, corner.pool)
        (more,) = await submit_shares(corner, f"more{number}", {"gpu-fraction": "0.9"})
        await wait_for(lambda: scaling_pods(corner), "the first scaling pod")
        scheduler.kill()
        await corner.client.delete(PODS, more.metadata.name, corner.namespace)

    start_scheduler(components, corner.pool)

    await wait_covered(corner, [first])
    await corner.client.delete(PODS, first.metadata.name, corner.namespace)
    await wait_covered(corner)


async def test_a_refused_scaling_pod_is_an_event_of_its_share_and_does_not_delay_others(
    corner: Corner, components: Components
) -> None:
    name = f"{corner.namespace}-going"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1_000_000}
    await corner.client.create(PRIORITY_CLASSES, {**kind, "metadata": {"name": name}})
    await submit_share(corner, "a", HALF, priorityClassName=name)
    await corner.client.delete(PRIORITY_CLASSES, name)
    second = await submit_share(corner, "b", HALF)

    start_scheduler(components, corner.pool)

    await wait_covered(corner, [second])
    events = await wait_for(lambda: corner.events("ScalingPodRefused"), "the event is there")
    assert all(name in event.note for event in events)


async def test_a_deleted_scaling_pod_is_created_again_with_the_next_one(
    corner: Corner, scheduler: Component
) -> None:
    first = await submit_share(corner, "a", HALF)
    (found,) = await wait_covered(corner, [first])

    await corner.client.delete(PODS, found.metadata.name, NAMESPACE)
    second = await submit_share(corner, "b", {"gpu-fraction": "0.9"})

    await wait_covered(corner, [first], [second])
