"""Requests of tenants that the chart's admission policy refuses or permits."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from bindery.api.hami.names import DEVICES_RECORD
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects.resources import PODS
from devcluster.install import Installation
from tests.e2e.support import Corner, wait_for
from tests.e2e.tenants import tenant

pytestmark = pytest.mark.e2e

OURS = "scheduling.bindery.dev/"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
ALLOCATED = "hami.io/vgpu-devices-allocated"
RECORDED = {
    f"{OURS}pod-group": "gang",
    f"{OURS}charged-queue": "limited",
    f"{OURS}hami-devices": "somebody",
    "gpu-fraction": "0.9",
    "received-resource-type": "Fraction",
    TO_ALLOCATE: "GPU-a,NVIDIA,3000,30:;",
    ALLOCATED: "GPU-a,NVIDIA,3000,30:;",
}
LABELLED = {f"{OURS}queue": "limited", "runai-gpu-group": "g1", f"{OURS}node-pool": "p"}

Keys = Mapping[str, str | None]


@pytest.fixture
async def tenant_client(
    installation: Installation, client: Client, namespace: str
) -> AsyncIterator[Client]:
    """A tenant's client, once the API server holds to the policy."""
    async with tenant(installation.control_plane, namespace) as made:

        async def refused() -> bool:
            try:
                await create(made, namespace, "probe", {f"{OURS}charged-queue": "x"})
            except ForbiddenError:
                return True
            await client.delete(PODS, "probe", namespace, grace_period_s=0)
            return False

        await wait_for(refused, "the policy is in force")
        yield made


async def create(
    by: Client,
    namespace: str,
    name: str,
    annotations: Keys,
    labels: Keys | None = None,
    **spec: Any,
) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations, "labels": labels or {}},
        "spec": {
            "schedulerName": "bindery",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "worker", "image": "worker"}],
            **spec,
        },
    }
    await by.create(PODS, body, namespace)


async def change(by: Client, namespace: str, name: str, **metadata: Keys) -> None:
    await by.patch(PODS, name, {"metadata": metadata}, namespace=namespace)


@pytest.fixture
async def node(corner: Corner) -> str:
    (name,) = await corner.add_nodes("n")
    return name


async def test_an_owner_cannot_change_the_records_of_a_bound_pod(
    corner: Corner, tenant_client: Client, node: str
) -> None:
    ours = corner.namespace
    await create(corner.client, ours, "a", RECORDED, LABELLED, nodeName=node)

    attacks: list[dict[str, Keys]] = [
        {"annotations": {f"{OURS}pod-group": None}},
        {"annotations": {f"{OURS}pod-group": "other"}},
        {"annotations": {f"{OURS}charged-queue": "free"}},
        {"annotations": {f"{OURS}charged-queue": None}},
        {"annotations": {f"{OURS}anything": "new"}},
        {"annotations": {f"{OURS}gpu-indexes": "0"}},
        {"annotations": {DEVICES_RECORD: None}},
        {"annotations": {"gpu-fraction": "0.01"}},
        {"annotations": {"gpu-fraction": None}},
        {"annotations": {"gpu-fraction-num-devices": "2"}},
        {"annotations": {"received-resource-type": "Regular"}},
        {"annotations": {TO_ALLOCATE: "GPU-b,NVIDIA,81920,100:;"}},
        {"annotations": {ALLOCATED: ""}},
        {"annotations": {f"{OURS}gpus-idle-since": "2000-01-01T00:00:00Z"}},
        {"labels": {f"{OURS}queue": "free"}},
        {"labels": {f"{OURS}node-pool": "other"}},
        {"labels": {"runai-gpu-group": None}},
        {"labels": {"runai-gpu-group/g2": "g2"}},
        {"labels": {f"{OURS}shares-gpu": "true"}},
    ]
    for attack in attacks:
        with pytest.raises(ForbiddenError) as refused:
            await change(tenant_client, ours, "a", **attack)
        ((key, _),) = next(iter(attack.values())).items()
        assert key in refused.value.message, attack

    await change(tenant_client, ours, "a", annotations={"own": "1"}, labels={"own": "1"})
    await change(tenant_client, ours, "a", annotations={f"{OURS}preemptible": "true"})


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [
        ({"gpu-fraction": "0.5"}, {"runai-gpu-group": "invented"}),
        ({"gpu-fraction": "0.5"}, {}),
        ({}, {"runai-gpu-group/invented": "invented"}),
        ({ALLOCATED: "GPU-a,NVIDIA,3000,30:;"}, {}),
        ({f"{OURS}charged-queue": "free"}, {}),
        ({f"{OURS}charged-pod-group": "uid"}, {}),
        ({f"{OURS}granted-gpu-share": "{}"}, {}),
        ({DEVICES_RECORD: "{}"}, {}),
    ],
)
@pytest.mark.parametrize("scheduler", ["bindery", "default-scheduler", "hami-scheduler"])
async def test_a_pod_created_with_a_node_name_cannot_have_device_annotations(
    corner: Corner,
    tenant_client: Client,
    node: str,
    annotations: Keys,
    labels: Keys,
    scheduler: str,
) -> None:
    with pytest.raises(ForbiddenError):
        await create(
            tenant_client,
            corner.namespace,
            "a",
            annotations,
            labels,
            nodeName=node,
            schedulerName=scheduler,
        )


