"""Bindings are made void for the pod that is meant, and for no other of its name."""

import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bindery.api.names import VOID_BINDINGS_ANNOTATION
from bindery.kube.bindings import void_bindings
from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, InvalidError, NotFoundError
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Pod
from devcluster.plane import ControlPlane

pytestmark = pytest.mark.e2e

SUBRESOURCES = ["", "status"]
"""The binder writes the pod, the scheduler its status."""


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client.connect(control_plane.admin_kubeconfig, user_agent="bindery-test/0") as made:
        yield made


@pytest.fixture
async def pod(client: Client) -> AsyncIterator[Pod]:
    body: dict[str, Any] = {
        "metadata": {"name": f"void-{secrets.token_hex(4)}"},
        "spec": {
            "schedulerName": "none",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    made = await client.create(PODS, body, "default")
    yield made
    await client.delete(PODS, made.metadata.name, "default", grace_period_s=0)


@pytest.mark.parametrize("subresource", SUBRESOURCES)
async def test_the_pod_has_the_time_afterwards(client: Client, pod: Pod, subresource: str) -> None:
    meta = pod.metadata
    found = await void_bindings(
        client, PODS, "default", meta.name, meta.uid, subresource=subresource
    )

    assert VOID_BINDINGS_ANNOTATION in found.metadata.annotations
    assert found.metadata.resource_version != meta.resource_version


@pytest.mark.parametrize("subresource", SUBRESOURCES)
async def test_a_later_pod_of_the_name_is_a_conflict_and_stays_as_it_is(
    client: Client, pod: Pod, subresource: str
) -> None:
    name, other = pod.metadata.name, "00000000-0000-4000-8000-000000000000"
    with pytest.raises(ConflictError):
        await void_bindings(client, PODS, "default", name, other, subresource=subresource)

    found = await client.get(PODS, name, "default")
    assert found.metadata.resource_version == pod.metadata.resource_version
    with pytest.raises(NotFoundError):
        await void_bindings(client, PODS, "default", f"{name}-not", other, subresource=subresource)


async def test_another_refusal_of_the_pod_itself_is_no_conflict(client: Client, pod: Pod) -> None:
    refused = await client.patch(
        PODS,
        pod.metadata.name,
        {"metadata": {"annotations": {"large": "x" * 262_100}}},
        namespace="default",
    )
    with pytest.raises(InvalidError):
        await void_bindings(client, PODS, "default", refused.metadata.name, refused.metadata.uid)
