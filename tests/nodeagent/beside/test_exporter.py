"""When the agent reads and writes, and what it does while something is away."""

from random import Random
from typing import Any, cast

import pytest

from bindery.api.names import NUMA_DETAIL_ANNOTATION
from bindery.kube.client import Client
from bindery.kube.environment import Environment
from bindery.kube.errors import NotFoundError, UnreachableError
from bindery.kube.events.recorder import EventRecorder, ObjectReference
from bindery.kube.objects.resources import Resource
from bindery.nodeagent.beside import metrics
from bindery.nodeagent.beside.exporter import UNREADABLE, Exporter
from bindery.nodeagent.beside.podresources import PodResources
from bindery.nodeagent.pod_objects import AgentPod
from bindery.nodecore.devices.state import Device
from tests.nodeagent.beside.besideworld import KubeletStandIn, node, pod


class Server:
    """An API server with one Node and its report, which may be away."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.environment = Environment(lambda: self.now_s, Random(1))
        self.stored: list[Any] = []
        self.exists = False
        self.is_away = False
        self.is_served = True

    async def get(self, _resource: Resource[Any], _name: str) -> Any:
        self._answer()
        return node()

    async def patch(self, _resource: Resource[Any], _name: str, body: Any) -> None:
        self._answer()
        if not self.exists:
            raise NotFoundError(404, "NotFound", "no such report")
        self.stored.append(body)

    async def create(self, _resource: Resource[Any], body: Any) -> None:
        self._answer()
        if not self.is_served:
            raise NotFoundError(404, "NotFound", "no such kind")
        self.exists = True
        self.stored.append(body)

    def _answer(self) -> None:
        if self.is_away:
            raise UnreachableError("the API server is away")


class Events:
    """Notes warnings in place of an EventRecorder."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def warning(self, _regarding: ObjectReference, reason: str, message: str) -> None:
        assert reason == UNREADABLE
        self.texts.append(message)


class Scene:
    """The agent with everything around it."""

    def __init__(self) -> None:
        self.server, self.kubelet, self.events = Server(), KubeletStandIn(), Events()
        self.pods: list[AgentPod] = []
        self.exporter = self.start()

    def start(self) -> Exporter:
        return Exporter(
            cast("Client", self.server),
            "n",
            self.kubelet,
            lambda: self.pods,
            cast("EventRecorder", self.events),
        )

    async def look(self, after_s: float = 1.0) -> None:
        self.server.now_s += after_s
        await self.exporter.look()

    async def admit(self, added: AgentPod) -> None:
        self.pods.append(added)
        self.kubelet.admit(added)
        self.exporter.touch()
        await self.look()

    @property
    def shown(self) -> str:
        text: str = self.server.stored[-1]["metadata"]["annotations"][NUMA_DETAIL_ANNOTATION]
        return text


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    await scene.look()
    return scene


async def test_the_first_report_is_created_and_later_ones_are_patches(scene: Scene) -> None:
    assert scene.exporter.is_ready
    await scene.admit(pod("one"))

    assert len(scene.server.stored) == 2
    assert "uid-one" in scene.shown


async def test_nothing_is_read_or_written_while_nothing_changes(scene: Scene) -> None:
    readings = scene.kubelet.readings

    for _ in range(20):
        await scene.look()

    assert scene.kubelet.readings == readings
    assert len(scene.server.stored) == 1
    assert scene.exporter.is_ready


async def test_a_change_of_a_pod_that_changes_no_zone_is_not_written(scene: Scene) -> None:
    scene.exporter.touch()
    await scene.look()

    assert len(scene.server.stored) == 1


async def test_the_report_is_written_again_from_time_to_time(scene: Scene) -> None:
    """It may have been deleted."""
    scene.server.exists = False

    await scene.look(301.0)

    assert len(scene.server.stored) == 2


async def test_a_change_while_files_are_read_is_read_again(scene: Scene) -> None:
    late = pod("late")
    scene.pods.append(late)
    answer = scene.kubelet.resources

    async def admits_meanwhile() -> PodResources:
        scene.kubelet.resources = answer  # type: ignore[method-assign]
        scene.kubelet.admit(late)
        return await answer()

    scene.kubelet.resources = admits_meanwhile  # type: ignore[method-assign]
    scene.exporter.touch()
    await scene.look()

    assert "uid-late" in scene.shown


async def test_a_socket_that_is_away_keeps_the_devices_and_is_named_once(scene: Scene) -> None:
    scene.kubelet.answers = PodResources({"example.com/gpu": (Device("a", (0,)),)})
    scene.exporter.touch()
    await scene.look()
    scene.kubelet.is_away = True

    await scene.admit(pod("one"))
    for _ in range(5):
        await scene.look(31.0)

    assert "uid-one" in scene.shown
    assert '"example.com/gpu":{"node-0":["a"]}' in scene.shown
    (text,) = scene.events.texts
    assert "the devices are believed as they were" in text
    assert not scene.exporter.is_ready
    assert metrics.PROBLEMS.labels("podresources")._value.get() == 1
    scene.kubelet.is_away = False
    await scene.look()
    assert scene.exporter.is_ready
    assert metrics.PROBLEMS.labels("podresources")._value.get() == 0


async def test_without_any_answer_of_the_socket_there_is_no_report() -> None:
    scene = Scene()
    scene.kubelet.is_away = True

    await scene.look()

    assert scene.server.stored == []
    assert not scene.exporter.is_ready
    assert "there is no report" in scene.events.texts[0]


async def test_a_corrupt_file_leaves_the_report_until_it_is_mended(scene: Scene) -> None:
    await scene.admit(pod("one"))
    good = scene.kubelet.blobs
    scene.kubelet.blobs = {**good, "cpu_manager_state": b'{"policyName":"static"}'}
    scene.kubelet.changes += 1

    await scene.look()
    await scene.look()
    assert len(scene.server.stored) == 2
    assert len(scene.events.texts) == 1

    scene.kubelet.blobs = good
    await scene.look()
    assert scene.exporter.age_s == 0


async def test_a_kubelet_that_starts_again_is_read_with_its_new_policy(scene: Scene) -> None:
    scene.kubelet.restart(topologyManagerPolicy="restricted", cpuManagerPolicy="none")

    await scene.look()

    attributes = {one["name"]: one["value"] for one in scene.server.stored[-1]["attributes"]}
    assert attributes["topologyManagerPolicy"] == "restricted"
    assert scene.events.texts == []


async def test_a_configuration_that_no_kubelet_has_read_yet_is_not_believed(scene: Scene) -> None:
    scene.kubelet.text = None

    scene.exporter.touch()
    await scene.look(31.0)

    assert scene.events.texts == []
    assert scene.exporter.is_ready


async def test_an_api_server_that_is_away_is_asked_less_and_less(scene: Scene) -> None:
    scene.server.is_away = True
    asked = 0
    scene.pods.append(pod("one"))
    scene.kubelet.admit(scene.pods[0])
    readings = scene.kubelet.readings

    for _ in range(60):
        await scene.look()
    asked = scene.kubelet.readings - readings

    assert 3 <= asked <= 12
    scene.server.is_away = False
    await scene.look(31.0)
    assert "uid-one" in scene.shown


async def test_a_kind_that_is_not_served_is_asked_for_every_half_minute() -> None:
    scene = Scene()
    scene.server.is_served = False

    for _ in range(40):
        await scene.look()
    assert scene.server.stored == []
    scene.server.is_served = True
    await scene.look(31.0)

    assert len(scene.server.stored) == 1
