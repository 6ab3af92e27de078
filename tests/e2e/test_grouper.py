"""Workloads of the real kube-controller-manager become gangs without PodGroups from users."""

import asyncio
from typing import Any

import pytest

from bindery.api import names
from bindery.api.configuration import GrouperExpectation
from bindery.kube.objects.resources import POD_GROUPS, PODS
from bindery.kube.objects.watched import Pod
from devcluster.components import Component, Components
from devcluster.install import Installation
from devcluster.plane import ControlPlane
from tests.administrator import Plain
from tests.e2e.support import (
    SHORT_LEASES,
    Corner,
    metric,
    samples,
    scheduler_configuration,
    wait_for,
)
from tests.e2e.traps import ready
from tests.e2e.workloads import CRON_JOBS, DEPLOYMENTS, JOBS, STATEFUL_SETS, Maker

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]


@pytest.fixture(scope="module")
def scheduler(module_components: Components, pool: str) -> Component:
    configuration = scheduler_configuration(pool).model_copy(
        update={
            "grouper": GrouperExpectation(wait_for_groups=True),
            "tenancy_policy_enforced": True,
        }
    )
    return module_components.start_scheduler(configuration).wait_ready()


@pytest.fixture(scope="module")
def grouper(module_components: Components, installation: Installation) -> Component:
    configuration = installation.grouper_configuration
    quick = configuration.model_copy(update={"leader_election": SHORT_LEASES})
    return module_components.start_grouper(quick).wait_ready()


@pytest.fixture
def maker(corner: Corner) -> Maker:
    return Maker(corner)


async def test_each_workload_kind_of_kubernetes_gets_its_pod_groups(
    maker: Maker, grouper: Component
) -> None:
    await maker.corner.add_nodes("a", cpu="16")
    made = [
        (JOBS, maker.job("train", 3)),
        (CRON_JOBS, maker.cron_job("nightly", 2)),
        (DEPLOYMENTS, maker.server("Deployment", "web", 2)),
        (STATEFUL_SETS, maker.server("StatefulSet", "store", 2)),
    ]
    owners = {body["kind"]: await maker.create(resource, body) for resource, body in made}
    await start_now(maker, "nightly", owners["CronJob"])

    groups = {
        group.metadata.owner_references[0].name: group for group in await maker.wait_groups(4)
    }

    assert groups["train"].spec["minMember"] == 3
    assert groups["train"].spec["members"] == [{"controller": owners["Job"].metadata.uid}]
    assert groups["nightly-now"].spec["minMember"] == 2
    assert groups["store"].spec["minMember"] == 1
    (web,) = (group for name, group in groups.items() if name.startswith("web-"))
    assert web.spec["minMember"] == 0
    assert web.metadata.owner_references[0].kind == "ReplicaSet"
    for group in groups.values():
        assert group.metadata.labels[names.MADE_BY_LABEL] == names.MADE_BY_GROUPER
        assert group.metadata.labels[names.NODE_POOL_LABEL] == maker.corner.pool
    for app, size in (("train", 3), ("nightly", 2), ("web", 2), ("store", 2)):
        await maker.wait_bound(app, size)
    assert metric(grouper, "bindery_grouper_writes_total", verb="create") >= 4
    assert metric(grouper, "bindery_grouper_writes_total", verb="update") == 0, "once is enough"
    assert metric(grouper, "bindery_api_requests_total", resource="pods", verb="patch") == 0
    calls = [s for s in samples(grouper) if s.name == "bindery_api_requests_total"]
    assert [s for s in calls if s.labels["code"] in ("401", "403")] == []


async def test_events_of_victims_name_the_job_that_they_were_evicted_for(
    maker: Maker,
    grouper: Component,  # it makes the PodGroups
) -> None:
    corner = maker.corner
    await corner.add_nodes("a", cpu="2")
    rich = await corner.add_queue("rich", {"resources": {"cpu": {"quota": 0}}})
    poor = await corner.add_queue("poor", {"resources": {"cpu": {"quota": 2}}})
    for name, queue in (("borrows", rich), ("owns", poor)):
        body = maker.job(name, 2)
        body["metadata"].setdefault("labels", {})[names.QUEUE_LABEL] = queue
        await maker.create(JOBS, body)
        if name == "borrows":
            await maker.wait_bound(name, 2)

    async def told() -> bool:
        notes = {(each.regarding["kind"], each.note) for each in await corner.events("Evicted")}
        reason = f"reclaim for Job owns (queue {poor})"
        return {("Pod", reason), ("PodGroup", reason), ("Job", reason)} <= notes

    async def room_is_made() -> bool:
        return any("(Job borrows)" in each.note for each in await corner.events("RoomMade"))

    await wait_for(told, "pod, gang and Job read the name of the Job")
    await wait_for(room_is_made, "the claimant reads the name of the Job")


