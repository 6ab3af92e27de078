"""The order of devices and the usage score of nodes, as in HAMi (v2.10.0, pkg/scheduler).

    device: 10 * (ws * (used + 1) / count + wc * (cores + c) / total + wm * (memory + m) / total)
    node:   10 * (used / count + cores / total + memory / total), sums over all its devices

Used by `fit` and by the plugin's node score. Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Final

from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.poddevices import Holding
from bindery.api.hami.wishes import DevicePolicy, Weights

_SCALE: Final = 10.0
_MOST_SUBSETS: Final = 20_000
"""Maximum number of compared subsets; 16 cards have 12,870 subsets of 8."""


def ratio(part: int, whole: int) -> float:
    """Return part / whole; 0 if `whole` is 0."""
    return part / whole if whole else 0.0


def device_score(device: NodeDevice, used: Holding, demand: Holding, weights: Weights) -> float:
    """Return the usage score of `device` with `demand` added."""
    with_it = used + demand
    return _SCALE * (
        weights.slot * ratio(with_it.shares, device.count)
        + weights.core * ratio(with_it.cores, device.cores)
        + weights.memory * ratio(with_it.memory_mib, device.memory_mib)
    )


def node_score(devices: Iterable[NodeDevice], used: Mapping[str, Holding]) -> float:
    """Return the usage score of a node with `devices`, from 0 to 30."""
    all_devices = list(devices)
    held = [used[device.id] for device in all_devices if device.id in used]
    return _SCALE * (
        ratio(sum(each.shares for each in held), sum(d.count for d in all_devices))
        + ratio(sum(each.cores for each in held), sum(d.cores for d in all_devices))
        + ratio(sum(each.memory_mib for each in held), sum(d.memory_mib for d in all_devices))
    )


def in_order(
    devices: Sequence[NodeDevice],
    scores: Mapping[str, float],
    policies: Sequence[DevicePolicy],
    *,
    by_numa: bool,
) -> list[NodeDevice]:
    """Return `devices`, the first choice first.

    HAMi sorts its list by the policy and scans it from the end. With `by_numa`, the devices of each
    NUMA node are together. Equal devices are sorted by index, the highest first. HAMi does this for
    lists of policies; otherwise it keeps the order of registration, which is random on most nodes.
    """
    keys = _keys(policies, by_numa=by_numa)

    def key(device: NodeDevice) -> tuple[float, ...]:
        return (*(each(device, scores[device.id]) for each in keys), -device.index)

    return sorted(devices, key=key)


_Key = Callable[[NodeDevice, float], float]
"""Sort key from a device and its score; the smallest value comes first."""


def _emptiest(_device: NodeDevice, score: float) -> float:
    return score


def _fullest(_device: NodeDevice, score: float) -> float:
    return -score


def _high_numa(device: NodeDevice, _score: float) -> float:
    return -device.numa


def _low_numa(device: NodeDevice, _score: float) -> float:
    return device.numa


_KEYS: Final[Mapping[DevicePolicy, _Key]] = {
    DevicePolicy.BINPACK: _fullest,
    DevicePolicy.SPREAD: _emptiest,
    DevicePolicy.NUMA: _high_numa,
}
"""The policies that sort. The others only filter; their order is that of spread."""


def _keys(policies: Sequence[DevicePolicy], *, by_numa: bool) -> list[_Key]:
    # HAMi sorts by one policy and by a list of policies in different ways.
    if len(policies) == 1 and policies[0] is not DevicePolicy.NUMA:
        return _keys_of_one(policies[0], by_numa=by_numa)
    named = [policy for policy in dict.fromkeys(policies) if policy in _KEYS]
    chain = named or [DevicePolicy.SPREAD]
    if by_numa and chain[0] is not DevicePolicy.NUMA:
        chain = [DevicePolicy.NUMA, *(each for each in chain if each is not DevicePolicy.NUMA)]
    return [_KEYS[policy] for policy in chain]


def _keys_of_one(policy: DevicePolicy, *, by_numa: bool) -> list[_Key]:
    if policy is DevicePolicy.MUTEX:
        return [_high_numa]  # `fit` refuses devices in use, and idle ones have equal scores
    if by_numa:
        is_packed = policy is DevicePolicy.BINPACK
        return [_low_numa, _fullest] if is_packed else [_high_numa, _emptiest]
    return [_KEYS.get(policy, _emptiest), _high_numa]


def best_linked(
    devices: Sequence[NodeDevice], count: int, scores: Mapping[str, Mapping[str, int]]
) -> list[NodeDevice]:
    """Return the `count` devices with the best links; the first of equal groups.

    For one device, return the device with the weakest links, so that good links stay together.
    """

    def link(one: NodeDevice, other: NodeDevice) -> int:
        return scores.get(one.id, {}).get(other.id, 0)

    if count == 1:
        return [min(devices, key=lambda one: sum(link(one, d) for d in devices if d is not one))]
    if comb(len(devices), count) > _MOST_SUBSETS:
        return _grown(devices, count, link_of=link)
    return list(
        max(
            combinations(devices, count),
            key=lambda group: sum(link(one, other) for one, other in combinations(group, 2)),
        )
    )


def _grown(
    devices: Sequence[NodeDevice], count: int, link_of: Callable[[NodeDevice, NodeDevice], int]
) -> list[NodeDevice]:
    """Return a group: the first device, then the best linked device each time."""
    group = [devices[0]]
    while len(group) < count:
        rest = [device for device in devices if device not in group]
        group.append(max(rest, key=lambda each: sum(link_of(each, one) for one in group)))
    return group
