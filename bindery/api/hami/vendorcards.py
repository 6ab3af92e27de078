"""Rows of the table for vendors with whole cards, in linked groups or in fixed slices.

Part of `vendortable`, which names the sources of the facts. Contains only rows, no rules.
"""

from types import MappingProxyType
from typing import Final

from bindery.api.hami.vendor import Alignment, Capacity, Extra, Lock, Register, Slice, Vendor

_KUNLUN_PAIRS: Final = ((0, 4), (1, 5), (2, 6), (3, 7))
_KUNLUN_WINGS: Final = ((0, 1, 2, 3), (4, 5, 6, 7))
_KUNLUN_QUADS: Final = (
    (0, 1, 4, 5),
    (2, 3, 6, 7),
    (0, 2, 4, 6),
    (1, 3, 5, 7),
    (0, 3, 4, 7),
    (1, 2, 5, 6),
)
_IN_WING: Final = tuple(
    (first, second) for wing in _KUNLUN_WINGS for first in wing for second in wing if first < second
)

CARDS: Final = (
    Vendor(
        word="kunlun",
        count_resource="kunlunxin.com/xpu",
        allocated_key="hami.io/kunlun-allocated",
        lock=Lock.NONE,
        register=Register.CAPACITY,
        capacity=Capacity(
            resource="kunlunxin.com/xpu", id_part="kunlun", memory_mib=98304, has_two_halves=True
        ),
        is_whole=True,
        legal_counts=(1, 2, 4, 8),
        groups=MappingProxyType(
            {2: (*_IN_WING, *_KUNLUN_PAIRS), 4: (*_KUNLUN_WINGS, *_KUNLUN_QUADS)}
        ),
        use_ids=("baidu.com/use-gpuuuid", "hami.io/use-xpu-uuid"),
        avoid_ids=("baidu.com/nouse-gpuuuid", "hami.io/no-use-xpu-uuid"),
        extras=(("BAIDU_COM_DEVICE_IDX", Extra.INDEXES),),
    ),
    Vendor(
        word="XPU",
        count_resource="kunlunxin.com/vxpu",
        to_allocate_key="hami.io/xpu-devices-to-allocate",
        allocated_key="hami.io/xpu-devices-allocated",
        register_key="hami.io/node-register-xpu",
        memory_resource="kunlunxin.com/vxpu-memory",
        slices=(Slice("24", 24576, 25), Slice("48", 49152, 50), Slice("96", 98304, 100)),
        has_one_size=True,
        use_ids=("baidu.com/use-gpuuuid", "hami.io/use-xpu-uuid"),
        avoid_ids=("baidu.com/nouse-gpuuuid", "hami.io/no-use-xpu-uuid"),
    ),
    Vendor(
        word="Mthreads",
        count_resource="mthreads.com/vgpu",
        allocated_key="hami.io/mthreads-vgpu-devices-allocated",
        lock=Lock.NONE,
        register=Register.CAPACITY,
        capacity=Capacity(
            resource="mthreads.com/sgpu-core",
            per_device=16,
            id_part="mthreads",
            memory_resource="mthreads.com/sgpu-memory",
            cores=16,
        ),
        memory_resource="mthreads.com/sgpu-memory",
        memory_unit_mib=512,
        cores_resource="mthreads.com/sgpu-core",
        default_cores=0,
        amounts_are_totals=True,
        many_are_whole=True,
        legal_units=(2, 4, 8, 16, 32, 64, 96),
        has_one_device_a_pod=True,
        use_ids=("mthreads.ai/use-gpuuuid",),
        avoid_ids=("mthreads.ai/nouse-gpuuuid",),
        extras=(
            ("mthreads.com/gpu-index", Extra.INDEXES),
            ("mthreads.com/predicate-node", Extra.NODE),
            ("mthreads.com/predicate-time", Extra.TIME_NS),
        ),
    ),
    Vendor(
        word="Metax-GPU",
        count_resource="metax-tech.com/gpu",
        to_allocate_key="hami.io/metax-gpu-devices-to-allocate",
        allocated_key="hami.io/metax-gpu-devices-allocated",
        lock=Lock.NONE,
        register=Register.CAPACITY,
        capacity=Capacity(
            resource="metax-tech.com/gpu", id_part="metax", shares=1, memory_mib=65536
        ),
        is_whole=True,
    ),
    Vendor(
        word="Metax-SGPU",
        count_resource="metax-tech.com/sgpu",
        to_allocate_key="hami.io/metax-sgpu-devices-to-allocate",
        allocated_key="hami.io/metax-sgpu-devices-allocated",
        register=Register.METAX,
        register_key="metax-tech.com/node-gpu-devices",
        memory_resource="metax-tech.com/vmemory",
        memory_unit_mib=1024,
        cores_resource="metax-tech.com/vcore",
        default_cores=100,
        use_ids=("metax-tech.com/use-gpuuuid",),
        avoid_ids=("metax-tech.com/nouse-gpuuuid",),
        extras=(
            ("metax-tech.com/gpu-devices-allocated", Extra.SGPU_SLOTS),
            ("metax-tech.com/predicate-time", Extra.TIME_NS),
        ),
    ),
    Vendor(
        word="GCU",
        count_resource="enflame.com/gcu",
        to_allocate_key="hami.io/enflame-gcu-devices-to-allocate",
        allocated_key="hami.io/enflame-gcu-devices-allocated",
        lock=Lock.NONE,
        register=Register.CAPACITY,
        capacity=Capacity(resource="enflame.com/gcu", id_part="GCU", shares=1, memory_mib=100),
        is_whole=True,
    ),
    Vendor(
        word="Enflame",
        count_resource="enflame.com/drs-gcu",
        allocated_key="hami.io/enflame-vgpu-devices-allocated",
        lock=Lock.NONE,
        register=Register.DRS,
        register_key="enflame.com/gcu-drs-capacity",
        count_is_shares=True,
        use_ids=("enflame.com/use-gpuuuid",),
        avoid_ids=("enflame.com/nouse-gpuuuid",),
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
        word="AWSNeuron",
        count_resource="aws.amazon.com/neuron",
        allocated_key="hami.io/aws-neuron-devices-allocated",
        lock=Lock.NONE,
        register=Register.CAPACITY,
        capacity=Capacity(
            resource="aws.amazon.com/neuron",
            id_part="AWSNeuron",
            cores_mask_resource="aws.amazon.com/neuroncore",
        ),
        cores_resource="aws.amazon.com/neuroncore",
        cores_are_bits=True,
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
)
