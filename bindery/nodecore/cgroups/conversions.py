"""CPU shares, quotas and weights, and memory.high."""

import math
from typing import Final

MIN_SHARES: Final = 2
MAX_SHARES: Final = 262144
SHARES_PER_CPU: Final = 1024
QUOTA_PERIOD_US: Final = 100_000
MIN_QUOTA_US: Final = 1000
UNLIMITED_QUOTA: Final = -1
MAX_WEIGHT: Final = 10000
PAGE_SIZE: Final = 4096
THROTTLING_FACTOR: Final = 0.9

_MILLI: Final = 1000


def shares(milli: int) -> int:
    """Return the CPU shares for millicores, from 2 to 262144."""
    return min(max(milli * SHARES_PER_CPU // _MILLI, MIN_SHARES), MAX_SHARES)


def milli_of_shares(cpu_shares: int) -> int:
    """Return the millicores for CPU shares, rounded up; 0 below the least shares."""
    return 0 if cpu_shares < MIN_SHARES else -(-cpu_shares * _MILLI // SHARES_PER_CPU)


def quota_us(milli: int, period_us: int = QUOTA_PERIOD_US) -> int:
    """Return the CFS quota for millicores; 0, which means none, for 0."""
    return max(milli * period_us // _MILLI, MIN_QUOTA_US) if milli else 0


def milli_of_quota(quota: int, period_us: int) -> int:
    """Return the millicores for a CFS quota, 0 for no quota."""
    return quota * _MILLI // period_us if quota > 0 else 0


def weight(cpu_shares: int) -> int:
    """Return the cpu.weight that the kubelet writes for pods and QoS classes (linear)."""
    if cpu_shares >= MAX_SHARES:
        return MAX_WEIGHT
    return 1 + (cpu_shares - MIN_SHARES) * (MAX_WEIGHT - 1) // (MAX_SHARES - MIN_SHARES)


def shares_of_weight(cpu_weight: int) -> int:
    """Return the CPU shares for a cpu.weight, the inverse of `weight`."""
    return (cpu_weight - 1) * (MAX_SHARES - MIN_SHARES) // (MAX_WEIGHT - 1) + MIN_SHARES


def container_weight(cpu_shares: int) -> int:
    """Return the cpu.weight that the runtime writes for containers (quadratic in the logarithm).

    It maps 1024 shares to 100, the default of both. Source: opencontainers/cgroups from 0.0.6.
    """
    if cpu_shares == 0:
        return 0
    if cpu_shares <= MIN_SHARES:
        return 1
    if cpu_shares >= MAX_SHARES:
        return MAX_WEIGHT
    power = math.log2(cpu_shares)
    exponent = (power * power + 125 * power) / 612 - 7 / 34
    return math.ceil(10**exponent)


def cpu_max(quota: int, period_us: int) -> str:
    """Return the content of cpu.max."""
    return f"{'max' if quota <= 0 else quota} {period_us}"


def memory_high(
    request: int, limit: int, allocatable: int, factor: float = THROTTLING_FACTOR
) -> int | None:
    """Return memory.high of a container in bytes, None if it is not throttled.

    Without a `limit` (0), the node's memory for pods is the limit; `allocatable` is 0 if that is
    not known.
    """
    ceiling = limit or allocatable
    if request == limit or ceiling <= 0:
        return None
    high = int(math.floor(request + (ceiling - request) * factor) / PAGE_SIZE) * PAGE_SIZE
    return high if high > request else None


def swap_limit(request: int, node_memory: int, node_swap: int) -> int:
    """Return memory.swap.max of a Burstable container with LimitedSwap, in bytes.

    It is the container's part of the node's swap, as its request is a part of the node's memory.
    """
    if node_memory <= 0 or request > node_memory:
        return 0
    return int(request / node_memory * node_swap)
