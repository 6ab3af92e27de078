"""The vendors, one row each: everything that depends on a single vendor.

Read through `VENDORS`, `BY_WORD` and `MANAGED`. Rows describe HAMi v2.10.0 with its default
configuration (charts/hami, device-config), and use HAMi's names. The lines of a row are: names and
keys, devices of nodes, requests of containers, choice of devices, further annotations.
"""

from types import MappingProxyType
from typing import Final, TypedDict

from bindery.api.hami.names import MIG_ALLOCATIONS
from bindery.api.hami.vendor import Alignment, Capacity, Extra, Lock, Register, Slice, Vendor

_MODULES: Final = tuple((first, first + 1) for first in range(0, 16, 2))
_KUNLUN_PAIRS: Final = ((0, 4), (1, 5), (2, 6), (3, 7))
_KUNLUN_WINGS: Final = ((0, 1, 2, 3), (4, 5, 6, 7))
_KUNLUN_QUADS: Final = (
    *((0, 1, 4, 5), (2, 3, 6, 7), (0, 2, 4, 6)),
    *((1, 3, 5, 7), (0, 3, 4, 7), (1, 2, 5, 6)),
)
_IN_WING: Final = tuple(
    (first, second) for wing in _KUNLUN_WINGS for first in wing for second in wing if first < second
)
_KUNLUN_GROUPS: Final = MappingProxyType(
    {2: (*_IN_WING, *_KUNLUN_PAIRS), 4: (*_KUNLUN_WINGS, *_KUNLUN_QUADS)}
)


class _Keys(TypedDict):
    to_allocate_key: str
    allocated_key: str


def _keys(part: str) -> _Keys:
    """Return the annotations of pods with the usual names."""
    return _Keys(
        to_allocate_key=f"hami.io/{part}-devices-to-allocate",
        allocated_key=f"hami.io/{part}-devices-allocated",
    )


# fmt: off
def _iluvatar(word: str) -> Vendor:
    return Vendor(
        word, f"iluvatar.ai/{word}-vgpu", **_keys(word),
        register_key=f"hami.io/node-{word}-register",
        memory_resource=f"iluvatar.ai/{word}.vMem", memory_unit_mib=256,
        cores_resource=f"iluvatar.ai/{word}.vCore", default_cores=100, many_are_whole=True,
        use_ids=(f"hami.io/use-{word}-uuid",), avoid_ids=(f"hami.io/no-use-{word}-uuid",),
    )


def _ascend(word: str, *slices: Slice, modules: bool = False) -> Vendor:
    return Vendor(
        word, f"huawei.com/{word}", **_keys(word),
        register_key=f"hami.io/node-register-{word}",
        memory_resource=f"huawei.com/{word}-memory", cores_resource=f"huawei.com/{word}-core",
        slices=slices, many_are_whole=True,
        legal_counts=(1, *range(2, 17, 2)) if modules else (), module=2 if modules else 1,
        groups=MappingProxyType({2: _MODULES}) if modules else MappingProxyType({}),
        use_ids=(f"hami.io/use-{word}-uuid",), avoid_ids=(f"hami.io/no-use-{word}-uuid",),
        extras=((f"huawei.com/{word}", Extra.NPU_LIST), ("predicate-time", Extra.TIME_S)),
    )


def _counted(word: str, domain: str, resource: str, suffix: str) -> Vendor:
    return Vendor(
        word, f"{domain}/{resource}", **_keys(word),
        register_key=f"hami.io/node-{suffix}-register",
        use_ids=(f"{domain}/use-gpuuuid",), avoid_ids=(f"{domain}/nouse-gpuuuid",),
    )


NVIDIA: Final = Vendor(
    "NVIDIA", "nvidia.com/gpu", **_keys("vgpu"),
    register_key="hami.io/node-nvidia-register",
    memory_resource="nvidia.com/gpumem", percentage_resource="nvidia.com/gpumem-percentage",
    cores_resource="nvidia.com/gpucores", other_resources=("nvidia.com/priority",),
    use_types="nvidia.com/use-gputype", avoid_types="nvidia.com/nouse-gputype",
    use_ids=("nvidia.com/use-gpuuuid",), avoid_ids=("nvidia.com/nouse-gpuuuid",),
    extras=((MIG_ALLOCATIONS, Extra.MIG_INSTANCES),),
)

