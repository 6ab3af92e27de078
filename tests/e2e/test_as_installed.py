"""Scheduler, binder and hollow nodes as the chart configures them, under the chart's roles."""

import asyncio

import pytest

from devcluster.components import Components
from tests.e2e.support import Corner, Gang, metric, samples, wait_for, writes_of

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def pool() -> str:
    """The default pool: that of nodes without a label, which the chart configures."""
    return ""


async def test_no_request_is_forbidden_and_idle_components_write_only_leases(
    corner: Corner, components: Components
) -> None:
    scheduler, binder = components.start_scheduler(), components.start_binder()
    agent = components.start_hollow_nodes(
        2, ["--remove-on-exit", f"--name-prefix={corner.namespace}-"]
    )
    for component in components.started:
        component.wait_ready()
    queue = await corner.add_queue("closed", {"state": "Closed"})
    runs, waits = Gang("runs", size=3, run_seconds=0.5), Gang("waits", size=2, cpu="1000")
    await corner.submit(runs, waits, Gang("shut-out", size=1, queue=queue))
    await corner.wait_bound(runs)
    await corner.wait_pods_say(waits, "0 of 2 pods fit")
    await corner.wait_condition(waits, "False", "Unschedulable")

    async def succeeded() -> bool:
        return all(pod.status.phase == "Succeeded" for pod in await corner.pods(runs))

    await wait_for(succeeded, "the pods succeed")

    def writes() -> dict[str, float]:
        every = {**writes_of(scheduler), **writes_of(binder)}
        return {what: count for what, count in every.items() if not what.endswith(" leases")}

    async def quiet() -> bool:
        """Whether nothing is written for longer than a reworded condition is held back."""
        before, cycles = writes(), metric(scheduler, "bindery_cycle_seconds_count")
        await asyncio.sleep(6)
        assert metric(scheduler, "bindery_cycle_seconds_count") >= cycles + 2, "it keeps planning"
        return writes() == before

    await wait_for(quiet, "nothing but Leases is written")
    assert {"scheduler patch podgroups", "scheduler patch pods"} <= writes().keys()

    for component in (scheduler, binder, agent):
        calls = [s for s in samples(component) if s.name == "bindery_api_requests_total"]
        assert {s.labels["code"] for s in calls} & {"200", "201"}, component.name
        assert [s for s in calls if s.labels["code"] in ("401", "403")] == []
