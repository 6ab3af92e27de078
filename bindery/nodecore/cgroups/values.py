"""The values of the cgroups of pods, QoS classes and the node, for cgroup v1 and v2."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from bindery.api import quantity
from bindery.nodecore.cgroups import conversions
from bindery.nodecore.cpusets import EMPTY, CpuSet, format_cpus
from bindery.nodecore.features import DEFAULT, Features
from bindery.nodecore.pods import (
    CPU,
    HUGE_PAGES_PREFIX,
    MEMORY,
    Pod,
    QosClass,
    Resources,
    limits_with_overhead,
    requests_with_overhead,
)

PIDS: Final = "pid"
UNLIMITED_HUGE_PAGES: Final = 1 << 62

_UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")


class MemoryReservation(StrEnum):
    """How MemoryQoS protects requested memory."""

    NONE = "None"
    TIERED = "TieredReservation"


@dataclass(frozen=True)
class CgroupValues:
    """What is set on a cgroup; None leaves a value as it is.

    Attributes:
        cpu_shares: CPU shares, also on cgroup v2, where the weight follows from them.
        cpu_quota_us: CFS quota; -1 for none.
        huge_pages: size of a page in bytes -> bytes.
        cpus: the CPUs of the cgroup, empty to leave them.
        unified: other files of cgroup v2 and their content.
    """

    memory_limit: int | None = None
    cpu_shares: int | None = None
    cpu_quota_us: int | None = None
    cpu_period_us: int | None = None
    pids_limit: int | None = None
    huge_pages: Mapping[int, int] = field(default_factory=dict)
    cpus: CpuSet = EMPTY
    unified: Mapping[str, str] = field(default_factory=dict)


def of_pod(
    pod: Pod,
    *,
    enforce_cpu_limits: bool = True,
    period_us: int = conversions.QUOTA_PERIOD_US,
    memory_reservation: MemoryReservation = MemoryReservation.NONE,
    features: Features = DEFAULT,
) -> CgroupValues:
    """Return the values of a pod's cgroup.

    `enforce_cpu_limits` is false if quotas are off or the pod has CPUs for itself.
    """
    requests, limits = requests_with_overhead(pod), limits_with_overhead(pod)
    quota = conversions.quota_us(limits.get(CPU, 0), period_us)
    quota = quota if enforce_cpu_limits else conversions.UNLIMITED_QUOTA
    values = CgroupValues(
        cpu_shares=conversions.shares(requests.get(CPU, 0)),
        huge_pages=huge_page_limits(requests),
        unified=_reserved(pod, requests, memory_reservation) if features.memory_qos else {},
    )
    if pod.qos == QosClass.BEST_EFFORT:
        return replace(values, cpu_shares=conversions.MIN_SHARES)
    if pod.qos == QosClass.GUARANTEED or _all_limited(pod, CPU):
        values = replace(values, cpu_quota_us=quota, cpu_period_us=period_us)
    if pod.qos == QosClass.GUARANTEED or _all_limited(pod, MEMORY):
        values = replace(values, memory_limit=limits.get(MEMORY, 0))
    return values


def of_qos_classes(
    pods: Iterable[Pod],
    *,
    page_sizes: Iterable[int] = (),
    allocatable_memory: int = 0,
    reserved_memory_percent: int | None = None,
    memory_reservation: MemoryReservation = MemoryReservation.NONE,
    features: Features = DEFAULT,
) -> dict[QosClass, CgroupValues]:
    """Return the values of the cgroups of the QoS classes. Guaranteed is the root of all pods.

    `allocatable_memory` is 0 if it is not known. `reserved_memory_percent`: how much of requested
    memory the lower classes cannot use (`qos-reserved`).
    """
    sums = {qos: {CPU: 0, MEMORY: 0} for qos in QosClass}
    for pod in pods:
        requests = requests_with_overhead(pod)
        for name, amount in sums[pod.qos].items():
            sums[pod.qos][name] = amount + requests.get(name, 0)
    pages = dict.fromkeys(page_sizes, UNLIMITED_HUGE_PAGES)
    values = {qos: CgroupValues(huge_pages=pages) for qos in QosClass}
    shares = {
        QosClass.BURSTABLE: conversions.shares(sums[QosClass.BURSTABLE][CPU]),
        QosClass.BEST_EFFORT: conversions.MIN_SHARES,
    }
    for qos, cpu_shares in shares.items():
        values[qos] = replace(values[qos], cpu_shares=cpu_shares)
    guaranteed, burstable = sums[QosClass.GUARANTEED][MEMORY], sums[QosClass.BURSTABLE][MEMORY]
    if features.memory_qos:
        is_tiered = memory_reservation == MemoryReservation.TIERED
        least, low = (guaranteed + burstable, burstable) if is_tiered else (0, 0)
        for qos, file, amount in (
            (QosClass.GUARANTEED, "memory.min", least),
            (QosClass.BURSTABLE, "memory.low", low),
        ):
            values[qos] = replace(values[qos], unified={file: str(amount)})
    if reserved_memory_percent is not None and allocatable_memory:
        of_burstable = allocatable_memory - guaranteed * reserved_memory_percent // 100
        of_best_effort = of_burstable - burstable * reserved_memory_percent // 100
        for qos, limit in (
            (QosClass.BURSTABLE, of_burstable),
            (QosClass.BEST_EFFORT, of_best_effort),
        ):
            values[qos] = replace(values[qos], memory_limit=limit)
    return values


def of_resources(
    amounts: Resources, *, compressible_only: bool = False, cpus: CpuSet = EMPTY
) -> CgroupValues:
    """Return the values of the cgroup of the node's pods, or of a reservation.

    `cpus`: all CPUs of the machine if no container can have CPUs for itself, else empty.
    """
    shares = conversions.shares(amounts[CPU]) if CPU in amounts else None
    if compressible_only:
        return CgroupValues(cpu_shares=shares, cpus=cpus)
    return CgroupValues(
        memory_limit=amounts.get(MEMORY),
        cpu_shares=shares,
        pids_limit=amounts.get(PIDS),
        huge_pages=huge_page_limits(amounts),
        cpus=cpus,
    )


def huge_page_limits(amounts: Resources) -> dict[int, int]:
    """Return the bytes in huge pages by the size of the pages in bytes."""
    limits: dict[int, int] = {}
    for name, amount in amounts.items():
        if name.startswith(HUGE_PAGES_PREFIX):
            size = quantity.parse(name.removeprefix(HUGE_PAGES_PREFIX), MEMORY)
            limits[size] = limits.get(size, 0) + amount
    return limits


def files_v1(values: CgroupValues, page_sizes: Iterable[int] = ()) -> dict[str, str]:
    """Return the files of cgroup v1 and their content; `page_sizes` without a limit get 0."""
    files = {
        "memory.limit_in_bytes": values.memory_limit,
        "cpu.shares": values.cpu_shares,
        "cpu.cfs_period_us": values.cpu_period_us,
        "cpu.cfs_quota_us": values.cpu_quota_us,
        "pids.max": values.pids_limit,
    }
    written = {name: str(value) for name, value in files.items() if value}
    if values.cpus:
        written["cpuset.cpus"] = format_cpus(values.cpus)
    return {**written, **_huge_page_files(values, page_sizes, "limit_in_bytes")}


def files_v2(values: CgroupValues, page_sizes: Iterable[int] = ()) -> dict[str, str]:
    """Return the files of cgroup v2 and their content; `page_sizes` without a limit get 0."""
    files: dict[str, str] = {}
    if values.memory_limit:
        files["memory.max"] = str(values.memory_limit)
    if values.cpu_shares is not None:
        files["cpu.weight"] = str(conversions.weight(values.cpu_shares))
    if values.cpu_quota_us and values.cpu_period_us:
        files["cpu.max"] = conversions.cpu_max(values.cpu_quota_us, values.cpu_period_us)
    if values.pids_limit:
        files["pids.max"] = str(values.pids_limit)
    if values.cpus:
        files["cpuset.cpus"] = format_cpus(values.cpus)
    return {**files, **_huge_page_files(values, page_sizes, "max"), **values.unified}


def page_size_name(size: int) -> str:
    """Return the size of huge pages as the kernel's file names have it, such as 2MB."""
    power = 0
    while size >= 1024 and size % 1024 == 0 and power + 1 < len(_UNITS):
        size //= 1024
        power += 1
    return f"{size}{_UNITS[power]}"


def _huge_page_files(
    values: CgroupValues, page_sizes: Iterable[int], suffix: str
) -> dict[str, str]:
    limits = {**dict.fromkeys(page_sizes, 0), **values.huge_pages}
    return {
        f"hugetlb.{page_size_name(size)}.{suffix}": str(limit) for size, limit in limits.items()
    }


def _all_limited(pod: Pod, resource: str) -> bool:
    """Return whether the pod, or each of its containers, has a limit of the resource."""
    if pod.has_pod_level_resources and (pod.limits or {}).get(resource):
        return True
    return all(one.limits.get(resource) for one in pod.all_containers)


def _reserved(pod: Pod, requests: Resources, reservation: MemoryReservation) -> dict[str, str]:
    memory = requests.get(MEMORY, 0)
    if reservation != MemoryReservation.TIERED or memory <= 0:
        return {}
    file = "memory.min" if pod.qos == QosClass.GUARANTEED else "memory.low"
    return {file: str(memory)}
