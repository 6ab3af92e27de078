"""Container requests for devices of each vendor, and the table of vendors."""

from dataclasses import dataclass

import pytest

from bindery.api.hami import nodedevices, requests
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.requests import DeviceRequest
from bindery.api.hami.vendor import Lock, Register
from bindery.api.hami.vendortable import BY_WORD, MANAGED, NVIDIA, VENDORS


@dataclass
class Resources:
    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


def ask(**amounts: str) -> DeviceRequest:
    named = {f"nvidia.com/{key.replace('_', '-')}": text for key, text in amounts.items()}
    (found,) = requests.read_container(named)
    return found


def test_a_gpu_request_without_shares_is_a_whole_gpu() -> None:
    found = ask(gpu="1")

    assert (found.memory_percent, found.cores, found.is_exclusive) == (100, 100, True)


def test_memory_in_mib_precedes_a_percentage() -> None:
    # The API server writes 3000 as 3k.
    found = ask(gpu="1", gpumem="3k", gpumem_percentage="50", gpucores="30")

    assert (found.memory_mib, found.cores, found.is_exclusive) == (3000, 30, False)


def test_a_request_for_a_part_of_the_memory_shares_the_cores() -> None:
    assert ask(gpu="2", gpumem="1000").cores == 0
    assert ask(gpu="2", gpumem_percentage="50").cores == 0
    assert ask(gpu="2", gpumem_percentage="100").cores == 100


@pytest.mark.parametrize(
    ("amounts", "says"),
    [
        ({"nvidia.com/gpumem": "1000"}, "without nvidia.com/gpu"),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "16Gi"}, "plain number"),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "500m"}, "plain number"),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "101"}, "above 100"),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "many"}, "gpucores"),
        ({"kunlunxin.com/xpu": "3"}, "one of 1, 2, 4, 8"),
        ({"mthreads.com/vgpu": "1", "mthreads.com/sgpu-memory": "3"}, "one of 2, 4"),
        ({"huawei.com/Ascend910B3": "2", "huawei.com/Ascend910B3-memory": "16384"}, "a part"),
        ({"huawei.com/Ascend910C": "3"}, "one of 1, 2, 4"),
        ({"aws.amazon.com/neuroncore": "3"}, "1 or even"),
    ],
)
def test_impossible_device_requests_are_refused_by_name(amounts: dict[str, str], says: str) -> None:
    with pytest.raises(HamiFormatError, match=says):
        requests.read_container(amounts)


@pytest.mark.parametrize(
    ("word", "amounts", "memory_mib", "cores"),
    [
        ("MLU", {"cambricon.com/vmlu": "1", "cambricon.com/mlu.smlu.vmemory": "20"}, 5120, 100),
        ("DCU", {"hygon.com/dcunum": "1", "hygon.com/dcumem": "2000"}, 2000, 100),
        (
            "MR-V100",
            {"iluvatar.ai/MR-V100-vgpu": "1", "iluvatar.ai/MR-V100.vMem": "64"},
            16384,
            100,
        ),
        (
            "Ascend910B3",
            {"huawei.com/Ascend910B3": "1", "huawei.com/Ascend910B3-memory": "1000"},
            16384,
            5,
        ),
        (
            "Ascend310P",
            {"huawei.com/Ascend310P": "1", "huawei.com/Ascend310P-memory": "20k"},
            0,
            100,
        ),
        ("XPU", {"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": "25000"}, 49152, 50),
        (
            "Mthreads",
            {
                "mthreads.com/vgpu": "1",
                "mthreads.com/sgpu-memory": "32",
                "mthreads.com/sgpu-core": "8",
            },
            16384,
            8,
        ),
        ("Metax-SGPU", {"metax-tech.com/sgpu": "1", "metax-tech.com/vmemory": "4"}, 4096, 100),
        ("AMD", {"amd.com/gpu": "1", "amd.com/gpumem": "2000", "amd.com/gpucores": "50"}, 2000, 50),
        ("Vastai", {"vastaitech.com/va": "1"}, 0, 100),
        ("AWSNeuron", {"aws.amazon.com/neuroncore": "1"}, 0, 1),
    ],
)
def test_each_vendor_counts_memory_and_cores_in_its_own_way(
    word: str, amounts: dict[str, str], memory_mib: int, cores: int
) -> None:
    (found,) = requests.read_container(amounts)

    assert found.vendor is BY_WORD[word]
    assert (found.memory_mib, found.cores) == (memory_mib, cores)


def test_a_request_for_one_device_of_a_module_is_for_the_module() -> None:
    one = Resources(limits={"huawei.com/Ascend910C": "1"})
    two = Resources(limits={"huawei.com/Ascend910C": "2"})
    alone, whole = requests.read_pod([], [one]), requests.read_pod([], [two])

    assert alone is not None
    assert whole is not None
    assert [pod.slots[0][0].count for pod in (alone, whole)] == [2, 2]
    assert (alone.rounded, whole.rounded) == (alone.slots[0][0], None)
    # A pod that HAMi has bound without its webhook holds as many as its limit says.
    assert alone.counts(BY_WORD["Ascend910C"]) == [1]


def test_a_pod_has_a_slot_for_each_container_and_marks_non_sidecar_init_containers() -> None:
    gpu = Resources(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100"})
    pod = requests.read_pod([(gpu, False), (None, True)], [Resources(), gpu])

    assert pod is not None
    assert pod.counts(NVIDIA) == [1, 0, 0, 1]
    assert pod.passing == {0}
    assert pod.names_shares


def test_limits_precede_requests() -> None:
    asked = Resources(
        requests={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1"},
        limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "2"},
    )
    pod = requests.read_pod([], [asked])

    assert pod is not None
    assert pod.slots[0][0].memory_mib == 2


def test_a_pod_without_devices_has_no_request() -> None:
    assert requests.read_pod([(None, False)], [Resources(requests={"cpu": "1"})]) is None


def test_every_vendor_of_the_reference_has_its_row() -> None:
    words = [
        *("NVIDIA", "MLU", "DCU", "MR-V100", "MR-V50", "BI-V150", "BI-V100", "Ascend910A"),
        *("Ascend910B2", "Ascend910B3", "Ascend910B4", "Ascend910B4-1", "Ascend910C"),
        *("Ascend310P", "kunlun", "XPU", "Mthreads", "Metax-GPU", "Metax-SGPU", "GCU"),
        *("Enflame", "AWSNeuron", "AMD", "Vastai", "Biren"),
    ]

    assert [vendor.word for vendor in VENDORS] == words


def test_keys_of_different_vendors_differ() -> None:
    for keys in (
        [vendor.allocated_key for vendor in VENDORS],
        [vendor.to_allocate_key for vendor in VENDORS if vendor.to_allocate_key],
        [vendor.register_key for vendor in VENDORS if vendor.register_key],
        [vendor.count_resource for vendor in VENDORS],
    ):
        assert len(keys) == len(set(keys))


def test_each_vendor_row_has_a_source_of_devices() -> None:
    for vendor in VENDORS:
        assert (vendor.capacity is not None) == (vendor.register is Register.CAPACITY)
        assert bool(vendor.register_key) == (vendor.register is not Register.CAPACITY)
        # Who takes the node lock reads what is to be allocated.
        assert vendor.lock is Lock.NONE or vendor.to_allocate_key
    assert "nvidia.com/gpumem" in MANAGED
    assert "nvidia.com/gpu" not in MANAGED
    assert nodedevices.decode_cordon(" a, ,b") == {"a", "b"}