async def test_the_last_pod_of_a_job_runs_after_the_others_succeeded_and_were_deleted(
    maker: Maker, grouper: Component
) -> None:
    """With the minimum of the first wave it would wait for ever."""
    client, namespace = maker.corner.client, maker.corner.namespace
    await maker.corner.add_nodes("a", cpu="3")
    waves = maker.job("waves", 3)
    waves["spec"]["completions"] = 4
    await maker.create(JOBS, waves)
    first = await maker.wait_bound("waves", 3)
    (group,) = await maker.groups()
    assert group.spec["minMember"] == 3

    for pod in first:  # the part of the kubelet
        done = {"status": {"phase": "Succeeded"}}
        await client.patch(PODS, pod.metadata.name, done, namespace=namespace, subresource="status")
        await client.delete(PODS, pod.metadata.name, namespace)

    async def last_is_bound() -> bool:
        pods = await maker.pods("waves")
        return len(pods) == 1 and bool(pods[0].spec.node_name)

    async def minimum_is_one() -> bool:
        (group,) = await maker.groups()
        return int(group.spec.get("minMember", 1)) == 1

    await wait_for(last_is_bound, "the last pod is alone and bound")
    # Bound while the others were there and succeeded, it comes before the new minimum.
    await wait_for(minimum_is_one, "the minimum is that of the pods that are left")


async def test_an_error_in_one_workload_is_reported_there_and_does_not_affect_others(
    maker: Maker, grouper: Component
) -> None:
    """An owner of a kind that is not installed, and a queue that waits for bound pods to end."""
    client, namespace = maker.corner.client, maker.corner.namespace
    await maker.corner.add_nodes("a", cpu="3")
    reference = {"apiVersion": "nobody.example.com/v1", "kind": "Lost", "name": "x", "uid": "u-1"}
    lost = maker.job("lost", 1)
    lost["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    await maker.create(JOBS, lost)
    moved = await maker.create(JOBS, maker.job("moved", 2))
    await maker.wait_bound("moved", 2)

    async def charged() -> bool:
        groups = await maker.corner.client.list(POD_GROUPS, namespace=namespace)
        owners = {group.metadata.owner_references[0].name: group.status.queue for group in groups}
        return bool(owners["moved"])

    await wait_for(charged, "the pods are charged to their queue")
    patch = {"metadata": {"labels": {names.QUEUE_LABEL: "research"}}}
    await client.patch(JOBS, moved.metadata.name, patch, namespace=namespace)

    async def told(reason: str, name: str) -> bool:
        found = await maker.corner.events(reason)
        return name in {event.regarding["name"] for event in found}

    await wait_for(lambda: told("OwnerNotReadable", "x"), "it is said where the walk ends")
    await wait_for(lambda: told("QueueKept", "moved"), "the queue of bound pods is kept")
    owners = {each.metadata.owner_references[0].name: each for each in await maker.groups()}
    assert owners["moved"].spec.get("queue") is None
    assert owners["lost"].spec.get("minMember", 1) == 1


async def test_a_pod_group_is_kept_while_it_has_bound_pods(
    maker: Maker, grouper: Component
) -> None:
    client, namespace = maker.corner.client, maker.corner.namespace
    await maker.corner.add_nodes("a", cpu="3")  # the marker takes no room of train
    await maker.create(JOBS, maker.job("train", 2))
    first, second = await maker.wait_bound("train", 2)
    (group,) = await maker.groups()

    async def skip(pod: Pod) -> None:
        patch = {"metadata": {"annotations": {names.SKIP_GROUPER_KEY: "true"}}}
        await client.patch(PODS, pod.metadata.name, patch, namespace=namespace)

    await skip(first)
    await skip(second)
    await maker.create(JOBS, maker.job("marker", 1))
    both = await maker.wait_groups(2)  # the marker's pods came later than the change
    assert group.metadata.uid in {each.metadata.uid for each in both}

    for pod in (first, second):
        await client.delete(PODS, pod.metadata.name, namespace)
    await maker.wait_bound("train", 2)  # the Job's new pods have no annotation
    assert group.metadata.uid in {each.metadata.uid for each in await maker.groups()}


async def start_now(maker: Maker, name: str, cron_job: Plain) -> None:
    """Start a Job of a CronJob at once, as `kubectl create job --from` does."""
    reference = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": name,
        "uid": cron_job.metadata.uid,
        "controller": True,
    }
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{name}-now", "ownerReferences": [reference]},
        "spec": cron_job.spec["jobTemplate"]["spec"],
    }
    await maker.create(JOBS, job)


