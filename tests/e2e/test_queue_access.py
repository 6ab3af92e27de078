"""Access of namespaces to queues, with the chart's roles and the real webhook."""

from collections.abc import Awaitable
from typing import Any

import pytest

from bindery.api.names import API_VERSION, ENABLED_LABEL, NODE_POOL_LABEL, QUEUE_LABEL
from bindery.kube.errors import ApiError
from bindery.kube.objects.resources import NAMESPACES, POD_GROUPS, PODS, QUEUES, Resource
from bindery.kube.objects.watched import KubeObject
from devcluster.components import Component
from tests.e2e.support import Corner, Gang, wait_for
from tests.e2e.webhooks import OneWebhook

pytestmark = pytest.mark.e2e


class Event(KubeObject, frozen=True, kw_only=True):
    reason: str = ""
    note: str = ""
    regarding: dict[str, Any] | None = None


EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True, Event)
JOBS = Resource("batch", "v1", "jobs", "Job", True, KubeObject)


def job(corner: Corner, name: str, queue: str = "", **spec: Any) -> dict[str, Any]:
    labels = {NODE_POOL_LABEL: corner.pool, **({QUEUE_LABEL: queue} if queue else {})}
    pod = {
        "schedulerName": "bindery",
        "restartPolicy": "Never",
        "containers": [{"name": "a", "image": "a"}],
        **spec,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": pod}},
    }


async def label(corner: Corner, **labels: str | None) -> None:
    named = {"queue": QUEUE_LABEL, "enabled": ENABLED_LABEL}
    patch = {"metadata": {"labels": {named[key]: value for key, value in labels.items()}}}
    await corner.client.patch(NAMESPACES, corner.namespace, patch)


async def refusal(work: Awaitable[object]) -> str:
    """Return the message of the API server that refuses `work`; "" if it does not."""
    try:
        await work
    except ApiError as error:
        return error.message
    return ""


async def test_without_the_webhook_the_pod_waits_and_its_job_reports_the_reason(
    corner: Corner, scheduler: Component
) -> None:
    queue = await corner.add_queue("closed", {"namespaces": {"names": ["nobody"]}})
    await corner.client.create(JOBS, job(corner, "a", queue), corner.namespace)
    await corner.client.create(JOBS, job(corner, "b", "no-such-queue"), corner.namespace)

    async def waits() -> bool:
        pods = await corner.client.list(PODS, namespace=corner.namespace)
        said = [each for pod in pods for each in pod.status.conditions or ()]
        return any(f"may not use queue {queue}" in each.message for each in said)

    async def told() -> bool:
        events = await corner.client.list(EVENTS, namespace=corner.namespace)
        at_jobs = {
            (event.reason, (event.regarding or {}).get("name"))
            for event in events
            if (event.regarding or {}).get("kind") == "Job"
        }
        return at_jobs >= {("NamespaceNotAllowed", "a"), ("QueueDoesNotExist", "b")}

    await wait_for(waits, "the pod's condition has the reason")
    await wait_for(told, "events stand at the Jobs")
    await corner.client.delete(JOBS, "a", corner.namespace)
    await corner.client.delete(JOBS, "b", corner.namespace)


@pytest.mark.usefixtures("scheduler", "binder")
async def test_the_label_of_the_namespace_sets_the_queue_of_gangs_and_pods(corner: Corner) -> None:
    await corner.add_nodes("n")
    small = await corner.add_queue("small", {"resources": {"cpu": {"limit": "1"}}})
    await label(corner, queue=small)
    gang = Gang("g", size=1, queue="")
    await corner.submit(gang)
    await corner.wait_bound(gang)

    second = Gang("second", size=1, queue="")
    await corner.submit(second)

    async def waits() -> bool:
        group = await corner.client.get(POD_GROUPS, "second", corner.namespace)
        return any(f"queue {small}" in each.message for each in group.status.conditions or ())

    await wait_for(waits, "the limit of the namespace's queue holds")


@pytest.mark.usefixtures("installation", "serving")
class TestWithTheWebhook(OneWebhook):
    """These share a namespace and a webhook."""

    async def test_objects_without_access_to_a_queue_are_refused_with_the_reason(
        self, corner: Corner
    ) -> None:
        queue = await corner.add_queue("closed", {"namespaces": {"names": ["nobody"]}})
        create, namespace = corner.client.create, corner.namespace
        said = f"namespace {namespace} may not use queue {queue}"
        template = job(corner, "a", queue)["spec"]["template"]
        group = {
            "apiVersion": API_VERSION,
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"queue": queue},
        }
        pod = {"metadata": {"name": "p", **template["metadata"]}, "spec": template["spec"]}

        async def refused() -> bool:  # once the webhook's watch has the queue
            dry = job(corner, "a", queue)
            message = await refusal(create(JOBS, dry, namespace))
            if not message:
                await corner.client.delete(JOBS, "a", namespace)
            return said in message

        await wait_for(refused, "the Job is refused")
        assert said in await refusal(create(POD_GROUPS, group, namespace))
        assert said in await refusal(create(PODS, pod, namespace))
        assert not await refusal(create(JOBS, job(corner, "free"), namespace))
        await corner.client.delete(JOBS, "free", namespace)

    async def test_pods_of_an_enabled_namespace_are_assigned_to_bindery(
        self, corner: Corner
    ) -> None:
        await label(corner, enabled="true")
        spec = {"containers": [{"name": "a", "image": "a"}]}

        async def created(name: str, **more: Any) -> str:
            labels = more.pop("labels", {})
            body = {"metadata": {"name": name, "labels": labels}, "spec": {**spec, **more}}
            pod = await corner.client.create(PODS, body, corner.namespace)
            await corner.client.delete(PODS, name, corner.namespace)
            return pod.spec.scheduler_name

        async def adopted() -> bool:  # once the API server's own watch has the label
            return await created("plain") == "bindery"

        await wait_for(adopted, "a pod goes to Bindery")
        assert await created("other", schedulerName="volcano") == "volcano"
        excepted = await created("excepted", labels={ENABLED_LABEL: "false"})
        assert excepted == "default-scheduler"
        await label(corner, enabled=None)

    async def test_an_invalid_change_of_a_queue_is_refused_at_once(self, corner: Corner) -> None:
        top = await corner.add_queue("top", {})
        low = await corner.add_queue("low", {"parent": top})

        async def on_a_cycle() -> bool:
            patched = corner.client.patch(QUEUES, top, {"spec": {"parent": low}})
            message = await refusal(patched)
            if not message:
                await corner.client.patch(QUEUES, top, {"spec": {"parent": None}})
            return "its own ancestor" in message

        async def in_use() -> bool:
            body = {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": top}}
            message = await refusal(corner.client.delete(QUEUES, top))
            if not message:
                await corner.client.create(QUEUES, body)
            return f"has queues below it: {low}" in message

        await wait_for(on_a_cycle, "the cycle is refused")
        await wait_for(in_use, "the deletion is refused")

        async def free() -> bool:
            return not await refusal(corner.client.delete(QUEUES, top))

        await corner.client.delete(QUEUES, low)
        await wait_for(free, "the empty queue can be deleted")
