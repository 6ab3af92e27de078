"""Counts in the status of gangs, and the end of a gang's run time."""

import pytest

from bindery.kube.objects.podgroups import PodGroupStatus
from devcluster.components import Component, Components
from tests.e2e.support import Corner, Gang, scheduler_configuration, wait_for, writes_of
from tests.e2e.traps import ready

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("binder")]


async def hollow(components: Components, corner: Corner) -> None:
    options = [f"--node-pool={corner.pool}", f"--name-prefix={corner.namespace}-", "--cpu=32"]
    await ready(components.start_hollow_nodes(1, [*options, "--remove-on-exit"]))


async def status_of(corner: Corner, gang: Gang, **counts: int) -> PodGroupStatus:
    """Wait until the PodGroup has `counts`; return its status."""

    async def said() -> PodGroupStatus | None:
        status = (await corner.group(gang)).status
        found = {name: getattr(status.pods, name) for name in counts}
        return status if found == counts else None

    status = await wait_for(said, f"{gang.name} has {counts}")
    assert status is not None
    return status


async def test_a_gang_costs_few_writes_regardless_of_its_size(
    corner: Corner, components: Components, pool: str
) -> None:
    scheduler = components.start_scheduler(scheduler_configuration(pool)).wait_ready()
    await hollow(components, corner)
    gang = Gang("g", size=24, run_seconds=15)
    await corner.submit(gang)

    running = await status_of(corner, gang, bound=24, running=24)
    assert (running.state, running.pods.pending) == ("Running", 0)
    assert running.since
    ended = await status_of(corner, gang, bound=0, running=0, succeeded=24)
    assert ended.state == "Finished"
    assert ended.ran_seconds > 0

    written = [n for key, n in writes_of(scheduler).items() if "podgroups" in key]
    assert sum(written) <= 8, "while pods come, their binding, their start, a part's end, the end"


async def test_a_gang_is_evicted_at_the_end_of_its_run_time_and_waits_after_a_restart(
    corner: Corner, components: Components, pool: str
) -> None:
    def start() -> Component:
        return components.start_scheduler(scheduler_configuration(pool)).wait_ready()

    first = start()
    await hollow(components, corner)
    gang = Gang("g", size=2, group={"runTimeLimitSeconds": 3})
    await corner.submit(gang)
    await corner.wait_bound(gang)

    async def gone() -> bool:
        return not await corner.pods(gang)

    await wait_for(gone, "the gang's pods are evicted")
    await corner.wait_condition(gang, "False", "Evicted")
    status = (await corner.group(gang)).status
    assert status.ran_seconds >= 3
    assert "RunTimeExceeded" in {each.reason for each in status.conditions or ()}

    first.kill()
    start()
    for index in range(2):
        await corner.create_pod(gang, index)
    await corner.wait_pods_say(gang, "it has run for the limit of 3 s of its PodGroup")
    await corner.wait_condition(gang, "False", "RunTimeExceeded")
    assert await corner.bound_count(gang) == 0
