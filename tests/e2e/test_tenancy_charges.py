"""Owners cannot extend the grants of running pods: non-preemptible room, or an exclusive rack."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from bindery.api.names import (
    CHARGED_PREEMPTIBILITY_ANNOTATION,
    EXCLUSIVE_DOMAINS_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
)
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError, KubeError
from bindery.kube.objects.resources import NODES, POD_GROUPS, PODS, PRIORITY_CLASSES
from devcluster.components import Component, Components
from devcluster.install import Installation
from tests.e2e.support import Corner, Gang, scheduler_configuration, wait_for
from tests.e2e.tenants import tenant

pytestmark = pytest.mark.e2e

RACK = "example.com/rack"
IN_RACK = {"required": RACK, "exclusive": True}
JOBSET = {"alpha.jobset.sigs.k8s.io/exclusive-topology": RACK}
JOB_KEY = {"jobset.sigs.k8s.io/job-key": "key0"}


@pytest.fixture
async def tenant_client(installation: Installation, namespace: str) -> AsyncIterator[Client]:
    async with tenant(installation.control_plane, namespace) as made:
        yield made


@pytest.fixture
async def high(client: Client, namespace: str) -> AsyncIterator[str]:
    """A PriorityClass whose pods are non-preemptible."""
    name = f"{namespace}-high"
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1000,
    }
    await client.create(PRIORITY_CLASSES, body)
    yield name
    await client.delete(PRIORITY_CLASSES, name)


def start_scheduler(components: Components, pool: str) -> Component:
    guarded = scheduler_configuration(pool).model_copy(update={"tenancy_policy_enforced": True})
    return components.start_scheduler(guarded).wait_ready()


async def annotate(by: Client, corner: Corner, name: str, key: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {key: value}}}
    await by.patch(PODS, name, patch, namespace=corner.namespace)


async def write_record(by: Client, corner: Corner, name: str, key: str, value: str) -> None:
    """Try to write a record by every way to a pod; no way may lead to it."""
    metadata = {"annotations": {key: value}}
    before = await corner.client.get(PODS, name, corner.namespace)
    for body in ({"metadata": metadata}, {"metadata": {"annotations": {key: None}}}):
        for subresource in ("", "status", "resize", "ephemeralcontainers"):
            with contextlib.suppress(KubeError):
                await by.patch(
                    PODS, name, body, namespace=corner.namespace, subresource=subresource
                )
    after = await corner.client.get(PODS, name, corner.namespace)
    assert after.metadata.annotations.get(key) == before.metadata.annotations.get(key)


async def recorded(corner: Corner, gang: Gang) -> set[str | None]:
    pods = await corner.pods(gang)
    return {pod.metadata.annotations.get(CHARGED_PREEMPTIBILITY_ANNOTATION) for pod in pods}


async def test_running_pods_over_the_quota_cannot_become_non_preemptible(
    corner: Corner,
    components: Components,
    binder: Component,
    pool: str,
    tenant_client: Client,
    high: str,
) -> None:
    scheduler = start_scheduler(components, pool)
    await corner.add_nodes("n", cpu="16")
    small = await corner.add_queue("small", {"resources": {"cpu": {"quota": "4"}}})
    entitled = await corner.add_queue("entitled", {"resources": {"cpu": {"quota": "12"}}})
    old = Gang("old", size=4, cpu="4", queue=small)
    await corner.submit(old)
    await corner.wait_bound(old)
    assert await recorded(corner, old) == {"Preemptible"}

    for index in range(old.size):
        await annotate(tenant_client, corner, f"old-{index}", PREEMPTIBLE_ANNOTATION, "false")
    await write_record(
        tenant_client, corner, "old-0", CHARGED_PREEMPTIBILITY_ANNOTATION, "NonPreemptible"
    )
    spec = {"preemptibility": "NonPreemptible", "priorityClassName": high}
    await tenant_client.patch(POD_GROUPS, old.name, {"spec": spec}, namespace=corner.namespace)

    async def told() -> bool:
        events = await corner.events("NonPreemptibleOverQuota")
        return any("bound pods stay preemptible" in event.note for event in events)

    await wait_for(told, "the owner is told")
    scheduler.kill()
    scheduler.restart()
    wants = Gang("wants", size=3, cpu="4", queue=entitled)
    await corner.submit(wants)
    await corner.wait_bound(wants)


async def test_pods_within_the_quota_become_and_stay_non_preemptible_after_a_restart(
    corner: Corner,
    components: Components,
    binder: Component,
    pool: str,
    tenant_client: Client,
) -> None:
    scheduler = start_scheduler(components, pool)
    await corner.add_nodes("n", cpu="16")
    own = await corner.add_queue("own", {"resources": {"cpu": {"quota": "16"}}})
    old = Gang("old", size=2, cpu="4", queue=own)
    await corner.submit(old)
    await corner.wait_bound(old)

    spec = {"preemptibility": "NonPreemptible"}
    await tenant_client.patch(POD_GROUPS, old.name, {"spec": spec}, namespace=corner.namespace)

    async def granted() -> bool:
        return await recorded(corner, old) == {"NonPreemptible"}

    await wait_for(granted, "the grant is recorded")
    scheduler.kill()
    scheduler.restart()
    more = Gang("more", size=3, cpu="4", queue=own, group=spec)
    await corner.submit(more)
    await corner.wait_condition(more, "False", "NonPreemptibleOverQuota")
    await tenant_client.patch(
        POD_GROUPS,
        old.name,
        {"spec": {"preemptibility": "Preemptible"}},
        namespace=corner.namespace,
    )

    async def given_up() -> bool:
        return await recorded(corner, old) == {"Preemptible"}

    await wait_for(given_up, "the change is recorded")


async def put_on(by: Client, corner: Corner, name: str, node: str, **metadata: Any) -> None:
    """Create a pod of 1m that its owner has put on a node."""
    requests = {"resources": {"requests": {"cpu": "1m"}}}
    body: Mapping[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {
            "schedulerName": "bindery",
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "worker", "image": "worker", **requests}],
        },
    }
    await by.create(PODS, body, corner.namespace)


async def test_a_tenant_cannot_close_a_rack_that_was_not_granted(
    corner: Corner, components: Components, binder: Component, pool: str, tenant_client: Client
) -> None:
    scheduler = start_scheduler(components, pool)
    nodes = await corner.add_nodes("a", "b", "c", cpu="4")
    for node in nodes:
        await corner.client.patch(NODES, node, {"metadata": {"labels": {RACK: node}}})
    ours = corner.namespace
    runs = Gang("runs", size=1, cpu="1m", pod={"nodeSelector": {RACK: nodes[0]}})
    await corner.submit(runs)
    await corner.wait_bound(runs)

    # The topology of a running gang, the annotation on bound pods, and pods put on nodes by hand.
    await tenant_client.patch(
        POD_GROUPS, runs.name, {"spec": {"topology": IN_RACK}}, namespace=ours
    )
    await tenant_client.patch(
        PODS, "runs-0", {"metadata": {"annotations": JOBSET, "labels": JOB_KEY}}, namespace=ours
    )
    await write_record(tenant_client, corner, "runs-0", EXCLUSIVE_DOMAINS_ANNOTATION, "{}")
    await put_on(tenant_client, corner, "by-hand", nodes[1], annotations=JOBSET, labels=JOB_KEY)
    forged = {EXCLUSIVE_DOMAINS_ANNOTATION: "{}", **JOBSET}
    with pytest.raises(ForbiddenError):
        await put_on(tenant_client, corner, "forged", nodes[1], annotations=forged, labels=JOB_KEY)

    spread = {"topologySpreadConstraints": [_one_each()]}
    wide = Gang("wide", size=3, cpu="2", labels={"app": "wide"}, pod=spread)
    await corner.submit(wide)
    await corner.wait_bound(wide)
    scheduler.kill()
    scheduler.restart()
    again = Gang("again", size=3, cpu="1", labels={"app": "wide"}, pod=spread)
    await corner.submit(again)
    await corner.wait_bound(again)


def _one_each() -> Mapping[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "wide"}},
    }


async def test_a_granted_rack_is_recorded_and_kept_after_a_restart(
    corner: Corner, components: Components, binder: Component, pool: str
) -> None:
    scheduler = start_scheduler(components, pool)
    nodes = await corner.add_nodes("a", "b", cpu="4")
    for node in nodes:
        await corner.client.patch(NODES, node, {"metadata": {"labels": {RACK: node}}})
    alone = Gang("alone", size=1, group={"topology": IN_RACK})
    await corner.submit(alone)
    await corner.wait_bound(alone)
    (pod,) = await corner.pods(alone)
    assert RACK in pod.metadata.annotations[EXCLUSIVE_DOMAINS_ANNOTATION]

    scheduler.kill()
    scheduler.restart()
    others = Gang("others", size=4, cpu="1")
    more = Gang("more", size=1, cpu="1")
    await corner.submit(others)
    await corner.wait_bound(others)
    assert {each.spec.node_name for each in await corner.pods(others)} == {*nodes} - {
        pod.spec.node_name
    }
    await corner.submit(more)
    waits = await corner.wait_condition(more, "False", "Unschedulable")
    assert "in the exclusive domain of another gang" in waits.message
