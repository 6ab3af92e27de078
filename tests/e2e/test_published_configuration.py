"""Commands plan with the configuration of the leading scheduler, and name it."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bindery.api.configuration import DEFAULT_ACTIONS, SchedulerConfiguration
from bindery.api.names import scheduler_lease
from bindery.kube.objects.resources import LEASES, NODES, PODS
from bindery.kube.publication import configuration_hash
from devcluster.components import Components
from devcluster.plane import ControlPlane
from tests.commandline import CommandLine
from tests.e2e.support import SHORT_LEASES, Corner, Gang, metric, scheduler_configuration, wait_for

pytestmark = pytest.mark.e2e

Ask = Callable[..., str]


@pytest.fixture
def configuration(pool: str) -> SchedulerConfiguration:
    return scheduler_configuration(pool, leader_election=SHORT_LEASES)


@pytest.fixture
def ask(command_line: CommandLine, reader: Path, corner: Corner) -> Ask:
    """Returns the answer of a command to a reader."""

    def run(*arguments: str, ends_with: int = 0) -> str:
        where = () if arguments[0] == "queues" else ("-n", corner.namespace)
        pool = ("--node-pool", corner.pool)
        done = command_line("--kubeconfig", str(reader), *arguments, *where, *pool)
        assert done.returncode == ends_with, done.stderr
        return done.stdout

    return run


async def of_scheduler(ask: Ask, *arguments: str) -> dict[str, Any]:
    text = await asyncio.to_thread(ask, *arguments, "-o", "json")
    found: dict[str, Any] = json.loads(text)["scheduler"]
    return found


async def test_commands_plan_as_the_leading_scheduler_does(
    corner: Corner,
    components: Components,
    configuration: SchedulerConfiguration,
    ask: Ask,
    tmp_path: Path,
) -> None:
    """A queue that is entitled to the node waits for ever, because reclaim is switched off."""
    without = tuple(each for each in DEFAULT_ACTIONS if each != "reclaim")
    configured = configuration.model_copy(
        update={"actions": without, "gpu_resources": ("nvidia.com/gpu", "vendor.com/accelerator")}
    )
    (node,) = await corner.add_nodes("a", cpu="2")
    taker = await corner.add_queue("taker", {"resources": {"cpu": {"quota": 0}}})
    owner = await corner.add_queue("owner", {"resources": {"cpu": {"quota": 2}}})
    components.start_binder()
    scheduler = components.start_scheduler(configured)
    await asyncio.to_thread(scheduler.wait_ready)
    borrowed, waits = Gang("borrowed", 2, queue=taker), Gang("waits", 2, queue=owner)
    await corner.submit(borrowed)
    await corner.wait_bound(borrowed)
    capacity = {"status": {"capacity": {"vendor.com/accelerator": "12"}}}
    capacity["status"]["allocatable"] = capacity["status"]["capacity"]
    await corner.client.patch(NODES, node, capacity, subresource="status")
    await corner.submit(waits)
    await corner.wait_condition(waits, "False", "Unschedulable")

    answer = await asyncio.to_thread(ask, "explain", "waits")
    assert "by evicting" not in answer
    assert f"hash {configuration_hash(configured)}" in answer
    assert "differs from the defaults in actions, gpuResources, leaderElection)" in answer
    assert " leads for " in answer
    told = await of_scheduler(ask, "explain", "waits")
    assert told["configuration"]["changes"]["actions"] == list(without)
    assert told["configuration"]["deviation"] == ""
    assert "GPUs: 12 in all" in await asyncio.to_thread(ask, "queues")
    assert configuration_hash(configured) in await asyncio.to_thread(ask, "queues")

    manifest = tmp_path / "more.yaml"
    manifest.write_text(json.dumps(_pod(corner, owner)))
    rehearsed = await asyncio.to_thread(ask, "whatif", str(manifest), ends_with=1)
    assert "Room would be made" not in rehearsed
    assert configuration_hash(configured) in rehearsed

    given = tmp_path / "given.yaml"
    given.write_text(json.dumps(configuration.model_dump(mode="json", by_alias=True)))
    other = await asyncio.to_thread(ask, "explain", "waits", "--config", str(given))
    assert "by evicting 2 pods" in other
    different = f"differs from that of the scheduler (hash {configuration_hash(configured)})"
    assert different in other


async def test_explain_names_a_dead_scheduler_and_predicts_the_next_leaders_cycle(
    corner: Corner, components: Components, configuration: SchedulerConfiguration, ask: Ask
) -> None:
    scheduler = components.start_scheduler(configuration)
    await asyncio.to_thread(scheduler.wait_ready)
    lease = scheduler_lease(corner.pool)
    holder = (await corner.client.get(LEASES, lease, SHORT_LEASES.namespace)).spec.holder_identity
    scheduler.kill()
    await corner.add_nodes("a", cpu="2")
    await corner.submit(Gang("late", 2))

    async def ended() -> str:
        text = await asyncio.to_thread(ask, "explain", "late")
        return text if "No scheduler leads" in text else ""

    answer = await wait_for(ended, "the Lease ends")
    assert f"No scheduler leads: Lease kube-system/{lease} of {holder} ended " in answer
    assert "The first cycle of the next leader would place 2 of its pods:" in answer
    assert "A cycle now" not in answer


async def test_an_invalid_change_of_the_file_is_shown_until_it_is_corrected(
    corner: Corner,
    components: Components,
    configuration: SchedulerConfiguration,
    ask: Ask,
    control_plane: ControlPlane,
    command_line: CommandLine,
    reader: Path,
) -> None:
    scheduler = components.start_scheduler(configuration)
    await asyncio.to_thread(scheduler.wait_ready)
    await corner.add_nodes("a", cpu="1")
    await corner.submit(Gang("waits", 2))
    file = control_plane.state_dir / "configuration" / "scheduler.yaml"
    good = file.read_text(encoding="utf-8")
    title = "a later change of its file cannot be used: "

    async def explained(has_problem: bool) -> str:
        text = await asyncio.to_thread(ask, "explain", "waits")
        is_right = " leads for " in text and (title in text.lower()) == has_problem
        return text if is_right else ""

    file.write_text(good.replace("{", '{"cycleSecond": 2,', 1), encoding="utf-8")
    answer = await wait_for(lambda: explained(True), "explain has the problem")
    assert "cycleSecond" in answer
    assert f"hash {configuration_hash(configuration)}" in answer
    status = await asyncio.to_thread(command_line, "--kubeconfig", str(reader), "status")
    assert f"scheduler of pool {corner.pool}: {title}" in status.stdout
    assert metric(scheduler, "bindery_configuration_unusable") == 1

    file.write_text(good, encoding="utf-8")
    await wait_for(lambda: explained(False), "explain has no problem")
    assert metric(scheduler, "bindery_configuration_unusable") == 0


async def test_explain_suggests_the_node_pool_for_a_misspelled_one(
    corner: Corner, components: Components, configuration: SchedulerConfiguration, ask: Ask
) -> None:
    scheduler = components.start_scheduler(configuration)
    await asyncio.to_thread(scheduler.wait_ready)
    await corner.add_nodes("a", cpu="2")
    astray = _pod(corner, "default")
    astray["metadata"]["labels"]["scheduling.bindery.dev/node-pool"] = f"{corner.pool}x"
    await corner.client.create(PODS, astray, corner.namespace)

    async def led() -> str:  # the Lease of the scheduler before has to end
        text = await asyncio.to_thread(ask, "explain", "more")
        return text if "a scheduler leads in" in text else ""

    answer = await wait_for(led, "the scheduler leads")
    assert f"No scheduler is known to serve node pool {corner.pool}x" in answer
    assert f"did you mean {corner.pool}?" in answer
    assert "What to do: Correct the label scheduling.bindery.dev/node-pool" in answer


async def test_commands_report_the_defaults_if_the_configuration_is_too_large(
    corner: Corner, components: Components, configuration: SchedulerConfiguration, ask: Ask
) -> None:
    patterns = tuple(f"vendor-{index}.com/accelerator" for index in range(1000))
    large = configuration.model_copy(update={"gpu_resources": patterns})
    scheduler = components.start_scheduler(large)
    await asyncio.to_thread(scheduler.wait_ready)

    await corner.add_nodes("a")

    async def asked() -> str:  # the Lease of the scheduler before has to end
        text = await asyncio.to_thread(ask, "queues", "--resource=cpu")
        return "" if "No scheduler leads" in text else text

    answer = await wait_for(asked, "the scheduler leads")
    assert "Configuration: the defaults, because the scheduler's is too large" in answer


async def test_commands_report_the_defaults_if_there_is_no_lease(corner: Corner, ask: Ask) -> None:
    await corner.client.delete(LEASES, scheduler_lease(corner.pool), SHORT_LEASES.namespace)
    await corner.add_nodes("a")

    answer = await asyncio.to_thread(ask, "queues", "--resource=cpu")

    assert "Configuration: the defaults, because there is no Lease kube-system/" in answer


def _pod(corner: Corner, queue: str) -> dict[str, Any]:
    requests = {"resources": {"requests": {"cpu": "1"}}}
    labels = {"scheduling.bindery.dev/node-pool": corner.pool}
    labels["scheduling.bindery.dev/queue"] = queue
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "more", "labels": labels},
        "spec": {
            "schedulerName": "bindery",
            "containers": [{"name": "main", "image": "x", **requests}],
        },
    }
