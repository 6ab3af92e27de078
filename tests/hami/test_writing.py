"""Annotations written to pods, byte for byte for every vendor, and their exact rollback."""

import pytest

from bindery.api.hami import assignment as assignments
from bindery.api.hami import names
from bindery.api.hami.assignment import Assignment
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.migallocations import MigAllocation
from bindery.api.hami.nodedevices import MigPlacement
from bindery.api.hami.poddevices import ContainerDevice
from bindery.api.hami.vendortable import BY_WORD, VENDORS
from bindery.binder.plugins.hami import admission, pods
from bindery.binder.plugins.hami.objects import HolderPod
from bindery.kube.objects.watched import Meta

NOW_S = 1786000000.5


def of(word: str, memory_mib: int = 1024, cores: int = 10, uuid: str = "u-1") -> Assignment:
    return Assignment({word: ((ContainerDevice(uuid, word, memory_mib, cores),),)}, {uuid: 1})


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.word)
def test_devices_of_every_vendor_are_written_under_its_keys(vendor: object) -> None:
    row = BY_WORD[vendor.word]  # type: ignore[attr-defined]
    written = assignments.annotations(of(row.word), "n1", NOW_S)

    assert written[row.allocated_key] == f"u-1,{row.word},1024,10:;"
    if row.to_allocate_key:
        assert written[row.to_allocate_key] == written[row.allocated_key]
    assert written[names.ASSIGNED_NODE] == "n1"
    assert written[names.ASSIGNED_TIME] == written[names.BIND_TIME] == "1786000000"
    assert written[names.BIND_PHASE] == "allocating"


@pytest.mark.parametrize(
    ("word", "memory_mib", "cores", "extras"),
    [
        (
            "MLU",
            5120,
            30,
            {"CAMBRICON_DSMLU_PROFILE": "1_30_20", "CAMBRICON_DSMLU_ASSIGNED": "false"},
        ),
        ("kunlun", 98304, 100, {"BAIDU_COM_DEVICE_IDX": "1"}),
        (
            "Mthreads",
            16384,
            8,
            {
                "mthreads.com/gpu-index": "1",
                "mthreads.com/predicate-node": "n1",
                "mthreads.com/predicate-time": "1786000000500000000",
            },
        ),
        (
            "Ascend910B3",
            16384,
            5,
            {
                "huawei.com/Ascend910B3": (
                    '[{"UUID":"u-1","temp":"vir05_1c_16g","memory":16384,"core":5}]'
                ),
                "predicate-time": "1786000000",
            },
        ),
        (
            "Metax-SGPU",
            4096,
            50,
            {"metax-tech.com/gpu-devices-allocated": '[[{"uuid":"u-1","compute":50,"vRam":4096}]]'},
        ),
        ("Enflame", 50, 3, {"enflame.com/gcu-request-size": "3"}),
        ("AWSNeuron", 0, 3, {"AWS_NEURON_IDS": "1", "NEURON_ALLOCATED": "false"}),
    ],
)  # fmt: skip
def test_additional_keys_of_a_vendors_plugin_are_written(
    word: str, memory_mib: int, cores: int, extras: dict[str, str]
) -> None:
    written = assignments.annotations(of(word, memory_mib, cores), "n1", NOW_S)

    assert extras.items() <= written.items()


def test_mig_instances_of_the_scheduler_are_written_to_the_pod() -> None:
    instance = MigAllocation(
        container_index=0,
        device_index=0,
        gpu_uuid="u-1",
        profile="1g.5gb",
        placement=MigPlacement(6, 1),
    )
    given = Assignment(of("NVIDIA").devices, {"u-1": 1}, (instance,))

    read = assignments.from_data(given.to_data())

    assert read == given
    assert assignments.annotations(read, "n1", NOW_S)[names.MIG_ALLOCATIONS] == (
        '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"u-1","profile":"1g.5gb",'
        '"placement":{"start":6,"size":1}}]'
    )


@pytest.mark.parametrize(
    "data",
    [
        {"devices": {"Unknown": "a,b,1,1:;"}},
        {"devices": {"NVIDIA": "a,b:;"}},
        {"devices": []},
        {"devices": {}, "more": 1},
        {"devices": {}, "mig": "[{}]"},
    ],
)
def test_impossible_device_data_of_a_request_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(HamiFormatError):
        assignments.from_data(data)


def test_a_rollback_removes_only_the_written_keys() -> None:
    given = of("NVIDIA")
    written = {
        k: v
        for k, v in pods.prepared(given, "uid", "n1", NOW_S)["metadata"]["annotations"].items()
        if v
    }
    pod = HolderPod(
        metadata=Meta(
            uid="uid", annotations={**written, "mine": "1"}, labels={names.ASSIGNED_NODE: "n1"}
        )
    )

    patch = pods.undone(pod, given, "n1", NOW_S + 60)

    assert patch is not None
    removed = {step["path"] for step in patch if step["op"] == "remove"}
    assert "/metadata/labels/hami.io~1vgpu-node" in removed
    assert len(removed) == len(written) + 1
    assert not any("mine" in path for path in removed)


