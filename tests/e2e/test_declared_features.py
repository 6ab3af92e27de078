"""Gangs that require a kubelet feature run on nodes that declare it, on the real API server."""

import pytest

from devcluster.components import Components
from tests.e2e.support import Corner, Gang
from tests.e2e.traps import ready

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

GATE = "kubelet.featureGates.RestartAllContainersOnContainerExits"
RESTARTS = {
    "containers": [
        {
            "name": "main",
            "image": "none.invalid/work",
            "restartPolicy": "Never",
            "restartPolicyRules": [
                {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
            ],
        }
    ]
}


async def test_a_gang_that_requires_a_feature_runs_on_nodes_that_declare_it(
    corner: Corner, components: Components
) -> None:
    pool = f"--node-pool={corner.pool}"
    old = [pool, f"--name-prefix={corner.namespace}-old-", f"--set={GATE}=false"]
    new = [pool, f"--name-prefix={corner.namespace}-new-"]
    await ready(components.start_hollow_nodes(3, [*old, "--remove-on-exit"], name="old"))
    gang = Gang("restarts", size=2, pod=RESTARTS)
    await corner.submit(gang)
    feature = "RestartAllContainersOnContainerExits"
    await corner.wait_pods_say(gang, f"3 do not declare feature {feature}")

    await ready(components.start_hollow_nodes(1, [*new, "--remove-on-exit"], name="new"))

    await corner.wait_bound(gang)
    assert {pod.spec.node_name for pod in await corner.pods(gang)} == {f"{corner.namespace}-new-0"}
