"""The annotations in which HAMi's device plugin describes the GPUs of its node. Pure.

Written by `reporter`; read by the scheduler's plugin `hami`, and by HAMi's own scheduler.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bindery.api.hami import nodedevices
from bindery.api.hami.names import NVIDIA_PAIR_SCORES, DeviceModeWord
from bindery.api.hami.nodedevices import MigPlacement, MigProfile, NodeDevice, PairScore
from bindery.api.hami.vendortable import NVIDIA
from bindery.nodeagent.devices.inventory import Distance, GpuLink, NodeGpu

_ALL_CORES: Final = 100
_SCORES: Final = {
    Distance.SYSTEM: 10,
    Distance.NODE: 20,
    Distance.HOST_BRIDGE: 30,
    Distance.MULTIPLE: 40,
    Distance.SINGLE: 50,
    Distance.INTERNAL: 60,
}
_NVLINK_SCORE: Final = 100


@dataclass(frozen=True)
class Sharing:
    """How the GPUs of a node are shared, as in the configuration of HAMi's device plugin."""

    split_count: int = 10
    """Number of containers that may share a GPU."""
    memory_scaling: float = 1.0
    """Above 1, containers may be promised more memory than the GPU has."""

    def memory_mib(self, gpu: NodeGpu) -> int:
        """Return the memory that pods can be promised."""
        return int(gpu.memory_mib * self.memory_scaling)


def annotations(gpus: Sequence[NodeGpu], sharing: Sharing) -> dict[str, str]:
    """Return the annotations of a node with these GPUs."""
    registered = [_registered(gpu, sharing) for gpu in gpus]
    scores = [PairScore(uuid=uuid, score=score) for uuid, score in pair_scores(gpus).items()]
    return {
        NVIDIA.register_key: nodedevices.encode_json(registered),
        NVIDIA_PAIR_SCORES: nodedevices.encode_pair_scores(scores),
    }


def _registered(gpu: NodeGpu, sharing: Sharing) -> NodeDevice:
    return NodeDevice(
        id=gpu.uuid,
        index=gpu.index,
        count=sharing.split_count,
        memory_mib=sharing.memory_mib(gpu),
        cores=_ALL_CORES,
        # HAMi finds the vendor of a device by its word in the model.
        type=gpu.model if NVIDIA.word in gpu.model else f"{NVIDIA.word}-{gpu.model}",
        numa=max(0, gpu.numa_node),
        mode=str(DeviceModeWord.MIG if gpu.is_mig else DeviceModeWord.HAMI_CORE),
        mig_profiles=tuple(
            MigProfile(
                name=kind.name,
                memory_mib=kind.memory_mib,
                cores=0,
                slice_count=kind.slices,
                placements=tuple(MigPlacement(each.start, each.size) for each in kind.placements),
            )
            for kind in gpu.mig_kinds
        ),
        healthy=gpu.is_healthy,
    )


def pair_scores(gpus: Sequence[NodeGpu]) -> dict[str, dict[str, int]]:
    """Return UUID -> other UUID -> how close both are: PCI distance, and 100 for each NVLink.

    A pair whose two sides report different links has 0, as in HAMi.
    """
    links = {gpu.uuid: {link.uuid: link for link in gpu.links} for gpu in gpus}

    def score(uuid: str, other: str) -> int:
        there, back = links[uuid].get(other), links[other].get(uuid)
        if there is None or back is None:
            return 0
        return _score(there) if _score(there) == _score(back) else 0

    return {
        gpu.uuid: {other.uuid: score(gpu.uuid, other.uuid) for other in gpus if other is not gpu}
        for gpu in gpus
    }


def _score(link: GpuLink) -> int:
    return _SCORES[link.distance] + _NVLINK_SCORE * link.nvlinks
