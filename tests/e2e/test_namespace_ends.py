"""A namespace with Jobs that survive a reclaim can be deleted at any time."""

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from bindery.api.names import NODE_POOL_LABEL
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import NAMESPACES, POD_GROUPS, PODS, Resource
from bindery.kube.objects.watched import KubeObject, Pod
from devcluster.components import Components
from tests.e2e.support import Corner, wait_for
from tests.e2e.traps import ready
from tests.sizes import sample

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gang.yaml"
JOBS = Resource("batch", "v1", "jobs", "Job", True, KubeObject)
SIZE = 2
CPUS = 2


async def submit(corner: Corner, namespace: str, cpu: str) -> None:
    """Create the gang of the README in a namespace of its own."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await corner.client.create(NAMESPACES, body)
    group, job = yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8"))
    labels = {NODE_POOL_LABEL: corner.pool}
    for each in (group, job):
        each["metadata"].pop("namespace", None)
    group["metadata"]["labels"] = labels
    group["spec"] |= {"minMember": SIZE, "queue": "default"}
    job["spec"] |= {"completions": SIZE, "parallelism": SIZE}
    template = job["spec"]["template"]
    template["metadata"]["labels"] = labels
    template["spec"].pop("priorityClassName")
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    await corner.client.create(POD_GROUPS, group, namespace)
    await corner.client.create(JOBS, job, namespace)


async def pods_of(corner: Corner, namespace: str) -> list[Pod]:
    return await corner.client.list(PODS, namespace=namespace)


async def they_run(corner: Corner, namespace: str) -> None:
    async def run() -> bool:
        pods = await pods_of(corner, namespace)
        return len(pods) == SIZE and all(pod.status.phase == "Running" for pod in pods)

    await wait_for(run, "the Job's pods run")


async def they_run_and_are_evicted(corner: Corner, namespace: str) -> None:
    await they_run(corner, namespace)
    for pod in await pods_of(corner, namespace):
        await corner.client.evict(namespace, pod.metadata.name, pod.metadata.uid)

    async def failed() -> bool:
        pods = await pods_of(corner, namespace)
        return any(pod.status.phase == "Failed" for pod in pods)

    await wait_for(failed, "an evicted pod waits for its replacement")


async def they_wait(corner: Corner, namespace: str) -> None:
    async def exist() -> bool:
        return len(await pods_of(corner, namespace)) == SIZE

    await wait_for(exist, "the Job's pods exist")


STATES: dict[str, tuple[str, Callable[[Corner, str], Awaitable[None]]]] = {
    "run": ("500m", they_run),
    "were evicted": ("500m", they_run_and_are_evicted),
    "wait": (str(CPUS + 1), they_wait),
}


@pytest.mark.parametrize("state", sample(1, STATES))
async def test_a_namespace_is_deleted_while_pods_of_its_job_run_wait_or_are_evicted(
    state: str, corner: Corner, components: Components
) -> None:
    options = [f"--node-pool={corner.pool}", f"--name-prefix={corner.namespace}-", f"--cpu={CPUS}"]
    await ready(components.start_hollow_nodes(1, [*options, "--remove-on-exit"]))
    namespace = f"ends-{secrets.token_hex(3)}"
    cpu, reached = STATES[state]
    await submit(corner, namespace, cpu)
    await reached(corner, namespace)

    await corner.client.delete(NAMESPACES, namespace)

    async def is_gone() -> bool:
        try:
            await corner.client.get(NAMESPACES, namespace)
        except NotFoundError:
            return True
        return False

    await wait_for(is_gone, "the namespace is gone", 150)