async def test_a_label_of_an_owner_is_effective_while_it_exists(
    maker: Maker, grouper: Component
) -> None:
    job = await maker.create(JOBS, maker.job("train", 2))
    await maker.wait_groups(1)

    async def spec_has(field: str, value: str | None) -> None:
        async def has() -> bool:
            return [group.spec.get(field) for group in await maker.groups()] == [value]

        await wait_for(has, f"{field} is {value}")

    async def user_is(value: str | None) -> None:
        async def has() -> bool:
            found = [group.metadata.labels.get(names.USER_KEY) for group in await maker.groups()]
            return found == [value]

        await wait_for(has, f"the user is {value}")

    async def asks_for_nodes(value: str | None) -> None:
        async def has() -> bool:
            key = names.PROVISIONING_REQUEST_ANNOTATION
            found = [group.metadata.annotations.get(key) for group in await maker.groups()]
            return found == [value]

        await wait_for(has, f"the wish for nodes is {value}")

    async def label(value: str | None, user: str | None, nodes: str | None) -> None:
        labels = {names.QUEUE_LABEL: value, names.USER_KEY: user}
        annotations = {names.PROVISIONING_REQUEST_ANNOTATION: nodes}
        patch = {"metadata": {"labels": labels, "annotations": annotations}}
        await maker.corner.client.patch(
            JOBS, job.metadata.name, patch, namespace=maker.corner.namespace
        )

    await label("research", "ann", "true")
    await spec_has("queue", "research")
    await user_is("ann")
    await asks_for_nodes("true")
    (group,) = await maker.groups()
    assert "Job/train" in group.metadata.annotations[names.SOURCES_ANNOTATION]

    await label(None, None, None)
    await spec_has("queue", None)
    await user_is(None)
    await asks_for_nodes(None)


async def test_a_job_waits_for_the_grouper_and_then_runs_whole_to_completion(
    maker: Maker, grouper: Component, components: Components
) -> None:
    corner = maker.corner
    options = [f"--node-pool={corner.pool}", f"--name-prefix={corner.namespace}-", "--cpu=4"]
    await ready(components.start_hollow_nodes(1, [*options, "--remove-on-exit"]))
    grouper.kill()
    seconds = {names.HOLLOW_RUN_SECONDS_ANNOTATION: "0.5"}
    await maker.create(JOBS, maker.job("train", 4, annotations=seconds))

    async def says_so() -> bool:
        pods = await maker.pods("train")
        messages = [c.message for pod in pods for c in pod.status.conditions or ()]
        return len([message for message in messages if "the grouper" in message]) == 4

    await wait_for(says_so, "its pods say that they wait for a group")
    await asyncio.to_thread(grouper.restart)

    async def complete() -> bool:
        job = await corner.client.get(JOBS, "train", corner.namespace)
        return bool((job.status or {}).get("succeeded") == 4)

    await wait_for(complete, "the Job is complete")
    assert len(await maker.groups()) == 1
    assert metric(grouper, "bindery_grouper_writes_total", verb="update") == 0


async def test_the_group_of_an_orphaned_job_is_deleted_and_its_pods_continue(
    maker: Maker, grouper: Component, control_plane: ControlPlane
) -> None:
    """The garbage collector removes the references to the Job, and so deletes nothing."""
    await maker.corner.add_nodes("a", cpu="16")
    await maker.create(JOBS, maker.job("train", 3))
    (before,) = await maker.wait_groups(1)
    bound = {pod.metadata.uid for pod in await maker.wait_bound("train", 3)}

    await asyncio.to_thread(
        control_plane.kubectl,
        *("delete", "job", "train", "--cascade=orphan", f"--namespace={maker.corner.namespace}"),
    )

    async def have_own_groups() -> bool:
        owners = [each.metadata.owner_references for each in await maker.groups()]
        return {each[0].uid for each in owners if each} == bound and all(owners)

    await wait_for(have_own_groups, "the only PodGroups are those of the single pods")
    assert before.metadata.uid not in {each.metadata.uid for each in await maker.groups()}
    assert {pod.metadata.uid for pod in await maker.wait_bound("train", 3)} == bound
