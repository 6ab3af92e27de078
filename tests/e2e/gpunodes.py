"""Nodes with GPUs that pods share, and what tests ask of them."""

from collections.abc import Mapping

import msgspec

from bindery.api.configuration import PluginConfiguration
from bindery.api.gpushare import (
    CONFIG_MAP_ANNOTATION,
    RESERVATION_NAMESPACE,
    groups,
    reservation_name,
)
from bindery.api.names import POD_GROUP_ANNOTATION
from bindery.binder.plugins.gpusharing import admission
from bindery.binder.plugins.gpusharing.objects import SHARERS, Sharer
from bindery.kube.objects.resources import CONFIG_MAPS, EVENTS, PODS, Resource
from bindery.kube.objects.watched import KubeObject, Meta, Pod
from devcluster.components import Component, Components
from fakes.reservations import GpuDevicePlugins
from tests.e2e.support import Corner, Gang, wait_for

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


async def submit_share(corner: Corner, name: str, share: Mapping[str, str], **spec: object) -> Pod:
    """Create a gang of one pod with a share, prepared as the webhook would."""
    (pod,) = await submit_shares(corner, name, share, **spec)
    return pod


async def submit_shares(
    corner: Corner, name: str, *shares: Mapping[str, str], **spec: object
) -> list[Pod]:
    """Create a gang of pods with `shares`, prepared as the webhook would.

    `spec`: further fields of the spec of the pods.
    """
    await corner.create_group(Gang(name, size=len(shares)))
    pods = []
    for number, share in enumerate(shares):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": corner.namespace,
                "labels": {"scheduling.bindery.dev/node-pool": corner.pool},
                "annotations": {POD_GROUP_ANNOTATION: name, **share},
            },
            "spec": {
                "schedulerName": "bindery",
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "worker", "image": "worker"}],
                **spec,
            },
        }
        prepared = admission.prepared(body)
        pods.append(await corner.client.create(PODS, prepared, corner.namespace))
    return pods


async def delete_reservation(corner: Corner, stand_in: GpuDevicePlugins, user: Pod) -> None:
    """Delete the reservation pod of `user` by hand, and wait until it is gone."""
    name = reservation_name(user.spec.node_name, *groups(user.metadata.labels))
    (uid,) = (p.metadata.uid for p in stand_in.reservations() if p.metadata.name == name)
    await corner.client.delete(SHARERS, name, RESERVATION_NAMESPACE, grace_period_s=0)

    async def gone() -> bool:
        return all(pod.metadata.uid != uid for pod in stand_in.reservations())

    await wait_for(gone, "the reservation is gone")


async def wait_healed(stand_in: GpuDevicePlugins, user: Pod) -> Sharer:
    """Wait until the reservation of `user` has its device annotation; return the reservation."""
    name = reservation_name(user.spec.node_name, *groups(user.metadata.labels))

    async def healed() -> Sharer | None:
        found = (pod for pod in stand_in.reservations() if pod.metadata.name == name)
        return next((pod for pod in found if pod.index), None)

    return await wait_for(healed, "the reservation is made again")


class PodEvent(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    reason: str = ""
    note: str = ""
    regarding: Meta = msgspec.field(default_factory=Meta)


POD_EVENTS = Resource(EVENTS.group, EVENTS.version, EVENTS.plural, EVENTS.kind, True, PodEvent)


async def wait_event(corner: Corner, pod: Pod, reason: str) -> str:
    """Wait for an event of `reason` at `pod`; return its note."""

    async def noted() -> str:
        found = await corner.client.list(POD_EVENTS, namespace=corner.namespace)
        notes = (
            e.note for e in found if e.reason == reason and e.regarding.uid == pod.metadata.uid
        )
        return next(notes, "")

    return await wait_for(noted, f"an event {reason} is written")


def sharing(deadline_s: float = 20.0) -> PluginConfiguration:
    return PluginConfiguration(name="gpusharing", arguments={"deadlineSeconds": deadline_s})


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
