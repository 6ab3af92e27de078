"""A gang with stages on the real API server: selection by labels, and reserved room."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bindery.api.names import NODE_POOL_LABEL
from bindery.kube.objects.resources import POD_GROUPS, PODS
from devcluster.components import Component, Components
from devcluster.install import Installation
from tests.e2e.support import Corner, Observer, scheduler_configuration, wait_for
from tests.e2e.traps import ready, trapped

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("binder")]

CONTAINER = {"name": "main", "image": "main", "resources": {"requests": {"cpu": "1"}}}
LEADER = {"app": "serve", "role": "leader"}
WORKER = {"app": "serve", "role": "worker"}


@pytest.fixture
async def components(installation: Installation, tmp_path: Path) -> AsyncIterator[Components]:
    async with trapped(installation, "scheduler", tmp_path) as (_, made):
        yield made


async def start(components: Components, corner: Corner) -> Component:
    configuration = scheduler_configuration(corner.pool)
    return await ready(components.start_scheduler(configuration, name=f"scheduler-{corner.pool}"))


async def create_group(corner: Corner) -> None:
    workers = {
        "name": "workers",
        "minMember": 2,
        "podLabels": {"role": "worker"},
        "after": [{"subGroup": "leader", "condition": "Ready"}],
        # A number, as users write it in templates.
        "template": {"spec": {"containers": [{**CONTAINER, "resources": {"limits": {"cpu": 1}}}]}},
    }
    leader = {"name": "leader", "minMember": 1, "podLabels": {"role": "leader"}}
    body = {
        "apiVersion": "scheduling.bindery.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "serve", "labels": {NODE_POOL_LABEL: corner.pool}},
        "spec": {
            "members": [{"label": {"key": "app", "value": "serve"}}],
            "subGroups": [leader, workers],
        },
    }
    await corner.client.create(POD_GROUPS, body, corner.namespace)


async def create_pod(corner: Corner, name: str, labels: dict[str, str]) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {NODE_POOL_LABEL: corner.pool, **labels}},
        "spec": {
            "schedulerName": "bindery",
            "terminationGracePeriodSeconds": 0,
            "containers": [CONTAINER],
        },
    }
    await corner.client.create(PODS, body, corner.namespace)


async def wait_bound(corner: Corner, *names: str) -> None:
    async def bound() -> bool:
        pods = [await corner.client.get(PODS, name, corner.namespace) for name in names]
        return all(pod.spec.node_name for pod in pods)

    await wait_for(bound, f"{', '.join(names)} bound")


async def wait_refused(corner: Corner, name: str) -> None:
    async def refused() -> bool:
        pod = await corner.client.get(PODS, name, corner.namespace)
        conditions = pod.status.conditions or ()
        return any(c.type == "PodScheduled" and c.status == "False" for c in conditions)

    await wait_for(refused, f"{name} waits")


async def test_the_room_of_later_pods_is_kept_after_the_scheduler_was_killed(
    corner: Corner, observer: Observer, components: Components
) -> None:
    first = await start(components, corner)
    await corner.add_nodes("a", cpu="3")
    await create_pod(corner, "leader", LEADER)
    await wait_bound(corner, "leader")
    await create_group(corner)
    await create_pod(corner, "early", {})
    await wait_refused(corner, "early")

    first.kill()
    await start(components, corner)
    await create_pod(corner, "late", {})
    await wait_refused(corner, "late")

    await create_pod(corner, "worker-0", WORKER)
    await create_pod(corner, "worker-1", WORKER)
    await wait_bound(corner, "worker-0", "worker-1")
    for name in ("early", "late"):
        pod = await corner.client.get(PODS, name, corner.namespace)
        assert not pod.spec.node_name


async def test_a_first_stage_waits_until_the_later_stage_has_room(
    corner: Corner, observer: Observer, components: Components
) -> None:
    await start(components, corner)
    await corner.add_nodes("a", cpu="2")
    await create_group(corner)
    await create_pod(corner, "leader", LEADER)
    await wait_refused(corner, "leader")
    leader = await corner.client.get(PODS, "leader", corner.namespace)
    said = [c.message for c in leader.status.conditions or () if c.type == "PodScheduled"]
    assert "the later stage workers must fit at the same time" in said[0]

    await corner.add_nodes("b", cpu="1")
    await wait_bound(corner, "leader")
