"""Bad input: refused or explained at the object or file it concerns; nothing else stops."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support import Corner, Gang, metric, scheduler_configuration, wait_for

from bindery.api.names import API_VERSION
from bindery.controlplane.components import Component, Components
from bindery.controlplane.plane import ControlPlane
from bindery.kube.errors import ApiError
from bindery.kube.resources import PRIORITY_CLASSES

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]


@pytest.fixture(autouse=True)
async def another_gang_still_binds(corner: Corner) -> AsyncIterator[None]:
    """After each test: whatever was wrong, others go on."""
    yield
    await corner.add_nodes("others", cpu="2")
    gang = Gang("others", size=2)
    await corner.submit(gang)
    await corner.wait_bound(gang)


async def test_a_negative_minimum_is_refused_by_the_api_server_with_the_fields_name(
    corner: Corner,
) -> None:
    with pytest.raises(ApiError, match=r"spec\.minMember"):
        await corner.create_group(Gang("negative", size=0, min_member=-1))


async def test_a_limit_that_does_not_parse_is_refused_by_the_api_server(corner: Corner) -> None:
    with pytest.raises(ApiError, match=r"spec\.resources\.gpu\.limit"):
        await corner.add_queue("odd", {"resources": {"gpu": {"limit": "3 apples"}}})


async def test_a_weight_below_zero_is_refused_by_the_api_server(corner: Corner) -> None:
    with pytest.raises(ApiError, match=r"spec\.resources\.gpu\.overQuotaWeight"):
        await corner.add_queue("light", {"resources": {"gpu": {"overQuotaWeight": -1}}})


async def test_an_allocatable_that_does_not_parse_is_refused_by_the_api_server(
    corner: Corner,
) -> None:
    with pytest.raises(ApiError, match="quantities"):
        await corner.add_nodes("odd", cpu="3 apples")


async def test_a_gang_of_an_unknown_priority_class_says_so_and_binds_when_it_comes(
    corner: Corner,
) -> None:
    await corner.add_nodes("a", cpu="2")
    name = f"{corner.namespace}-class"
    gang = Gang("urgent", size=2, group={"priorityClassName": name})
    await corner.submit(gang)
    condition = await corner.wait_condition(gang, "False", "PriorityClassDoesNotExist")
    assert name in condition.message
    assert await corner.bound_count(gang) == 0

    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 7,
    }
    await corner.client.create(PRIORITY_CLASSES, body)
    await corner.wait_bound(gang)
    await corner.client.delete(PRIORITY_CLASSES, name)


async def test_pods_without_a_node_with_their_host_port_free_say_so(corner: Corner) -> None:
    await corner.add_nodes("a", cpu="2")
    container = {"name": "worker", "image": "worker", "ports": [port(8080)]}
    gang = Gang("ports", size=2, pod={"containers": [container]})
    await corner.submit(gang)

    condition = await corner.wait_condition(gang, "False", "Unschedulable")
    assert "1 have its host ports in use" in condition.message
    await corner.wait_pods_say(gang, "host ports")
    assert await corner.bound_count(gang) == 0


def port(number: int) -> dict[str, Any]:
    return {"containerPort": number, "hostPort": number}


async def test_a_gang_of_a_queue_whose_parent_does_not_exist_says_so(corner: Corner) -> None:
    queue = await corner.add_queue("orphan", {"parent": f"{corner.namespace}-nobody"})
    gang = Gang("gang", size=1, queue=queue)
    await corner.submit(gang)
    condition = await corner.wait_condition(gang, "False", "QueueDoesNotExist")
    assert condition.message == f"queue {corner.namespace}-nobody does not exist"


@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        ("scheduler", f"apiVersion: {API_VERSION}\nkind: SchedulerConfiguration\ncycle: 1\n", "3"),
        (
            "scheduler",
            f"apiVersion: {API_VERSION}\nkind: SchedulerConfiguration\nplugins:\n- name: nobody\n",
            "4",
        ),
        ("binder", f"apiVersion: {API_VERSION}\nkind: BinderConfiguration\nbinds: 1\n", "3"),
        (
            "binder",
            f"apiVersion: {API_VERSION}\nkind: BinderConfiguration\nplugins:\n- name: nobody\n",
            "4",
        ),
    ],
    ids=["scheduler-key", "scheduler-plugin", "binder-key", "binder-plugin"],
)
def test_a_configuration_that_cannot_be_used_ends_the_start_with_its_file_and_line(
    control_plane: ControlPlane, tmp_path: Path, command: str, text: str, said: str
) -> None:
    file = tmp_path / "configuration.yaml"
    file.write_text(text)
    arguments = [command, "run", f"--config={file}"]
    ended = bindery(*arguments, f"--kubeconfig={control_plane.admin_kubeconfig}")
    assert ended.returncode == 2
    assert f"{file}:{said}: " in ended.stderr


def test_a_malformed_scenario_ends_with_its_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("name: odd\nnodes:\n- {name: a, gpus: many}\n")
    ended = bindery("scenario", "run", str(file))
    assert ended.returncode == 2
    assert f"{file}:3: " in ended.stderr


def bindery(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bindery.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def test_a_running_scheduler_keeps_its_configuration_when_a_new_one_cannot_be_used(
    corner: Corner, components: Components, control_plane: ControlPlane
) -> None:
    own = Corner(corner.client, corner.namespace, f"{corner.pool}-changing")
    scheduler = components.start_scheduler(scheduler_configuration(own.pool), name="changing")
    scheduler.wait_ready()
    file = control_plane.state_dir / "configuration" / "changing.yaml"
    good = file.read_text()
    file.write_text("cycleSeconds: [")
    await wait_for_errors(scheduler, 1)
    file.write_text(good.replace("{", '{"unknown": 1,', 1))
    await wait_for_errors(scheduler, 2)

    await own.add_nodes("own", cpu="2")
    gang = Gang("own", size=2)
    await own.submit(gang)
    await own.wait_bound(gang)
    await own.clean()


async def wait_for_errors(scheduler: Component, count: int) -> None:
    async def counted() -> bool:
        return metric(scheduler, "bindery_configuration_errors_total") == count

    await wait_for(counted, f"{count} configuration errors")
