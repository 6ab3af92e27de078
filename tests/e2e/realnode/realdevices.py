"""A device plugin whose devices a test writes into a file (`controlplane/devices`)."""

import json
from dataclasses import dataclass, replace
from typing import Any

from devcluster.realnode.configuration import SHARED
from devcluster.realnode.node import RealNode
from tests import goprograms

LISTED = "example.com/listed"
"""The resource of this plugin."""
SERVICE = "listed"
_FILE = "devices.json"


def service() -> str:
    """Return the script that runs the plugin of a node, from the first `write` on."""
    file = f"{SHARED}/{_FILE}"
    wait = f"until [ -e {file} ]; do sleep 0.1; done"
    return f"{wait}\nexec {goprograms.program('devices')} {LISTED} {file}"


@dataclass(frozen=True)
class Devices:
    """The devices of one node."""

    node: RealNode
    healthy: int
    unhealthy: int = 0
    zone: int | None = None
    """The NUMA node that the plugin reports."""
    refusal: str = ""
    """What the plugin answers when a container is to get one; empty: it gives it."""

    def write(self, **changes: Any) -> "Devices":
        """Let the plugin have these devices, with `changes`, and return them."""
        changed = replace(self, **changes)
        count = changed.healthy + changed.unhealthy
        devices = [
            {"id": f"d{index}", "unhealthy": index >= changed.healthy, "zone": changed.zone}
            for index in range(count)
        ]
        target = self.node.shared / _FILE
        target.with_suffix(".new").write_text(
            json.dumps({"devices": devices, "refusal": changed.refusal})
        )
        target.with_suffix(".new").replace(target)
        return changed

    def program(self) -> str:
        """Return the name of the plugin's program."""
        return goprograms.program("devices").name
