"""Nodes with GPUs that pods share, and what tests ask of them."""

from collections.abc import Mapping

from support import Corner, Gang, wait_for

from bindery.api.configuration import PluginConfiguration
from bindery.api.gpushare import CONFIG_MAP_ANNOTATION
from bindery.api.names import POD_GROUP_ANNOTATION
from bindery.binder.plugins.gpu_sharing import admission
from bindery.controlplane.components import Component, Components
from bindery.kube.objects import Pod
from bindery.kube.resources import CONFIG_MAPS, PODS
from fakes.reservations import GpuDevicePlugins

HALF = {"gpu-fraction": "0.5"}


def start_gpu_nodes(components: Components, corner: Corner, count: int, gpus: int) -> Component:
    """Start hollow nodes in the corner's pool, named NAMESPACE-0 and so on."""
    options = [
        f"--node-pool={corner.pool}",
        f"--name-prefix={corner.namespace}-",
        f"--gpus={gpus}",
        "--remove-on-exit",
    ]
    return components.start_hollow_nodes(count, options, name=f"nodes-{corner.namespace}")


async def submit_share(corner: Corner, name: str, share: Mapping[str, str]) -> Pod:
    """Create a gang of one pod with a share, prepared as the webhook would."""
    await corner.create_group(Gang(name, size=1))
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-0",
            "namespace": corner.namespace,
            "labels": {"scheduling.bindery.dev/node-pool": corner.pool},
            "annotations": {POD_GROUP_ANNOTATION: name, **share},
        },
        "spec": {
            "schedulerName": "bindery",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "worker", "image": "worker"}],
        },
    }
    return await corner.client.create(PODS, admission.prepared(body), corner.namespace)


def sharing(deadline_s: float = 20.0) -> PluginConfiguration:
    return PluginConfiguration(name="gpu_sharing", arguments={"deadlineSeconds": deadline_s})


async def bound(corner: Corner, *names: str) -> list[Pod]:
    await corner.wait_bound(*(Gang(name, size=1) for name in names))
    return [await corner.client.get(PODS, f"{name}-0", corner.namespace) for name in names]


async def environment(corner: Corner, pod: Pod) -> dict[str, str]:
    """Return what the first container of `pod` reads from its ConfigMap."""
    name = f"{pod.metadata.annotations[CONFIG_MAP_ANNOTATION]}-0"
    found = await corner.client.get(CONFIG_MAPS, name, corner.namespace)
    return found.data or {}


async def wait_reservations(stand_in: GpuDevicePlugins, count: int) -> None:
    async def so_many() -> bool:
        return len(stand_in.reservations()) == count

    await wait_for(so_many, f"{count} reservations are there")
