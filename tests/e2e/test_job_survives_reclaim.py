"""The gang of the README, created by a real Job, is evicted whole and runs again whole."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bindery.api.names import NODE_POOL_LABEL
from bindery.kube.objects.resources import POD_GROUPS, PODS, Resource
from bindery.kube.objects.watched import Condition, KubeObject, Pod
from devcluster.components import Components
from tests.e2e.support import Corner, Gang, wait_for
from tests.e2e.traps import ready

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gang.yaml"
SIZE = 4


class JobStatus(msgspec.Struct, frozen=True):
    """The status of a Job, as far as this test reads it."""

    conditions: list[Condition] | None = None


class JobObject(KubeObject, frozen=True):
    """A Job."""

    status: JobStatus = JobStatus()


JOBS = Resource("batch", "v1", "jobs", "Job", True, JobObject)


def example(corner: Corner, queue: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the example's PodGroup and Job, made to fit the test's nodes."""
    group, job = yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8"))
    labels = {NODE_POOL_LABEL: corner.pool}
    group["metadata"]["labels"] = labels
    group["spec"] |= {"minMember": SIZE, "queue": queue}
    job["spec"] |= {"completions": SIZE, "parallelism": SIZE}
    template = job["spec"]["template"]
    template["metadata"]["labels"] = labels
    template["spec"].pop("priorityClassName")
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return group, job


async def living(corner: Corner) -> dict[str, Pod]:
    """Return the running pods of the Job that are not being deleted, by UID."""
    pods = await corner.client.list(
        PODS, namespace=corner.namespace, label_selector="job-name=gang"
    )
    return {
        pod.metadata.uid: pod
        for pod in pods
        if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
    }


async def test_a_job_runs_again_whole_after_its_gang_was_reclaimed(
    corner: Corner, components: Components
) -> None:
    options = [f"--node-pool={corner.pool}", f"--name-prefix={corner.namespace}-", f"--cpu={SIZE}"]
    await ready(components.start_hollow_nodes(1, [*options, "--remove-on-exit"]))
    half = {"resources": {"cpu": {"quota": str(SIZE // 2), "overQuotaWeight": 1}}}
    rich, poor = await corner.add_queue("rich", half), await corner.add_queue("poor", half)
    group, job = example(corner, rich)
    await corner.client.create(POD_GROUPS, group, corner.namespace)
    await corner.client.create(JOBS, job, corner.namespace)

    async def all_run() -> dict[str, Pod] | None:
        pods = await living(corner)
        return pods if len(pods) == SIZE else None

    async def says_that_it_runs() -> bool:
        return (
            await corner.client.get(POD_GROUPS, "gang", corner.namespace)
        ).status.state == "Running"

    first = await wait_for(all_run, "the Job's gang runs")
    assert first is not None
    # Statuses come later than pods: "Waiting" would be of the time before the gang ran.
    await wait_for(says_that_it_runs, "the gang's status has no wait of before")
    claimant = Gang("claimant", size=SIZE // 2, queue=poor)
    await corner.submit(claimant)
    await corner.wait_bound(claimant)

    async def all_went() -> bool:
        return not first.keys() & (await living(corner)).keys()

    await wait_for(all_went, "the gang goes whole")
    seen: set[tuple[str | None, str]] = set()

    async def waits_again() -> bool:
        status = (await corner.client.get(POD_GROUPS, "gang", corner.namespace)).status
        said = {condition.type: condition for condition in status.conditions or ()}
        if "Evicted" in said:
            seen.add((status.state, said["Evicted"].status))
        if status.state != "Waiting":
            return False
        # A status of before counted the evictions that had been answered when it was written.
        assert said["Evicted"].message.startswith(f"{SIZE} pods were evicted"), said
        return True

    # The Job keeps the failed pods until it replaces them, ten seconds later.
    await wait_for(waits_again, "the gang waits with new pods")
    assert seen == {("Evicted", "True"), ("Waiting", "True")}
    await corner.delete_gang(claimant)

    second = await wait_for(all_run, "the Job's gang runs again")
    assert second is not None
    assert not first.keys() & second.keys()
    found = await corner.client.get(JOBS, "gang", corner.namespace)
    assert "Failed" not in {condition.type for condition in found.status.conditions or ()}
