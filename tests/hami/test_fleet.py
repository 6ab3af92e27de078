"""The devices that a bound pod is counted with when only its annotations are known."""

import json

import pytest

from bindery.api.hami import assignment as assignments
from bindery.api.hami import names
from bindery.api.hami.assignment import Assignment
from bindery.api.hami.poddevices import ContainerDevice, Holding
from bindery.api.hami.vendortable import NVIDIA, VENDORS
from bindery.kube.objects.podspec import Container, PodSpec, ResourceRequirements
from bindery.kube.objects.watched import Meta, Pod, PodStatus
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.plugins.hami.fleet import Fleet, read_held

GIVEN = Assignment({"NVIDIA": ((ContainerDevice("GPU-0", "NVIDIA", 8000, 50),),)})
BY_BINDER = assignments.written(GIVEN, "uid", "n0", 0)
SMALL = {NVIDIA.allocated_key: "GPU-0,NVIDIA,1,0:;"}
RECORD = names.DEVICES_RECORD


def pod(annotations: dict[str, str], uid: str = "uid", node: str = "n0") -> Pod:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000"}
    container = Container(name="c", resources=ResourceRequirements(limits=limits))
    return Pod(
        metadata=Meta(name="a", namespace="team", uid=uid, annotations=annotations),
        spec=PodSpec(node_name=node, containers=[container]),
        status=PodStatus(phase="Running"),
    )


def moved(**facts: str) -> dict[str, str]:
    """Return the binder's annotations with another record."""
    return {**BY_BINDER, RECORD: json.dumps({**json.loads(BY_BINDER[RECORD]), **facts})}


WHOLE = {"GPU-0": Holding(1, 8000, 50)}
LITTLE = {"GPU-0": Holding(1, 1, 0)}
UNRECORDED = {key: text for key, text in BY_BINDER.items() if key != RECORD}


@pytest.mark.parametrize(
    ("annotations", "holds", "is_recorded"),
    [
        (BY_BINDER, WHOLE, True),
        ({**BY_BINDER, **SMALL}, WHOLE, True),
        ({**BY_BINDER, NVIDIA.allocated_key: ""}, WHOLE, True),
        ({RECORD: BY_BINDER[RECORD]}, WHOLE, True),
        ({**BY_BINDER, names.ASSIGNED_NODE: "n1"}, WHOLE, True),
        (UNRECORDED, WHOLE, False),
        ({**UNRECORDED, **SMALL}, LITTLE, False),
        ({**moved(pod="other"), **SMALL}, LITTLE, False),
        ({**BY_BINDER, **SMALL, RECORD: "{"}, LITTLE, False),
        ({**BY_BINDER, **SMALL, RECORD: "[" * 100_000}, LITTLE, False),
        ({**BY_BINDER, **SMALL, RECORD: '{"pod":"uid","node":"n0"}'}, LITTLE, False),
    ],
)
def test_the_record_of_the_binder_is_used_and_not_other_annotations(
    annotations: dict[str, str], holds: dict[str, Holding], is_recorded: bool
) -> None:
    held = read_held(pod(annotations), VENDORS)

    assert held is not None
    assert (held.node, held.devices, held.is_recorded) == ("n0", holds, is_recorded)


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        moved(node="n1"),
        {**UNRECORDED, names.ASSIGNED_NODE: "n1"},
        {**UNRECORDED, NVIDIA.allocated_key: "GPU-0,NVIDIA"},
        {**UNRECORDED, NVIDIA.allocated_key: "GPU-0,NVIDIA,1,1:GPU-1,NVIDIA,1,1:;"},
    ],
)
def test_devices_of_another_node_or_without_a_request_are_not_counted(
    annotations: dict[str, str],
) -> None:
    assert read_held(pod(annotations), VENDORS) is None


def test_a_pod_bound_by_hami_holds_the_single_device_of_its_limit() -> None:
    limits = {"huawei.com/Ascend910C": "1"}
    container = Container(name="c", resources=ResourceRequirements(limits=limits))
    annotations = {"hami.io/Ascend910C-devices-allocated": "npu-0,Ascend910C,65536,20:;"}
    bound = Pod(
        metadata=Meta(name="a", namespace="team", uid="uid", annotations=annotations),
        spec=PodSpec(node_name="n0", containers=[container]),
    )
    held = read_held(bound, VENDORS)

    assert held is not None
    assert held.devices == {"npu-0": Holding(1, 65536, 20)}


def test_devices_at_the_first_sight_of_a_bound_pod_are_kept_despite_later_changes() -> None:
    fleet = Fleet(VENDORS)
    fleet.put_pod(pod(BY_BINDER))
    fleet.put_pod(pod(SMALL))

    assert fleet.held[Uid("uid")].devices == WHOLE
