"""The API server dies and comes back while gangs are being scheduled."""

import pytest
from required import lacking
from support import Corner, Gang, Observer, binder_configuration, scheduler_configuration, wait_for

from bindery.controlplane.components import Components
from bindery.controlplane.plane import ControlPlane

pytestmark = pytest.mark.e2e


async def test_gangs_are_bound_whole_and_run_when_the_api_server_was_killed_in_the_middle(
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
