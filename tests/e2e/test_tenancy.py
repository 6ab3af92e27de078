"""A tenant moves a running gang to another queue only with the right to assign to it."""

import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bindery.api.names import CHARGED_QUEUE_ANNOTATION, POD_GROUP_ANNOTATION
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects.resources import POD_GROUPS, PODS, Resource
from bindery.kube.objects.watched import KubeObject
from devcluster.components import Component, Components
from devcluster.install import Installation
from tests.e2e.support import Corner, Gang, scheduler_configuration, wait_for
from tests.e2e.tenants import tenant

pytestmark = pytest.mark.e2e

OLD = Gang("old", size=4)


class Event(KubeObject, frozen=True, kw_only=True):
    reason: str = ""
    note: str = ""


EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True, Event)


@pytest.fixture
async def tenant_client(installation: Installation, namespace: str) -> AsyncIterator[Client]:
    async with tenant(installation.control_plane, namespace) as made:
        yield made


def start_scheduler(components: Components, pool: str) -> Component:
    guarded = scheduler_configuration(pool).model_copy(update={"tenancy_policy_enforced": True})
    return components.start_scheduler(guarded).wait_ready()


async def filled(corner: Corner) -> tuple[str, str]:
    """Fill a queue's limit with a gang; return the queue and another without a limit."""
    await corner.add_nodes("n", cpu="16")
    limited = await corner.add_queue("limited", {"resources": {"cpu": {"limit": "4"}}})
    free = await corner.add_queue("free", {})
    await corner.submit(_in(limited, OLD))
    await corner.wait_bound(OLD)
    await charged_to(corner, limited)
    return limited, free


def _in(queue: str, gang: Gang) -> Gang:
    return Gang(gang.name, size=gang.size, queue=queue)


async def charged_to(corner: Corner, queue: str) -> None:
    """Wait until the gang's pods and its PodGroup have `queue`."""

    async def charged() -> bool:
        pods = await corner.pods(OLD)
        recorded = {pod.metadata.annotations.get(CHARGED_QUEUE_ANNOTATION) for pod in pods}
        group = await corner.client.get(POD_GROUPS, OLD.name, corner.namespace)
        return recorded == {queue} and group.status.queue == queue

    await wait_for(charged, f"{OLD.name} is charged to {queue}")


def deletion_warning(installation: Installation, corner: Corner) -> str:
    """Return kubectl's answer to a user who deletes the PodGroup, without deleting it."""
    plane = installation.control_plane
    command = [str(plane.kubectl_path), f"--kubeconfig={plane.admin_kubeconfig}", "delete"]
    command += ["--dry-run=server", f"--namespace={corner.namespace}", "podgroup", OLD.name]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return result.stderr


async def move(by: Client, corner: Corner, queue: str | None) -> None:
    patch = {"spec": {"queue": queue}}
    await by.patch(POD_GROUPS, OLD.name, patch, namespace=corner.namespace)


async def test_a_tenant_cannot_take_running_pods_out_of_their_queue(
    corner: Corner,
    components: Components,
    binder: Component,
    pool: str,
    installation: Installation,
    tenant_client: Client,
) -> None:
    scheduler = start_scheduler(components, pool)
    limited, free = await filled(corner)
    ours = corner.namespace

    with pytest.raises(ForbiddenError, match="takes the verb assign on that queue"):
        await move(tenant_client, corner, free)
    await move(tenant_client, corner, None)  # then the namespace decides, about other pods
    await charged_to(corner, limited)
    for queue in (free, "default"):
        with pytest.raises(ForbiddenError, match="takes the verb assign on that queue"):
            await move(tenant_client, corner, queue)
    await move(tenant_client, corner, limited)
    for pod in await corner.pods(OLD):
        for key in (POD_GROUP_ANNOTATION, CHARGED_QUEUE_ANNOTATION):
            patch: dict[str, Any] = {"metadata": {"annotations": {key: None}}}
            with pytest.raises(ForbiddenError, match=key):
                await tenant_client.patch(PODS, pod.metadata.name, patch, namespace=ours)
    warning = deletion_warning(installation, corner)
    assert f"its bound pods run on, and count in queue {limited} until they end" in warning
    await tenant_client.delete(POD_GROUPS, OLD.name, ours)

    following = _in(limited, Gang("next", size=1))
    await corner.submit(following)
    waits = await corner.wait_condition(following, "False", "OverLimit")
    assert "holds 4 of its limit of 4 cpu" in waits.message
    await wait_event(corner, "PodsRunOn", "4 pods still run")
    scheduler.kill()
    scheduler.restart()
    again = _in(limited, Gang("again", size=1))
    await corner.submit(again)
    await corner.wait_condition(again, "False", "OverLimit")
    assert await corner.bound_count(following) == 0


async def test_a_tenant_with_the_right_to_assign_moves_a_running_gang_to_a_queue(
    corner: Corner,
    components: Components,
    binder: Component,
    pool: str,
    installation: Installation,
    tenant_client: Client,
) -> None:
    scheduler = start_scheduler(components, pool)
    limited, free = await filled(corner)
    plane, name = installation.control_plane, f"{corner.namespace}-assign"
    plane.kubectl(
        "create",
        "clusterrole",
        name,
        "--verb=assign",
        "--resource=queues.scheduling.bindery.dev",
        f"--resource-name={free}",
    )
    account = f"--serviceaccount={corner.namespace}:tenant"
    plane.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
    try:

        async def moved() -> bool:
            try:
                await move(tenant_client, corner, free)
            except ForbiddenError:
                return False
            return True

        await wait_for(moved, "the role is in force")
        await charged_to(corner, free)
        with pytest.raises(ForbiddenError):
            await move(tenant_client, corner, limited)
    finally:
        plane.kubectl("delete", "clusterrolebinding,clusterrole", name)
    scheduler.kill()
    await corner.client.delete(POD_GROUPS, OLD.name, corner.namespace)
    start_scheduler(components, pool)
    following = _in(limited, Gang("next", size=4))
    await corner.submit(following)
    await corner.wait_bound(following)


async def wait_event(corner: Corner, reason: str, text: str) -> None:
    async def told() -> bool:
        client, namespace = corner.client, corner.namespace
        events = await client.list(EVENTS, namespace=namespace)
        return any(text in event.note and event.reason == reason for event in events)

    await wait_for(told, f"an event {reason}")
