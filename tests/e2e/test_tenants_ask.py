"""A tenant with `edit` in one namespace sees only that namespace's gangs in the answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devcluster.plane import ControlPlane
from tests.administrator import Administrator
from tests.commandline import CommandLine, Done
from tests.e2e import tenants
from tests.e2e.support import Corner, Gang, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

SECRET = "merger-with-acme"  # the name of another tenant's gang


@dataclass(frozen=True)
class Scene:
    """Two namespaces that share a queue: the tenant's, and one whose gangs come first."""

    own: Corner
    other: Corner
    queue: str


@pytest.fixture
def other_namespace(administrator: Administrator) -> Iterator[str]:
    with administrator.fresh_namespace() as name:
        yield name


@pytest.fixture
async def scene(corner: Corner, other_namespace: str) -> AsyncIterator[Scene]:
    """A full node; the other tenant runs a gang, and two of his gangs wait before that of ours."""
    other = Corner(corner.client, other_namespace, corner.pool)
    await corner.add_nodes("a", cpu="2")
    queue = await corner.add_queue("shared", {"resources": {"cpu": {"quota": 2, "limit": 4}}})
    running = Gang(SECRET, 2, queue=queue)
    await other.submit(running)
    await other.wait_bound(running)
    for index in range(2):
        await other.submit(Gang(f"{SECRET}-{index}", 2, queue=queue))
    await other.wait_condition(Gang(f"{SECRET}-1", 2), "False", "Unschedulable")
    await asyncio.sleep(1)  # times of creation are whole seconds; gangs of one come by name
    await corner.submit(Gang("mine", 2, queue=queue))
    await corner.wait_condition(Gang("mine", 2), "False", "Unschedulable")
    yield Scene(corner, other, queue)
    await other.clean()


@pytest.fixture
def access(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Path:
    """The tenant's kubeconfig; its context has the namespace."""
    given = tenants.access(control_plane, namespace)
    text = control_plane.kubectl(
        f"--kubeconfig={given}", "config", "view", "--raw", "--flatten", "-ojson"
    )
    document = json.loads(text)
    document["contexts"][0]["context"]["namespace"] = namespace
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


Ask = Callable[..., Done]


@pytest.fixture
def ask(command_line: CommandLine, access: Path) -> Ask:
    def run(*arguments: str) -> Done:
        done = command_line("--kubeconfig", str(access), *arguments)
        assert SECRET not in done.stdout + done.stderr
        return done

    return run


async def test_a_tenant_sees_the_turn_of_a_gang_and_the_numbers_of_its_queue(
    scene: Scene, ask: Ask
) -> None:
    async def told() -> bool:
        status = (await scene.own.group(Gang("mine", 2))).status
        if status.turn is None or status.queue_figures is None:
            return False
        # Figures are written some seconds apart: the first may be of a moment with fewer gangs.
        return status.turn.of == 3 and status.queue_figures.requested.get("cpu") == "8"

    await wait_for(told, "the scheduler writes the turn and the figures of all gangs")

    async def answer(*arguments: str) -> str:
        done = await asyncio.to_thread(ask, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    explained = await answer("explain", "mine")
    assert "0 of 2 pods are bound, at least 2 are needed" in explained
    assert "The scheduler says: Unschedulable: " in explained
    place = "3rd of 3 that wait for room, 3rd of 3 in its queue; 2 come before it."
    assert f"Its turn: {place}" in explained
    assert f"Queue {scene.queue}:" in explained
    assert "What to do: " in explained
    of_pod = await answer("explain", "pod/mine-0")
    assert of_pod.startswith(f"Pod {scene.own.namespace}/mine-0 waits.")
    assert f"Its turn: {place}" in of_pod

    told_json = json.loads(await answer("explain", "mine", "-o", "json"))
    assert told_json["turn"] == {"place": 3, "of": 3, "placeInQueue": 3, "ofQueue": 3}
    assert told_json["queue"]["limit"]["cpu"] == "4"
    assert told_json["planned"] is False

    heading, row = (await answer("queues", "--resource=cpu")).splitlines()
    columns = ["QUEUE", "HELD", "ASKED", "FAIR", "QUOTA", "LIMIT", "RUNNING", "WAITING"]
    assert heading.split() == columns
    assert row.split() == [scene.queue, "2", "8", "2", "2", "4", "1", "3"]
    rows = json.loads(await answer("get", "queues", "-o", "json"))
    assert [(each["name"], each["cpu"]) for each in rows] == [(scene.queue, "2/4")]
    assert (await answer("explain", f"queue/{scene.queue}")).startswith(f"Queue {scene.queue}: 1 ")

    (gang,) = json.loads(await answer("get", "gangs", "-o", "json"))
    assert (gang["name"], gang["turn"], gang["queue"]) == ("mine", "3/3", scene.queue)


async def test_a_tenant_cannot_ask_about_another_namespace(scene: Scene, ask: Ask) -> None:
    for arguments in (("explain", "x"), ("get", "gangs"), ("get", "queues")):
        done = await asyncio.to_thread(ask, *arguments, "-n", scene.other.namespace)

        assert done.returncode == 3
        assert "forbidden" in done.stderr
