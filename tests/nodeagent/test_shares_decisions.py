"""Decisions of the device plugin: variables and mounts, the room of cards, half-done work."""

from pathlib import PurePosixPath

import pytest

from bindery.api.hami import names
from bindery.api.hami.names import BindPhase
from bindery.api.hami.vendortable import NVIDIA, VENDORS
from bindery.nodeagent.devices.hamiregister import Sharing
from bindery.nodeagent.devices.inventory import NodeGpu
from bindery.nodeagent.hamicore import ContainerMount, HamiCore
from bindery.nodeagent.shares import containers, indexes, ledger, plugin, settling
from bindery.nodeagent.shares.containers import Handing
from bindery.nodeagent.shares.devicelist import DeviceList
from bindery.nodeagent.shares.pods import ContainerTurn, SharingPod, next_turn
from tests.nodeagent.sharingpods import NODE, device, pod, served

CARD = NodeGpu(uuid="GPU-a", memory_mib=10_000, numa_node=1)
OTHER = NodeGpu(uuid="GPU-b", index=1, memory_mib=10_000)
WITHOUT = HamiCore(PurePosixPath("/usr/local"), is_installed=False)
WITH = HamiCore(PurePosixPath("/usr/local"), is_installed=True)


def turn(of: SharingPod) -> ContainerTurn:
    found = next_turn(of, NODE, {})
    assert found is not None
    return found


# ---- what a container gets ---------------------------------------------------------------------


def granted(handing: Handing, **container: object) -> containers.Grant:
    slots = ((device("GPU-a", 3000, 30), device("GPU-b", 2000, 30)),)
    found = turn(pod("a", slots, containers=[container]))
    return containers.grant(found.devices, found.container, "uid-a", handing, "t")


def test_a_container_gets_the_variables_of_hamis_plugin() -> None:
    found = granted(Handing(DeviceList.ENVVAR, WITHOUT))

    assert found.variables == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "2000m",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/t.cache",
    }
    assert (found.mounts, found.cdi_devices) == ((), ())


def test_hami_cores_library_is_mounted_and_loaded_where_it_is_installed() -> None:
    found = granted(Handing(DeviceList.ENVVAR, WITH, is_oversubscribed=True))

    assert found.mounts == (
        ContainerMount("/usr/local/vgpu/libvgpu.so", "/usr/local/vgpu/libvgpu.so", read_only=True),
        ContainerMount("/usr/local/vgpu", "/usr/local/vgpu/containers/uid-a_c0"),
        ContainerMount("/tmp/vgpulock", "/tmp/vgpulock"),
        ContainerMount("/etc/ld.so.preload", "/usr/local/vgpu/ld.so.preload", read_only=True),
    )
    assert found.variables["CUDA_OVERSUBSCRIBE"] == "true"


def test_a_container_that_turns_the_control_off_does_not_load_the_library() -> None:
    env = [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]

    found = granted(Handing(DeviceList.ENVVAR, WITH), env=env)

    assert "/etc/ld.so.preload" not in {mount.inside for mount in found.mounts}


def test_devices_are_passed_by_mounts_or_by_cdi_where_the_runtime_ignores_the_variable() -> None:
    mounted = granted(Handing(DeviceList.VOLUME_MOUNTS, WITHOUT))
    assert mounted.variables["NVIDIA_VISIBLE_DEVICES"] == "/var/run/nvidia-container-devices"
    assert mounted.mounts == (
        ContainerMount("/var/run/nvidia-container-devices/GPU-a", "/dev/null"),
        ContainerMount("/var/run/nvidia-container-devices/GPU-b", "/dev/null"),
    )

    by_cdi = granted(Handing(DeviceList.CDI, WITHOUT))
    assert by_cdi.variables["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert by_cdi.cdi_devices == (
        "k8s.device-plugin.nvidia.com/gpu=GPU-a",
        "k8s.device-plugin.nvidia.com/gpu=GPU-b",
    )
    message = plugin.answer(by_cdi)
    assert [each.name for each in message.cdi_devices] == list(by_cdi.cdi_devices)


def test_a_card_is_listed_once_a_share_with_its_zone_and_health() -> None:
    listed = plugin.devices(CARD, 2)
    sick = plugin.devices(CARD.model_copy(update={"problem": "x", "numa_node": -1}), 1)

    assert [(each.ID, each.health) for each in listed] == [
        ("GPU-a-0", "Healthy"), ("GPU-a-1", "Healthy"),
    ]  # fmt: skip
    assert [node.ID for node in listed[0].topology.nodes] == [1]
    assert sick[0].health == "Unhealthy"
    assert not sick[0].HasField("topology")


# ---- what a card has ---------------------------------------------------------------------------


def problem(new: SharingPod, *others: SharingPod) -> str:
    return ledger.problem(turn(new), NODE, (new, *others), (CARD, OTHER), Sharing(4))


def test_what_fits_beside_the_other_pods_is_given() -> None:
    running = pod("old", ((device(memory_mib=6000, cores=60),),), phase="Running")

    assert problem(pod("new", ((device(memory_mib=4000, cores=40),),)), running) == ""


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (device(memory_mib=4001), "has 10000 MiB, and pods would hold 10001"),
        (device(memory_mib=1, cores=41), "has 100 % of cores, and pods would hold 101"),
        (device("GPU-c"), "the node has no GPU GPU-c"),
    ],
)
def test_more_than_a_card_has_is_refused(new: object, message: str) -> None:
    running = pod("old", ((device(memory_mib=6000, cores=60),),), phase="Running")

    assert message in problem(pod("new", ((new,),)), running)  # type: ignore[arg-type]


