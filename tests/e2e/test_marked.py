"""Gangs with the labels and annotations of other schedulers, on the real API server.

Grove, KubeRay and Kueue are played: the pods are as these write them.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from bindery.api.configuration import GrouperConfiguration, GrouperExpectation, LeaderElection
from bindery.api.names import MADE_BY_LABEL, NODE_POOL_LABEL
from bindery.kube.client import Client
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.resources import POD_GROUPS, PODS
from devcluster.components import Component, Components
from tests.administrator import Administrator
from tests.commandline import CommandLine
from tests.e2e.foreigncrds import CRDS, DEFINITIONS, KAI_GROUPS, VOLCANO_GROUPS
from tests.e2e.support import Corner, binder_configuration, scheduler_configuration, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder", "grouper")]


@pytest.fixture(scope="module")
def definitions(administrator: Administrator) -> Iterator[None]:
    """The kinds of KAI-Scheduler and Volcano are installed."""
    for each in DEFINITIONS:
        administrator(partial(_create, body=each))
    for each in DEFINITIONS:
        administrator(partial(_established, name=each["metadata"]["name"]))
    yield
    for each in DEFINITIONS:
        administrator(partial(_delete, name=each["metadata"]["name"]))


async def _create(client: Client, body: dict[str, Any]) -> None:
    await client.create(CRDS, body)


async def _delete(client: Client, name: str) -> None:
    await client.delete(CRDS, name)


async def _established(client: Client, name: str) -> None:
    async def is_so() -> bool:
        status = (await client.get(CRDS, name)).status or {}
        found = {each["type"]: each["status"] for each in status.get("conditions") or ()}
        return found.get("Established") == "True"

    await wait_for(is_so, f"{name} is established")


@pytest.fixture(scope="module")
def scheduler(module_components: Components, pool: str) -> Component:
    configuration = scheduler_configuration(pool).model_copy(
        update={"grouper": GrouperExpectation(wait_for_groups=True)}
    )
    return module_components.start_scheduler(configuration).wait_ready()


@pytest.fixture(scope="module")
def binder(module_components: Components) -> Component:
    return module_components.start_binder(binder_configuration()).wait_ready()


@pytest.fixture(scope="module")
def grouper(module_components: Components, definitions: None) -> Component:
    configuration = GrouperConfiguration(leader_election=LeaderElection(enabled=False))
    return module_components.start_grouper(configuration).wait_ready()


async def submit(
    corner: Corner,
    *names: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> None:
    container = {"name": "w", "image": "w", "resources": {"requests": {"cpu": "1"}}}
    for name in names:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": corner.namespace,
                "labels": {NODE_POOL_LABEL: corner.pool, **(labels or {})},
                "annotations": dict(annotations or {}),
            },
            "spec": {
                "schedulerName": "bindery",
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            },
        }
        await corner.client.create(PODS, body, corner.namespace)


async def bound(corner: Corner) -> list[str]:
    pods = await corner.client.list(PODS, namespace=corner.namespace)
    return sorted(pod.metadata.name for pod in pods if pod.spec.node_name)


async def wait_bound(corner: Corner, *names: str) -> None:
    async def is_so() -> bool:
        return await bound(corner) == sorted(names)

    await wait_for(is_so, f"{', '.join(names)} are bound")


async def wait_reason(corner: Corner, text: str) -> PodGroup:
    """Wait until the PodGroup that was written waits with `text` in its message."""

    async def said() -> PodGroup | None:
        label = f"{MADE_BY_LABEL}=grouper"
        for group in await corner.client.list(
            POD_GROUPS, namespace=corner.namespace, label_selector=label
        ):
            for each in group.status.conditions or ():
                if each.type == "Scheduled" and text in each.message:
                    return group
        return None

    found = await wait_for(said, f"a PodGroup says {text!r}")
    assert found is not None
    return found


async def create(corner: Corner, kind: Any, name: str, spec: Mapping[str, Any]) -> None:
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": corner.namespace},
        "spec": spec,
    }
    await corner.client.create(kind, body, corner.namespace)


async def test_a_gang_created_by_grove_for_kai_is_bound_whole(corner: Corner) -> None:
    await corner.add_nodes("a", cpu="2")
    for clique, count in (("decode", 2), ("prefill", 1)):
        await submit(
            corner,
            *(f"{clique}-{index}" for index in range(count)),
            annotations={"pod-group-name": "simple", "kai.scheduler/skip-podgrouper": "true"},
            labels={"kai.scheduler/subgroup-name": clique, "grove.io/podgang": "simple"},
        )
    await create(
        corner,
        KAI_GROUPS,
        "simple",
        {
            "minMember": 3,
            "subGroups": [
                {"name": "decode", "minMember": 2},
                {"name": "prefill", "minMember": 1},
            ],
        },
    )

    group = await wait_reason(corner, "insufficient cpu")
    assert await bound(corner) == []
    assert [each.name for each in group.spec.sub_groups] == ["decode", "prefill"]

    await corner.add_nodes("b", cpu="2")
    await wait_bound(corner, "decode-0", "decode-1", "prefill-0")


async def test_a_gang_created_by_kuberay_for_volcano_is_bound_whole(corner: Corner) -> None:
    await corner.add_nodes("a", cpu="2")
    mark = {"scheduling.k8s.io/group-name": "ray-llama-pg", "volcano.sh/task-spec": "workers"}
    await create(
        corner,
        VOLCANO_GROUPS,
        "ray-llama-pg",
        {"minMember": 3, "minResources": {"cpu": "3"}},
    )
    await submit(corner, "llama-head", "llama-w0", "llama-w1", annotations=mark)

    await wait_reason(corner, "2 of 3 pods fit")
    assert await bound(corner) == []

    await corner.add_nodes("b", cpu="2")
    await wait_bound(corner, "llama-head", "llama-w0", "llama-w1")


async def test_a_plain_pod_group_of_kueue_is_bound_whole(corner: Corner) -> None:
    await corner.add_nodes("a", cpu="4")
    marks: dict[str, Any] = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "plain"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"},
    }
    await submit(corner, "p0", "p1", **marks)

    await wait_reason(corner, "2 of 3 required pods exist")
    assert await bound(corner) == []

    await submit(corner, "p2", **marks)
    await wait_bound(corner, "p0", "p1", "p2")


def test_a_live_cluster_is_migrated(
    administrator: Administrator,
    admin_kubeconfig: Path,
    command_line: CommandLine,
    namespace: str,
) -> None:
    body = {
        "apiVersion": KAI_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "mine", "namespace": namespace},
        "spec": {"minMember": 2, "queue": "vision", "markUnschedulable": False},
    }
    administrator(lambda client: client.create(KAI_GROUPS, body, namespace))

    done = command_line(f"--kubeconfig={admin_kubeconfig}", "migrate", "kai")

    assert done.returncode == 0, done.stderr
    (made,) = [
        each
        for each in yaml.safe_load_all(done.stdout)
        if each["metadata"].get("namespace") == namespace
    ]
    assert made["metadata"]["name"] == "mine"
    assert (made["spec"]["minMember"], made["spec"]["queue"]) == (2, "vision")
    assert f"PodGroup {namespace}/mine" in done.stderr
    assert "spec.markUnschedulable" in done.stderr
