"""Refuses shares that the devices of this node do not have. Pure.

The scheduler has planned them already. This is the last check before a container gets them: two
schedulers may have planned the same room, and an annotation may be forged.
"""

from collections.abc import Iterable, Sequence

from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.poddevices import NOTHING, Holding, collapse
from bindery.nodeagent.devices.hamiregister import Sharing
from bindery.nodeagent.devices.inventory import NodeGpu
from bindery.nodeagent.shares.pods import ContainerTurn, SharingPod, slots_of

_ALL_CORES = 100


def problem(
    turn: ContainerTurn,
    node: str,
    pods: Iterable[SharingPod],
    gpus: Sequence[NodeGpu],
    sharing: Sharing,
) -> str:
    """Return why `turn` cannot get its devices; "" if it can.

    `pods`: of this node. A pod that has ended holds nothing, nor does one whose annotations are
    unreadable, because it gets nothing.
    """
    known = {gpu.uuid: gpu for gpu in gpus}
    for device in turn.devices:
        gpu = known.get(device.device)
        if gpu is None:
            return f"the node has no GPU {device.device}"
        if not gpu.is_healthy:
            return f"GPU {gpu.uuid} is unhealthy: {gpu.problem}"
    others = (pod for pod in pods if pod.metadata.uid != turn.pod.metadata.uid)
    held = [_holdings(pod, node) for pod in (turn.pod, *others) if not pod.has_ended]
    for uuid in {device.device for device in turn.devices}:
        total = sum((each.get(uuid, NOTHING) for each in held), start=NOTHING)
        found = _excess(total, known[uuid], sharing)
        if found:
            return f"GPU {uuid} {found}"
    return ""


def _holdings(pod: SharingPod, node: str) -> dict[str, Holding]:
    try:
        return collapse(slots_of(pod, node), pod.passing)
    except HamiFormatError:
        return {}


def _excess(total: Holding, gpu: NodeGpu, sharing: Sharing) -> str:
    memory_mib = sharing.memory_mib(gpu)
    if total.memory_mib > memory_mib:
        return f"has {memory_mib} MiB, and pods would hold {total.memory_mib}"
    if total.cores > _ALL_CORES:
        return f"has {_ALL_CORES} % of cores, and pods would hold {total.cores}"
    if total.shares > sharing.split_count:
        return f"is shared by at most {sharing.split_count} containers, not {total.shares}"
    return ""
