"""The vendors, one row each: everything that depends on a single vendor.

Read through `VENDORS`, `BY_WORD` and `MANAGED`; some rows are in `vendorcards`. Rows describe HAMi
v2.10.0 with its default configuration (charts/hami, device-config), and use HAMi's names.
"""

from types import MappingProxyType
from typing import Final

from bindery.api.hami.names import MIG_ALLOCATIONS
from bindery.api.hami.vendor import Capacity, Extra, Lock, Register, Slice, Vendor
from bindery.api.hami.vendorcards import CARDS

_MODULES: Final = tuple((first, first + 1) for first in range(0, 16, 2))


def _iluvatar(word: str) -> Vendor:
    return Vendor(
        word=word,
        count_resource=f"iluvatar.ai/{word}-vgpu",
        to_allocate_key=f"hami.io/{word}-devices-to-allocate",
        allocated_key=f"hami.io/{word}-devices-allocated",
        register_key=f"hami.io/node-{word}-register",
        memory_resource=f"iluvatar.ai/{word}.vMem",
        memory_unit_mib=256,
        cores_resource=f"iluvatar.ai/{word}.vCore",
        default_cores=100,
        many_are_whole=True,
        use_ids=(f"hami.io/use-{word}-uuid",),
        avoid_ids=(f"hami.io/no-use-{word}-uuid",),
    )


def _ascend(word: str, *slices: Slice, modules: bool = False) -> Vendor:
    return Vendor(
        word=word,
        count_resource=f"huawei.com/{word}",
        to_allocate_key=f"hami.io/{word}-devices-to-allocate",
        allocated_key=f"hami.io/{word}-devices-allocated",
        register_key=f"hami.io/node-register-{word}",
        memory_resource=f"huawei.com/{word}-memory",
        cores_resource=f"huawei.com/{word}-core",
        slices=slices,
        many_are_whole=True,
        legal_counts=(1, *range(2, 17, 2)) if modules else (),
        module=2 if modules else 1,
        groups=MappingProxyType({2: _MODULES}) if modules else MappingProxyType({}),
        use_ids=(f"hami.io/use-{word}-uuid",),
        avoid_ids=(f"hami.io/no-use-{word}-uuid",),
        extras=((f"huawei.com/{word}", Extra.NPU_LIST), ("predicate-time", Extra.TIME_S)),
    )


def _counted(word: str, domain: str, resource: str, suffix: str) -> Vendor:
    return Vendor(
        word=word,
        count_resource=f"{domain}/{resource}",
        to_allocate_key=f"hami.io/{word}-devices-to-allocate",
        allocated_key=f"hami.io/{word}-devices-allocated",
        register_key=f"hami.io/node-{suffix}-register",
        use_ids=(f"{domain}/use-gpuuuid",),
        avoid_ids=(f"{domain}/nouse-gpuuuid",),
    )


NVIDIA: Final = Vendor(
    word="NVIDIA",
    count_resource="nvidia.com/gpu",
    to_allocate_key="hami.io/vgpu-devices-to-allocate",
    allocated_key="hami.io/vgpu-devices-allocated",
    register_key="hami.io/node-nvidia-register",
    memory_resource="nvidia.com/gpumem",
    percentage_resource="nvidia.com/gpumem-percentage",
    cores_resource="nvidia.com/gpucores",
    other_resources=("nvidia.com/priority",),
    use_types="nvidia.com/use-gputype",
    avoid_types="nvidia.com/nouse-gputype",
    use_ids=("nvidia.com/use-gpuuuid",),
    avoid_ids=("nvidia.com/nouse-gpuuuid",),
    extras=((MIG_ALLOCATIONS, Extra.MIG_INSTANCES),),
)