def test_more_containers_than_shares_are_refused() -> None:
    small = tuple((device(memory_mib=1, cores=0),) for _ in range(4))

    found = problem(pod("new", ((device(memory_mib=1, cores=0),),)), pod("old", small))

    assert "shared by at most 4 containers, not 5" in found


def test_an_unhealthy_card_is_refused_with_its_reason() -> None:
    sick = CARD.model_copy(update={"problem": "Xid 79"})
    new = pod("new", ((device(),),))

    assert "unhealthy: Xid 79" in ledger.problem(turn(new), NODE, [new], [sick], Sharing())


def test_pods_that_have_ended_or_are_unreadable_or_elsewhere_hold_nothing() -> None:
    whole = ((device(memory_mib=10_000),),)
    others = [
        pod("ended", whole, phase="Failed"),
        pod("unreadable", whole, is_recorded=False, annotations={NVIDIA.allocated_key: "x,"}),
        pod("elsewhere", whole, is_recorded=False, annotations={names.ASSIGNED_NODE: "node-2"}),
    ]  # fmt: skip

    assert problem(pod("new", whole), *others) == ""


def test_init_containers_that_have_passed_share_with_the_containers_after_them() -> None:
    slots = ((device(memory_mib=9000),), (device(memory_mib=8000),))

    assert problem(pod("new", slots, init=1)) == ""
    assert "17000" in problem(pod("new", slots))


# ---- what is left half done --------------------------------------------------------------------


def of(*pods: SharingPod) -> dict[tuple[str, str], SharingPod]:
    return {each.key: each for each in pods}


SLOTS = ((device(),),)
DONE = served(pod("a", SLOTS))
MLU = next(vendor for vendor in VENDORS if vendor.word == "MLU")


@pytest.mark.parametrize(
    ("found", "phases"),
    [
        (pod("a", SLOTS), []),
        (pod("a", SLOTS, phase="Failed"), [BindPhase.FAILED]),
        (pod("a", SLOTS, phase="Running", annotations=DONE), [BindPhase.SUCCESS]),
        (pod("a", SLOTS, phase="Running"), []),
        (pod("a", SLOTS, phase="Failed", annotations={names.BIND_PHASE: "success"}), []),
        (pod("a", ((),), phase="Failed"), []),
        (pod("a", SLOTS, phase="Failed", node="node-2"), []),
    ],
)
def test_the_phase_of_a_pod_that_ended_or_started_is_final(
    found: SharingPod, phases: list[BindPhase]
) -> None:
    assert [end.phase for end in settling.unfinished_phases(of(found), NODE)] == phases


HELD = "2026-08-21T06:20:39Z,n,a"


@pytest.mark.parametrize(
    ("found", "is_abandoned"),
    [
        (pod("a", SLOTS), False),
        (pod("a", SLOTS, phase="Failed"), True),
        (pod("a", SLOTS, annotations={names.BIND_PHASE: "failed"}), True),
        (pod("a", SLOTS, annotations={**DONE, names.BIND_PHASE: "success"}), True),
        (pod("a", SLOTS, annotations={names.BIND_PHASE: "success"}), False),
        (pod("a", SLOTS, annotations={
            **DONE, names.BIND_PHASE: "success", MLU.to_allocate_key: "m,MLU,1,1:;",
        }), False),
        (pod("a", SLOTS, phase="Failed", node="node-2"), False),
    ],
)  # fmt: skip
def test_a_lock_is_released_when_its_pod_needs_it_no_more(
    found: SharingPod, is_abandoned: bool
) -> None:
    assert (settling.abandoned_lock(of(found), HELD, NODE) is not None) == is_abandoned


def test_the_lock_of_a_pod_that_is_not_here_is_asked_about_first() -> None:
    end = settling.abandoned_lock({}, HELD, NODE)

    assert end is not None
    assert end.is_gone
    assert end.holder == ("n", "a")


@pytest.mark.parametrize("value", [None, "2026-08-21T06:20:39Z", "nonsense", "a,b"])
def test_a_lock_without_a_holders_name_is_left_to_the_binder(value: str | None) -> None:
    assert settling.abandoned_lock({}, value, NODE) is None


# ---- which GPUs whole pods have ----------------------------------------------------------------


def test_pods_with_whole_gpus_get_the_indexes_that_the_kubelet_and_the_driver_report() -> None:
    bare = dict.fromkeys(turn(pod("a", SLOTS)).pod.metadata.annotations)
    whole = pod("whole", ((device(), device()),), annotations=bare)
    held = {("n", "whole"): {"c0": ["GPU-b", "GPU-a"]}}

    assert [text for _, text in indexes.found([whole], held, [CARD, OTHER])] == ["0,1"]
    assert indexes.found([whole], {("n", "whole"): {"c0": ["GPU-b"]}}, [CARD, OTHER]) == []
    assert indexes.found([whole], {("n", "whole"): {"c0": ["x", "y"]}}, [CARD, OTHER]) == []
    assert indexes.found([whole], {}, [CARD, OTHER]) == []
    assert indexes.lacking([pod("shared", SLOTS), pod("cpu", ((),), annotations=bare)]) == []
