"""Node agents report the NUMA zones of their own nodes, and of no others."""

import json
import secrets
from typing import Any

import pytest

from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES
from devcluster import checkout
from devcluster.errors import ControlPlaneError
from devcluster.plane import ControlPlane
from tests.definitions import install_node_topologies
from tests.e2e.support import wait_for

pytestmark = pytest.mark.e2e

RIGHTS = checkout.ROOT / "examples/rights/agent-zones.yaml"


def report(node: str, zones: int = 1) -> str:
    body: dict[str, Any] = {
        "apiVersion": NODE_RESOURCE_TOPOLOGIES.api_version,
        "kind": NODE_RESOURCE_TOPOLOGIES.kind,
        "metadata": {"name": node},
        "zones": [{"name": f"node-{zone}", "type": "Node"} for zone in range(zones)],
    }
    return json.dumps(body)


def as_node(name: str) -> tuple[str, ...]:
    groups = ("system:nodes", "system:authenticated")
    return (f"--as=system:node:{name}", *(f"--as-group={group}" for group in groups))


async def test_a_node_reports_its_own_zones_and_no_others(control_plane: ControlPlane) -> None:
    own, other = (f"{name}-{secrets.token_hex(3)}" for name in ("own", "other"))
    install_node_topologies(control_plane)
    control_plane.kubectl("apply", f"--filename={RIGHTS}")

    async def is_enforced() -> bool:
        """A policy counts some time after it was made."""
        try:
            control_plane.kubectl(
                "create", "--dry-run=server", "--filename=-", *as_node(own), stdin=report(other)
            )
        except ControlPlaneError as error:
            return "may report only the zones of its own node" in str(error)
        return False

    await wait_for(is_enforced, "the policy counts")
    control_plane.kubectl("create", "--filename=-", *as_node(own), stdin=report(own))
    control_plane.kubectl("create", "--filename=-", stdin=report(other))

    patch = ("patch", "noderesourcetopologies", "--type=merge", f"--patch={report(own, 2)}")
    control_plane.kubectl(*patch, own, *as_node(own))
    with pytest.raises(ControlPlaneError, match="only the zones of its own node"):
        control_plane.kubectl(*patch[:-1], '--patch={"zones": []}', other, *as_node(own))
    with pytest.raises(ControlPlaneError, match="cannot delete"):
        control_plane.kubectl("delete", "noderesourcetopologies", own, *as_node(own))
    control_plane.kubectl("delete", "noderesourcetopologies", own, other)