VENDORS: Final[tuple[Vendor, ...]] = (
    NVIDIA,
    Vendor(
        word="MLU",
        count_resource="cambricon.com/vmlu",
        to_allocate_key="hami.io/cambricon-mlu-devices-to-allocate",
        allocated_key="hami.io/cambricon-mlu-devices-allocated",
        lock=Lock.CAMBRICON,
        register=Register.CAPACITY,
        capacity=Capacity(
            resource="cambricon.com/mlu.smlu.vcore",
            per_device=100,
            id_part="cambricon-mlu",
            memory_resource="cambricon.com/mlu.smlu.vmemory",
        ),
        memory_resource="cambricon.com/mlu.smlu.vmemory",
        memory_unit_mib=256,
        cores_resource="cambricon.com/mlu.smlu.vcore",
        default_cores=100,
        use_ids=("cambricon.com/use-gpuuuid",),
        avoid_ids=("cambricon.com/nouse-gpuuuid",),
        extras=(
            ("CAMBRICON_DSMLU_PROFILE", Extra.MLU_PROFILE),
            ("CAMBRICON_DSMLU_ASSIGNED", Extra.FALSE),
        ),
    ),
    Vendor(
        word="DCU",
        count_resource="hygon.com/dcunum",
        to_allocate_key="hami.io/dcu-devices-to-allocate",
        allocated_key="hami.io/dcu-devices-allocated",
        register_key="hami.io/node-dcu-register",
        memory_resource="hygon.com/dcumem",
        cores_resource="hygon.com/dcucores",
        default_cores=100,
        use_types="hygon.com/use-dcutype",
        avoid_types="hygon.com/nouse-dcutype",
        use_ids=("hygon.com/use-gpuuuid",),
        avoid_ids=("hygon.com/nouse-gpuuuid",),
    ),
    _iluvatar("MR-V100"),
    _iluvatar("MR-V50"),
    _iluvatar("BI-V150"),
    _iluvatar("BI-V100"),
    _ascend(
        "Ascend910A",
        Slice("vir02", 2184, 2),
        Slice("vir04", 4369, 4),
        Slice("vir08", 8738, 8),
        Slice("vir16", 17476, 16),
    ),
    _ascend(
        "Ascend910B2",
        Slice("vir03_1c_8g", 8192, 3),
        Slice("vir06_1c_16g", 16384, 6),
        Slice("vir12_3c_32g", 32768, 12),
    ),
    _ascend("Ascend910B3", Slice("vir05_1c_16g", 16384, 5), Slice("vir10_3c_32g", 32768, 10)),
    _ascend("Ascend910B4", Slice("vir05_1c_8g", 8192, 5), Slice("vir10_3c_16g", 16384, 10)),
    _ascend("Ascend910B4-1", Slice("vir05_1c_16g", 16384, 5), Slice("vir10_3c_32g", 32768, 10)),
    _ascend(
        "Ascend910C",
        Slice("vir05_1c_16g", 16384, 5),
        Slice("vir10_3c_32g", 32768, 10),
        modules=True,
    ),
    _ascend(
        "Ascend310P", Slice("vir01", 3072, 1), Slice("vir02", 6144, 2), Slice("vir04", 12288, 4)
    ),
    *CARDS,
    Vendor(
        word="AMD",
        count_resource="amd.com/gpu",
        to_allocate_key="hami.io/amd-devices-to-allocate",
        allocated_key="hami.io/amd-devices-allocated",
        register_key="hami.io/node-amd-register",
        memory_resource="amd.com/gpumem",
        cores_resource="amd.com/gpucores",
        default_cores=100,
        cores_are_percent=True,
        type_is_model=True,
        use_types="amd.com/use-gputype",
        avoid_types="amd.com/nouse-gputype",
        use_ids=("amd.com/use-gpu-uuid",),
        avoid_ids=("amd.com/nouse-gpu-uuid",),
    ),
    _counted("Vastai", "vastaitech.com", "va", "va"),
    _counted("Biren", "birentech.com", "gpu", "biren"),
)

BY_WORD: Final = MappingProxyType({vendor.word: vendor for vendor in VENDORS})
MANAGED: Final = frozenset(name for vendor in VENDORS for name in vendor.managed_resources)
"""All resources that devices provide; the scheduler ignores the amounts of nodes."""
