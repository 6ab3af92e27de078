"""The API server is restarted while gangs are scheduled, and while the cluster is idle."""

import asyncio
import json
from collections import Counter

import pytest

from devcluster.components import Component, Components
from devcluster.plane import ControlPlane
from tests.e2e.support import (
    Corner,
    Gang,
    Observer,
    binder_configuration,
    scheduler_configuration,
    wait_for,
)
from tests.e2e.webhooks import Webhooks
from tests.required import lacking

pytestmark = pytest.mark.e2e

GONE, BACK = "the API server does not answer", "the API server answers again"
ELECTION = (
    ("warning", "renewal failed"),
    ("warning", "leadership lost"),
    ("warning", "election failed"),
    ("info", "leading"),
)
MOST_OF_KOPF = 3
"""Its last attempts, before the binder's Lease is lost."""
SETTLED_S = 12.0
"""The API server has its roles, and every watch is open again."""


async def test_gangs_are_bound_whole_and_run_after_the_api_server_was_killed(
    corner: Corner, observer: Observer, components: Components, control_plane: ControlPlane
) -> None:
    if control_plane.is_shared:
        lacking("this cluster's API server is not ours to kill")
    arguments = [f"--node-pool={corner.pool}", f"--name-prefix={corner.namespace}-"]
    agent = components.start_hollow_nodes(10, [*arguments, "--remove-on-exit"]).wait_ready()
    gangs = [Gang(f"gang-{index}", size=4, run_seconds=1) for index in range(30)]
    await corner.submit(*gangs)
    slow = binder_configuration().model_copy(update={"concurrent_binds": 2})
    binder = components.start_binder(slow).wait_ready()
    scheduler = components.start_scheduler(scheduler_configuration(corner.pool))

    def bound() -> int:
        return sum(map(bool, observer.nodes_of_pods.values()))

    async def in_the_middle() -> bool:
        return bound() >= 10

    await wait_for(in_the_middle, "some pods are bound")
    control_plane.kill_api_server()
    bound_before = bound()
    control_plane.start_api_server()

    async def succeeded() -> bool:
        pods = [pod for gang in gangs for pod in await corner.pods(gang)]
        return all(pod.status.phase == "Succeeded" for pod in pods)

    await corner.wait_bound(*gangs)
    await wait_for(succeeded, "all pods have run")
    await corner.wait_nothing_left()
    assert bound_before < 30 * 4, "the API server was killed in the middle"
    assert all(component.process.is_running for component in (agent, binder, scheduler))


@pytest.mark.long("a second restart")
async def test_a_restart_of_the_api_server_adds_few_log_lines_to_each_component(
    corner: Corner, components: Components, control_plane: ControlPlane
) -> None:
    if control_plane.is_shared:
        lacking("this cluster's API server is not ours to kill")
    arguments = [f"--node-pool={corner.pool}", f"--name-prefix={corner.namespace}-"]
    webhooks = Webhooks(control_plane, corner.namespace)
    try:
        access = await asyncio.to_thread(webhooks.install)
        webhook = await asyncio.to_thread(webhooks.start, access)
        # A webhook is ready before its first publications are answered, which a kill would fail.
        await webhooks.wait_trusted()
        started = [
            webhook,
            components.start_hollow_nodes(3, [*arguments, "--remove-on-exit"]),
            components.start_scheduler(scheduler_configuration(corner.pool)),
            components.start_grouper(),
            components.start_binder(),
        ]
        for each in started:
            await asyncio.to_thread(each.wait_ready)
        before = {each.name: len(_lines(each)) for each in started}
        await asyncio.to_thread(control_plane.kill_api_server)
        await asyncio.sleep(5.0)
        await asyncio.to_thread(control_plane.start_api_server)

        def new_lines(component: Component) -> list[tuple[str, str]]:
            return _lines(component)[before[component.name] :]

        async def know_it() -> bool:
            return all(("info", BACK) in new_lines(each) for each in started)

        await wait_for(know_it, "all components have noticed that it is back")
        await asyncio.sleep(SETTLED_S)
        for each in started:
            counts = Counter(new_lines(each))
            assert counts.pop(("warning", GONE)) == 1, each.name
            assert counts.pop(("info", BACK)) == 1, each.name
            assert all(counts.pop(line, 0) <= 1 for line in ELECTION), each.name
            from_kopf = [line for line in counts.elements() if "Request attempt #5/5" in line[1]]
            assert len(from_kopf) <= MOST_OF_KOPF
            assert not counts - Counter(from_kopf), each.name
    finally:
        await asyncio.to_thread(webhooks.remove)


def _lines(component: Component) -> list[tuple[str, str]]:
    """Return the levels and the events of the log."""
    whole = component.log.read_text(encoding="utf-8").splitlines()
    return [(line["level"], line["event"]) for line in map(json.loads, whole)]
