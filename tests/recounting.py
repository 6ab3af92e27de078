"""Recounts what pods hold, from the pods alone: nothing of the scheduler's own arithmetic is used.

`tests/e2e/chaos` counts so what a watch of a real API server shows, and `tests/histories` what the
model of one stores.
"""

from collections import Counter
from contextlib import suppress
from decimal import Decimal
from typing import Final

from bindery.api import gpushare
from bindery.api.hami import poddevices
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.poddevices import ContainerDevice
from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import GPU_RESOURCE
from bindery.api.quantity import parse
from bindery.kube.objects.watched import Pod

ENDED: Final = ("Succeeded", "Failed")


def requested(pod: Pod, resource: str) -> int:
    """Return the thousandths of a resource that the containers of `pod` request."""
    total = 0
    for container in pod.spec.containers:
        if container.resources is not None:
            limits, requests = container.resources.limits or {}, container.resources.requests or {}
            total += parse(requests.get(resource, limits.get(resource, "0")), resource)
    return total


def gpu_problems(node: str, pods: list[Pod], gpus: int) -> list[str]:
    """A GPU belongs to one pod, or to one group: its reservation and the pods that share it."""
    whole = 0
    taken: Counter[str] = Counter()
    for pod in pods:
        meta = pod.metadata
        names = gpushare.groups(meta.labels)
        if not names:
            whole += requested(pod, GPU_RESOURCE) // 1000
        for name in names:
            is_share = not gpushare.is_reservation(meta.namespace, meta.labels)
            fraction = Decimal(meta.annotations.get(gpushare.FRACTION_ANNOTATION, "0"))
            taken[name] += int(fraction * 1000) if is_share else 0
    found = [
        f"{part} thousandths of GPU {name} are taken" for name, part in taken.items() if part > 1000
    ]
    if whole + len(taken) > gpus:
        who = ", ".join(sorted(_described(pod) for pod in pods))
        found.append(f"{whole} whole and {len(taken)} shared GPUs of {gpus} are taken ({who})")
    return found


def _described(pod: Pod) -> str:
    going = " going" if pod.metadata.deletion_timestamp else ""
    groups = " ".join(gpushare.groups(pod.metadata.labels))
    return f"{pod.metadata.name} {groups or requested(pod, GPU_RESOURCE) // 1000}{going}"


def card_memory(pods: list[Pod]) -> int:
    """Return the MiB of HAMi's cards that pods hold."""
    return sum(device.memory_mib for pod in pods for device in _card_devices(pod))


def _card_devices(pod: Pod) -> list[ContainerDevice]:
    text = pod.metadata.annotations.get(NVIDIA.allocated_key, "")
    with suppress(HamiFormatError):
        return [device for slot in poddevices.decode(text) for device in slot]
    return []


def card_problems(node: str, pods: list[Pod], memory_mib: int, most: int) -> list[str]:
    """Return what is wrong with the use of a node's card, which at most `most` pods may share."""
    memory, users = card_memory(pods), sum(len(_card_devices(pod)) for pod in pods)
    found = []
    if memory > memory_mib:
        found.append(f"{memory} MiB of {memory_mib} are taken of the card of {node}")
    if users > most:
        found.append(f"{users} pods of {most} are on the card of {node}")
    return found