VENDORS: Final[tuple[Vendor, ...]] = (
    NVIDIA,
    Vendor(
        "MLU", "cambricon.com/vmlu", **_keys("cambricon-mlu"), lock=Lock.CAMBRICON,
        register=Register.CAPACITY, capacity=Capacity(
            "cambricon.com/mlu.smlu.vcore", per_device=100, id_part="cambricon-mlu",
            memory_resource="cambricon.com/mlu.smlu.vmemory",
        ),
        memory_resource="cambricon.com/mlu.smlu.vmemory", memory_unit_mib=256,
        cores_resource="cambricon.com/mlu.smlu.vcore", default_cores=100,
        use_ids=("cambricon.com/use-gpuuuid",), avoid_ids=("cambricon.com/nouse-gpuuuid",),
        extras=(
            ("CAMBRICON_DSMLU_PROFILE", Extra.MLU_PROFILE),
            ("CAMBRICON_DSMLU_ASSIGNED", Extra.FALSE),
        ),
    ),
    Vendor(
        "DCU", "hygon.com/dcunum", **_keys("dcu"),
        register_key="hami.io/node-dcu-register",
        memory_resource="hygon.com/dcumem", cores_resource="hygon.com/dcucores", default_cores=100,
        use_types="hygon.com/use-dcutype", avoid_types="hygon.com/nouse-dcutype",
        use_ids=("hygon.com/use-gpuuuid",), avoid_ids=("hygon.com/nouse-gpuuuid",),
    ),
    *map(_iluvatar, ("MR-V100", "MR-V50", "BI-V150", "BI-V100")),
    _ascend(
        "Ascend910A", Slice("vir02", 2184, 2), Slice("vir04", 4369, 4), Slice("vir08", 8738, 8),
        Slice("vir16", 17476, 16),
    ),
    _ascend(
        "Ascend910B2", Slice("vir03_1c_8g", 8192, 3), Slice("vir06_1c_16g", 16384, 6),
        Slice("vir12_3c_32g", 32768, 12),
    ),
    _ascend("Ascend910B3", Slice("vir05_1c_16g", 16384, 5), Slice("vir10_3c_32g", 32768, 10)),
    _ascend("Ascend910B4", Slice("vir05_1c_8g", 8192, 5), Slice("vir10_3c_16g", 16384, 10)),
    _ascend("Ascend910B4-1", Slice("vir05_1c_16g", 16384, 5), Slice("vir10_3c_32g", 32768, 10)),
    _ascend(
        "Ascend910C", Slice("vir05_1c_16g", 16384, 5), Slice("vir10_3c_32g", 32768, 10),
        modules=True,
    ),
    _ascend(
        "Ascend310P", Slice("vir01", 3072, 1), Slice("vir02", 6144, 2), Slice("vir04", 12288, 4),
    ),
    Vendor(
        "kunlun", "kunlunxin.com/xpu", "hami.io/kunlun-allocated", lock=Lock.NONE,
        register=Register.CAPACITY, capacity=Capacity(
            "kunlunxin.com/xpu", id_part="kunlun", memory_mib=98304, has_two_halves=True,
        ),
        is_whole=True, legal_counts=(1, 2, 4, 8), groups=_KUNLUN_GROUPS,
        use_ids=("baidu.com/use-gpuuuid", "hami.io/use-xpu-uuid"),
        avoid_ids=("baidu.com/nouse-gpuuuid", "hami.io/no-use-xpu-uuid"),
        extras=(("BAIDU_COM_DEVICE_IDX", Extra.INDEXES),),
    ),
    Vendor(
        "XPU", "kunlunxin.com/vxpu", **_keys("xpu"),
        register_key="hami.io/node-register-xpu",
        memory_resource="kunlunxin.com/vxpu-memory",
        slices=(Slice("24", 24576, 25), Slice("48", 49152, 50), Slice("96", 98304, 100)),
        has_one_size=True,
        use_ids=("baidu.com/use-gpuuuid", "hami.io/use-xpu-uuid"),
        avoid_ids=("baidu.com/nouse-gpuuuid", "hami.io/no-use-xpu-uuid"),
    ),
    Vendor(
        "Mthreads", "mthreads.com/vgpu", "hami.io/mthreads-vgpu-devices-allocated", lock=Lock.NONE,
        register=Register.CAPACITY, capacity=Capacity(
            "mthreads.com/sgpu-core", per_device=16, id_part="mthreads", cores=16,
            memory_resource="mthreads.com/sgpu-memory",
        ),
        memory_resource="mthreads.com/sgpu-memory", memory_unit_mib=512,
        legal_units=(2, 4, 8, 16, 32, 64, 96),
        cores_resource="mthreads.com/sgpu-core", default_cores=0,
        amounts_are_totals=True, many_are_whole=True, has_one_device_a_pod=True,
        use_ids=("mthreads.ai/use-gpuuuid",), avoid_ids=("mthreads.ai/nouse-gpuuuid",),
        extras=(
            ("mthreads.com/gpu-index", Extra.INDEXES),
            ("mthreads.com/predicate-node", Extra.NODE),
            ("mthreads.com/predicate-time", Extra.TIME_NS),
        ),
    ),
    Vendor(
        "Metax-GPU", "metax-tech.com/gpu", **_keys("metax-gpu"), lock=Lock.NONE,
        register=Register.CAPACITY, capacity=Capacity(
            "metax-tech.com/gpu", id_part="metax", shares=1, memory_mib=65536,
        ),
        is_whole=True,
    ),
    Vendor(
        "Metax-SGPU", "metax-tech.com/sgpu", **_keys("metax-sgpu"),
        register=Register.METAX, register_key="metax-tech.com/node-gpu-devices",
        memory_resource="metax-tech.com/vmemory", memory_unit_mib=1024,
        cores_resource="metax-tech.com/vcore", default_cores=100,
        use_ids=("metax-tech.com/use-gpuuuid",), avoid_ids=("metax-tech.com/nouse-gpuuuid",),
        extras=(
            ("metax-tech.com/gpu-devices-allocated", Extra.SGPU_SLOTS),
            ("metax-tech.com/predicate-time", Extra.TIME_NS),
        ),
    ),
    Vendor(
        "GCU", "enflame.com/gcu", **_keys("enflame-gcu"), lock=Lock.NONE,
        register=Register.CAPACITY, capacity=Capacity(
            "enflame.com/gcu", id_part="GCU", shares=1, memory_mib=100,
        ),
        is_whole=True,
    ),
    Vendor(
        "Enflame", "enflame.com/drs-gcu", "hami.io/enflame-vgpu-devices-allocated", lock=Lock.NONE,
        register=Register.DRS, register_key="enflame.com/gcu-drs-capacity",
        count_is_shares=True,
        use_ids=("enflame.com/use-gpuuuid",), avoid_ids=("enflame.com/nouse-gpuuuid",),
        extras=(
            ("enflame.com/gcu-assigned", Extra.FALSE),
            ("enflame.com/gcu-assigned-time", Extra.TIME_NS),
            ("enflame.com/gcu-assigned-index", Extra.INDEXES),
            ("enflame.com/gcu-assigned-minor", Extra.INDEXES),
            ("enflame.com/gcu-assigned-id", Extra.INDEXES),
            ("enflame.com/gcu-request-size", Extra.SHARES),
        ),
    ),
    Vendor(
        "AWSNeuron", "aws.amazon.com/neuron", "hami.io/aws-neuron-devices-allocated",
        lock=Lock.NONE,
        register=Register.CAPACITY, capacity=Capacity(
            "aws.amazon.com/neuron", id_part="AWSNeuron",
            cores_mask_resource="aws.amazon.com/neuroncore",
        ),
        cores_resource="aws.amazon.com/neuroncore", cores_are_bits=True,
        alignment=Alignment.RUNS,
        use_ids=("aws.amazon.com/use-neuron-uuid",),
        avoid_ids=("aws.amazon.com/nouse-neuron-uuid",),
        extras=(
            ("AWS_NEURON_IDS", Extra.INDEXES),
            ("NEURON_ALLOC_TIME", Extra.TIME_NS),
            ("NEURON_ALLOCATED", Extra.FALSE),
            ("aws.amazon.com/predicate-node", Extra.NODE),
        ),
    ),
    Vendor(
        "AMD", "amd.com/gpu", **_keys("amd"),
        register_key="hami.io/node-amd-register",
        memory_resource="amd.com/gpumem", cores_resource="amd.com/gpucores", default_cores=100,
        cores_are_percent=True,
        use_types="amd.com/use-gputype", avoid_types="amd.com/nouse-gputype",
        use_ids=("amd.com/use-gpu-uuid",), avoid_ids=("amd.com/nouse-gpu-uuid",),
        type_is_model=True,
    ),
    _counted("Vastai", "vastaitech.com", "va", "va"),
    _counted("Biren", "birentech.com", "gpu", "biren"),
)
# fmt: on

BY_WORD: Final = MappingProxyType({vendor.word: vendor for vendor in VENDORS})
MANAGED: Final = frozenset(name for vendor in VENDORS for name in vendor.managed_resources)
"""All resources that devices provide; the scheduler ignores the amounts of nodes."""
