"""Volumes of pods that run: what containers are given, and what is left afterwards."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bindery.nodeagent.containers.objects import ConfigObject
from bindery.nodeagent.containers.volumes import LOOK_S
from tests.nodeagent.containers import volumestory
from tests.nodeagent.containers.fakeruntime import FakeRuntime
from tests.nodeagent.containers.harness import (
    WAIT_S,
    Events,
    FixedObjects,
    container,
    decoded,
    keeping,
    manifest,
    running,
)
from tests.nodeagent.volumes.namespaces import require_loop_devices, require_mounts, run_alone


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    require_mounts()
    require_loop_devices()
    place = tmp_path_factory.mktemp("mounted")
    answer: dict[str, Any] = run_alone(volumestory.__name__, str(place))
    return answer


def test_containers_get_files_memory_and_volumes_of_drivers(found: dict[str, Any]) -> None:
    kinds = ("map", "secret", "token", "memory", "data", "part")
    assert {kind: found[kind] for kind in kinds} == {
        "map": "fast",
        "secret": "hidden",
        "token": "token for vault",
        "memory": "tmpfs",
        "data": "by the container",
        "part": "in the part",
    }
    assert found["read only"] == ["/map", "/secret", "/token"]


def test_a_container_gets_the_disk_of_a_claim_as_a_device(found: dict[str, Any]) -> None:
    assert found["devices"] == [["/dev/disk", "mrw", True]]


def test_a_driver_that_hangs_holds_only_the_pod_of_its_volume(found: dict[str, Any]) -> None:
    assert found["held"] == ["Pending", []]


def test_nothing_is_mounted_after_the_pods_and_the_volume_keeps_its_files(
    found: dict[str, Any],
) -> None:
    assert found["left"] == []
    assert found["still there"] == "by the container"


async def test_a_volume_that_cannot_be_made_holds_its_pod_until_it_can(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    objects, events = FixedObjects(), Events()
    spec = manifest(
        container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        volumes=[{"name": "v", "configMap": {"name": "settings"}}],
    )
    async with (
        keeping(tmp_path / "root", objects, events=events) as kept,
        running(tmp_path, spec, runtime, objects, kept=kept) as pod,
    ):
        await pod.until(lambda: events.seen)
        name, reason, message = events.seen[0]
        assert (name, reason) == ("pod", "FailedMount")
        assert message.startswith('MountVolume.SetUp failed for volume "v"')
        assert pod.status["phase"] == "Pending"

        objects.maps["settings"] = ConfigObject(data={"mode": "fast"})

        await pod.phase("Running")


async def test_a_sub_path_that_leads_out_of_its_volume_holds_the_container(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    mount = {"name": "v", "mountPath": "/v", "subPath": "../../secrets"}
    spec = manifest(container(volumeMounts=[mount]), volumes=[{"name": "v", "emptyDir": {}}])
    async with running(tmp_path, spec, runtime) as pod:
        await pod.until(lambda: pod.waits_for() == "CreateContainerConfigError")

        assert pod.report()["state"]["waiting"]["message"] == (
            'failed to prepare subPath for volumeMount "v" of container "app"'
        )


async def test_a_pod_that_has_ended_keeps_its_directory_until_it_is_gone(tmp_path: Path) -> None:
    root, objects = tmp_path / "root", FixedObjects()
    spec = manifest(
        container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    pod = decoded(spec)
    async with keeping(root, objects) as kept:
        volume = (await kept.prepare(pod))["v"].path
        message = root / "pods" / "uid-1" / "message"
        message.write_text("the end")
        await kept.release("uid-1")
        assert (volume.exists(), message.exists()) == (False, True)

        kept.forget("uid-1")

        await until(lambda: not message.parent.exists())


async def test_volumes_of_unknown_pods_stay_until_all_pods_are_known(tmp_path: Path) -> None:
    root = tmp_path / "root"
    left = root / "pods" / "uid-9" / "volumes" / "kubernetes.io~empty-dir" / "v"
    left.mkdir(parents=True)
    async with keeping(root, FixedObjects(), knows_all=False) as kept:
        pod = decoded(manifest(container()))
        await kept.prepare(pod)
        await until(kept.keeper.manager.reconciler_states_has_been_synced)
        await asyncio.sleep(2 * LOOK_S)
        assert left.exists()

        kept.have_all()

        await until(lambda: not (root / "pods" / "uid-9").exists())


async def test_a_field_that_no_file_can_show_is_an_error_of_the_volume(tmp_path: Path) -> None:
    objects, events = FixedObjects(), Events()
    item = {"path": "x", "fieldRef": {"fieldPath": "spec.nothing"}}
    spec = manifest(
        container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        volumes=[{"name": "v", "downwardAPI": {"items": [item]}}],
    )
    async with keeping(tmp_path / "root", objects, events=events) as kept:
        kept.open([decoded(spec)])
        await until(lambda: events.seen)

        assert "field label not supported: spec.nothing" in events.seen[0][2]
