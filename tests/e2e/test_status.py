"""`bindery status`: the leaders, and whether grouper and webhook answer."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bindery.api.names import scheduler_lease
from bindery.kube.publication import configuration_hash
from devcluster.components import Components
from devcluster.plane import ControlPlane
from tests.commandline import CommandLine, Done
from tests.e2e.support import SHORT_LEASES, Corner, scheduler_configuration, wait_for
from tests.e2e.webhooks import Webhooks

pytestmark = pytest.mark.e2e


Rows = dict[str, dict[str, Any]]


def rows_of(done: Done) -> Rows:
    return {row["component"]: row for row in json.loads(done.stdout)}


@pytest.mark.long("waits for the end of a Lease")
async def test_status_names_the_leaders_and_the_expired_lease(
    corner: Corner, components: Components, command_line: CommandLine, reader: Path
) -> None:
    configuration = scheduler_configuration(corner.pool, leader_election=SHORT_LEASES)
    scheduler = components.start_scheduler(configuration)
    grouper = components.start_grouper()
    binder = components.start_binder()
    await corner.add_nodes("a")
    for each in (scheduler, grouper, binder):
        await asyncio.to_thread(each.wait_ready)
    mine = f"scheduler of pool {corner.pool}"

    async def ask(*arguments: str) -> Done:
        done = await asyncio.to_thread(
            command_line, "--kubeconfig", str(reader), "status", *arguments
        )
        assert done.returncode in (0, 1), done.stderr
        return done

    async def leading() -> Rows | None:
        rows = rows_of(await ask("-o", "json"))
        wanted = (rows[name]["state"] for name in (mine, "grouper", "binder"))
        return rows if set(wanted) == {"leads"} else None

    rows = await wait_for(leading, "all lead")
    assert rows is not None
    assert rows[mine]["works"]
    assert rows[mine]["configuration"]["hash"] == configuration_hash(configuration)
    assert "leaderElection" in rows[mine]["configuration"]["changes"]
    assert (rows["webhook"]["state"], rows["webhook"]["works"]) == ("unknown", True)
    table = (await ask()).stdout
    assert "COMPONENT" in table
    its_hash = configuration_hash(configuration)
    assert f"configuration {its_hash} (differs from the defaults in leaderElection, " in table

    scheduler.kill()

    async def ended() -> str:
        done = await ask()
        return done.stdout if f"{scheduler_lease(corner.pool)} of " in done.stdout else ""

    answer = await wait_for(ended, "the Lease ends")
    row, line, *_ = (line for line in answer.splitlines() if line.startswith(mine))
    assert "ended" in row
    assert f"{mine}: Lease kube-system/" in line
    assert f" of {rows[mine]['holder']} ended " in line
    assert (await ask()).returncode == 1


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.usefixtures("installation")  # brings the kinds
async def test_status_calls_the_webhook_and_creates_nothing(
    corner: Corner, control_plane: ControlPlane, command_line: CommandLine, policy: str
) -> None:
    async def webhook() -> dict[str, Any]:
        kubeconfig = str(control_plane.admin_kubeconfig)
        done = await asyncio.to_thread(
            command_line, "--kubeconfig", kubeconfig, "status", "-o", "json"
        )
        return rows_of(done)["webhook"]

    webhooks = Webhooks(control_plane, corner.namespace, failure_policy=policy)
    assert (await webhook())["state"] == "not installed"
    access = webhooks.install()
    try:
        found = await wait_for_state(webhook, "does not answer")
        assert not found["works"]
        await asyncio.to_thread(webhooks.start, access)
        before = rejections(control_plane)
        found = await wait_for_state(webhook, "answers")
        assert found["works"]
        assert rejections(control_plane) == before, "no request was refused"
    finally:
        webhooks.remove()
    queues = control_plane.kubectl("get", "queues.scheduling.bindery.dev", "-oname")
    assert "probe" not in queues


def rejections(control_plane: ControlPlane) -> list[str]:
    """Return the API server's counts of requests that a webhook refused, which it logs."""
    found = control_plane.kubectl("get", "--raw=/metrics").splitlines()
    name = "apiserver_admission_webhook_rejection_count{"
    return [line for line in found if line.startswith(name) and 'error_type="no_error"' in line]


async def wait_for_state(ask: Any, state: str) -> dict[str, Any]:
    async def reached() -> dict[str, Any] | None:
        found = await ask()
        return found if found["state"] == state else None

    found = await wait_for(reached, f"the webhook {state}")
    assert found is not None
    return found