async def test_an_owner_can_change_requests_of_a_waiting_pod_but_not_add_records(
    corner: Corner, tenant_client: Client
) -> None:
    ours = corner.namespace
    asks = {f"{OURS}pod-group": "gang", "gpu-fraction": "0.5"}
    await create(tenant_client, ours, "a", asks, {f"{OURS}queue": "limited"})
    await change(tenant_client, ours, "a", annotations={"gpu-fraction": "0.2"})
    await change(tenant_client, ours, "a", labels={f"{OURS}queue": "free"})

    attacks: list[dict[str, Keys]] = [
        {"annotations": {TO_ALLOCATE: "GPU-a,NVIDIA,81920,100:;", ALLOCATED: ""}},
        {"annotations": {f"{OURS}charged-queue": "free"}},
        {"annotations": {"received-resource-type": "Fraction"}},
        {"labels": {"runai-gpu-group": "g"}},
        {"labels": {"hami.io/vgpu-node": "n"}},
    ]
    for number, attack in enumerate(attacks):
        with pytest.raises(ForbiddenError):
            await change(tenant_client, ours, "a", **attack)
        with pytest.raises(ForbiddenError):
            await create(tenant_client, ours, f"b{number}", **{"annotations": {}, **attack})


async def test_an_owner_cannot_change_records_of_the_binder_on_a_waiting_pod(
    corner: Corner, tenant_client: Client
) -> None:
    ours = corner.namespace
    await create(corner.client, ours, "a", RECORDED, LABELLED)

    for key in (TO_ALLOCATE, ALLOCATED, DEVICES_RECORD):
        for value in ("GPU-b,NVIDIA,81920,100:;", "", None):
            with pytest.raises(ForbiddenError, match=key):
                await change(tenant_client, ours, "a", annotations={key: value})


async def test_other_schedulers_can_annotate_their_own_pods(
    corner: Corner, tenant_client: Client
) -> None:
    ours = corner.namespace
    await create(tenant_client, ours, "kai", {"gpu-fraction": "0.5"}, schedulerName="kai-scheduler")
    await create(tenant_client, ours, "hami", {}, schedulerName="hami-scheduler")

    await change(tenant_client, ours, "kai", labels={"runai-gpu-group": "g"})
    await change(tenant_client, ours, "hami", annotations={TO_ALLOCATE: "GPU-a,NVIDIA,1,1:;"})


async def test_a_device_plugin_can_change_only_device_annotations(
    installation: Installation, corner: Corner, tenant_client: Client, node: str
) -> None:
    ours, plane = corner.namespace, installation.control_plane
    await create(corner.client, ours, "a", RECORDED, LABELLED, nodeName=node)
    binding = f"{ours}-plugin"
    subject = f"--serviceaccount={ours}:tenant"
    role = "--clusterrole=bindery-device-plugin"
    plane.kubectl("create", "clusterrolebinding", binding, role, subject)
    try:

        async def let_through() -> bool:
            try:
                served = {TO_ALLOCATE: ";;", "hami.io/bind-phase": "success"}
                await change(tenant_client, ours, "a", annotations=served)
            except ForbiddenError:
                return False
            return True

        await wait_for(let_through, "the role is in force")
        with pytest.raises(ForbiddenError):
            await change(tenant_client, ours, "a", annotations={f"{OURS}charged-queue": "free"})
    finally:
        plane.kubectl("delete", "clusterrolebinding", binding)