def test_a_rollback_keeps_later_writes_of_another_scheduler() -> None:
    theirs = {names.ASSIGNED_NODE: "n2", "hami.io/vgpu-devices-allocated": "u-1,NVIDIA,1024,10:;"}
    pod = HolderPod(metadata=Meta(uid="uid", annotations=theirs))

    assert pods.undone(pod, of("NVIDIA"), "n1", NOW_S) is None


WRITTEN = assignments.written(of("NVIDIA"), "uid", "n1", NOW_S)
TO_ALLOCATE, ALLOCATED = "hami.io/vgpu-devices-to-allocate", "hami.io/vgpu-devices-allocated"
RECORD = names.DEVICES_RECORD
OTHER_RECORD = assignments.written(of("NVIDIA", 1), "uid", "n1", NOW_S)[RECORD]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({}, ""),
        ({"mine": "1"}, ""),
        ({names.BIND_TIME: "1"}, ""),
        ({TO_ALLOCATE: "u-2,NVIDIA,99999,100:;"}, TO_ALLOCATE),
        ({TO_ALLOCATE: None}, TO_ALLOCATE),
        ({ALLOCATED: ""}, ALLOCATED),
        ({names.BIND_PHASE: "success"}, names.BIND_PHASE),
        ({names.BIND_TIME: None}, names.BIND_TIME),
        ({names.ASSIGNED_NODE: "n2"}, names.ASSIGNED_NODE),
        ({names.MIG_ALLOCATIONS: "[]"}, names.MIG_ALLOCATIONS),
        ({"hami.io/dcu-devices-allocated": "d,DCU,1,1:;"}, "hami.io/dcu-devices-allocated"),
        ({RECORD: OTHER_RECORD}, RECORD),
        ({RECORD: None}, RECORD),
    ],
)
def test_annotations_that_differ_from_the_binders_are_named(
    changes: dict[str, str | None], key: str
) -> None:
    present = {k: text for k, text in {**WRITTEN, **changes}.items() if text is not None}

    assert assignments.rewritten_key(present, of("NVIDIA"), "uid", "n1") == key


@pytest.mark.parametrize(
    ("annotations", "forged"),
    [
        (WRITTEN, ""),
        ({**WRITTEN, TO_ALLOCATE: "x"}, ""),
        ({TO_ALLOCATE: "x"}, TO_ALLOCATE),
        ({TO_ALLOCATE: "x", RECORD: "uid"}, TO_ALLOCATE),
        ({TO_ALLOCATE: "x", RECORD: ""}, TO_ALLOCATE),
    ],
)
def test_devices_of_an_unbound_pod_without_its_own_record_are_forged(
    annotations: dict[str, str], forged: str
) -> None:
    assert assignments.forged_key(annotations, "uid") == forged
    assert bool(assignments.forged_key(annotations, "another")) == bool(annotations)


def test_a_node_name_too_long_for_a_label_is_not_written_as_one() -> None:
    patch = pods.prepared(of("NVIDIA"), "uid", "n" * 64, NOW_S)

    assert "labels" not in patch["metadata"]
    assert patch["metadata"]["annotations"][names.ASSIGNED_NODE] == "n" * 64


def manifest(limits: dict[str, str], **annotations: str) -> dict[str, object]:
    return {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }


def test_admission_names_forged_annotations_and_bad_requests() -> None:
    forged = manifest({}, **{"hami.io/vgpu-devices-allocated": "x"})
    wrong = manifest({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "16Gi"})
    wish = manifest({"nvidia.com/gpu": "1"}, **{"hami.io/gpu-scheduler-policy": "up"})

    assert "written by the binder" in admission.problems(forged)[0]
    assert "plain number" in admission.problems(wrong)[0]
    assert "'up' is none of" in admission.problems(wish)[0]
    assert admission.problems(manifest({"nvidia.com/gpu": "1"})) == []


def test_admission_adds_a_gpu_to_requests_for_only_memory_or_cores() -> None:
    pod = manifest({"nvidia.com/gpumem": "1000"})
    changed = admission.with_defaults(pod)

    assert changed["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert pod == manifest({"nvidia.com/gpumem": "1000"})


def test_admission_rounds_a_single_device_up_to_its_module() -> None:
    pod = manifest({"huawei.com/Ascend910C": "1"})
    pod["spec"]["containers"][0]["resources"]["requests"] = {"huawei.com/Ascend910C": "1"}  # type: ignore[index]
    resources = admission.with_defaults(pod)["spec"]["containers"][0]["resources"]

    assert resources["limits"] == resources["requests"] == {"huawei.com/Ascend910C": "2"}
    four = manifest({"huawei.com/Ascend910C": "4"})
    assert admission.with_defaults(four) == four
