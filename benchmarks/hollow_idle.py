"""How much of one core a thousand idle hollow nodes take, as one JSON object.

    python benchmarks/hollow_idle.py [NODES]

Runs `bindery nodeagent run --hollow NODES` as a process of its own against the first control
plane there is, waits until every node is Ready and has a Lease, and measures that process's user
and system time over 30 s, which is three renewals of every Lease.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from bindery.controlplane import find
from bindery.controlplane.processes import Command, Process
from bindery.kube.client import Client
from bindery.kube.resources import LEASES, NODES
from bindery.nodeagent.node_objects import LEASE_NAMESPACE, is_ready

MEASURED_S = 30.0
STARTUP_S = 180.0
PREFIX = "idle-"


def cpu_s(pid: int) -> float:
    """Return the user and system time that process `pid` has taken, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def note(text: str) -> None:
    """Tell the user how far it is; standard output is for the result."""
    print(text, file=sys.stderr, flush=True)


async def wait_until_idle(kubeconfig: Path, count: int) -> None:
    """Return when all nodes are Ready and all their Leases are there."""
    async with (
        Client.connect(kubeconfig, user_agent="hollow-idle") as client,
        asyncio.timeout(STARTUP_S),
    ):
        ready = leases = 0
        while ready < count or leases < count:
            await asyncio.sleep(1)
            ready = sum(
                node.metadata.name.startswith(PREFIX) and is_ready(node)
                for node in await client.list(NODES)
            )
            held = await client.list(LEASES, namespace=LEASE_NAMESPACE)
            leases = sum(lease.metadata.name.startswith(PREFIX) for lease in held)
            note(f"{ready} nodes ready, {leases} leases")


def measure(count: int) -> float:
    """Return the share of one core, in percent."""
    with (
        tempfile.TemporaryDirectory() as directory,
        find.find(find.Options(state_dir=Path(directory)), note) as plane,
    ):
        arguments = [
            sys.executable, "-m", "bindery.cli.main", "nodeagent", "run",
            f"--hollow={count}", f"--name-prefix={PREFIX}",
            f"--kubeconfig={plane.admin_kubeconfig}", "--remove-on-exit",
        ]  # fmt: skip
        log = Path(directory) / "logs" / "nodeagent.log"
        agent = Process(Command("nodeagent", arguments, log), tethered=True)
        try:
            asyncio.run(wait_until_idle(plane.admin_kubeconfig, count))
            started_s, taken_s = time.monotonic(), cpu_s(agent.pid)
            time.sleep(MEASURED_S)
            share = (cpu_s(agent.pid) - taken_s) / (time.monotonic() - started_s)
        finally:
            agent.stop(timeout_s=60.0)
        if agent.exit_code != 0:
            raise SystemExit(f"the agent ended with {agent.exit_code}")
        return share * 100


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    result = {
        "name": f"hollow_nodes_idle_cpu_{count}",
        "value": round(measure(count), 1),
        "unit": "percent of one core",
        "better": "lower",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
