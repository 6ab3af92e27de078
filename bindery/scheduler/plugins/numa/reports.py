"""Reads a NodeResourceTopology into the zones of its node.

A report that contradicts itself or its node is an error: it cannot be trusted, and the node
counts as if it had no report. Pure. Without the annotation of Bindery's node agent, a node
counts as one with the static CPU policy without options, and with the static memory policy if its
zones list memory.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from bindery.api import numadetail, podfingerprint, quantity
from bindery.api.names import NUMA_DETAIL_ANNOTATION
from bindery.api.numadetail import NumaDetail, PodZones
from bindery.api.quantity import QuantityError
from bindery.kube.objects.nodetopologies import (
    NUMA_ZONE,
    POLICY_ATTRIBUTE,
    SCOPE_ATTRIBUTE,
    ZONE_PREFIX,
    NodeResourceTopology,
    Zone,
    ZoneResource,
)
from bindery.nodecore.cpusets import parse_cpus
from bindery.nodecore.masks import mask_of
from bindery.nodecore.pods import CPU
from bindery.nodecore.prediction.arrays import MAX_ZONES, POLICIES, SCOPES
from bindery.nodecore.prediction.zones import NodeZones, is_memory
from bindery.nodecore.topology import policies
from bindery.nodecore.topology.manager import CONTAINER_SCOPE, POD_SCOPE
from bindery.nodecore.topology.options import PREFER_CLOSEST

_STATIC: Final = "static"
_FULL_CORES: Final = "full-pcpus-only"
_MOST_CPU_DIGITS: Final = 5
_LEGACY: Final = {
    "None": (policies.NONE, CONTAINER_SCOPE),
    "BestEffort": (policies.BEST_EFFORT, CONTAINER_SCOPE),
    "BestEffortContainerLevel": (policies.BEST_EFFORT, CONTAINER_SCOPE),
    "BestEffortPodLevel": (policies.BEST_EFFORT, POD_SCOPE),
    "Restricted": (policies.RESTRICTED, CONTAINER_SCOPE),
    "RestrictedContainerLevel": (policies.RESTRICTED, CONTAINER_SCOPE),
    "RestrictedPodLevel": (policies.RESTRICTED, POD_SCOPE),
    "SingleNUMANodeContainerLevel": (policies.SINGLE_NUMA_NODE, CONTAINER_SCOPE),
    "SingleNUMANodePodLevel": (policies.SINGLE_NUMA_NODE, POD_SCOPE),
}
"""The former form of policy and scope in one word (`topologyPolicies`)."""


class ReportError(Exception):
    """A report contradicts itself or its node."""


@dataclass(frozen=True)
class ReportedPart:
    """The part of the zones that one pod holds by a report."""

    amounts: tuple[Mapping[str, int], ...] = ()
    """The amounts of each zone, by resource."""
    spans: tuple[int, ...] = ()
    """Masks of zones whose memory it uses together."""


_NO_PART: Final = ReportedPart()


@dataclass(frozen=True)
class ZoneReport:
    """The contents of a NodeResourceTopology of a node with NUMA zones."""

    zones: NodeZones
    allocatable: tuple[Mapping[str, int], ...]
    """The allocatable amounts of each zone, by resource."""
    ids: tuple[int, ...]
    """The number of the NUMA node of each zone, ascending."""
    pods: frozenset[str] | None
    """UIDs of the pods that the report includes; None if it has no list."""
    fingerprint: str | None
    """The fingerprint of the pods that the report includes; None if it has none."""
    counts_exclusive: bool
    """Whether the fingerprint is only that of pods with exclusive resources."""
    held: Mapping[str, ReportedPart] | None = field(default=None)
    """UID -> part, of the pods in `pods` that hold something; None if the report has no parts."""

    def part(self, uid: str) -> ReportedPart | None:
        """Return the part of a pod; None if the report does not have it."""
        if self.held is None or self.pods is None or uid not in self.pods:
            return None
        return self.held.get(uid, _NO_PART)


@dataclass(frozen=True)
class _Amounts:
    """One resource of one zone: whole CPUs, bytes or devices."""

    capacity: int
    allocatable: int
    available: int


_Zones = Mapping[int, Mapping[str, _Amounts]]
"""Number of the NUMA node -> resource -> amounts."""


def read(report: NodeResourceTopology, capacity: Mapping[str, str]) -> ZoneReport | None:
    """Return the zones of the node of `report`; None if it has no NUMA zones.

    `capacity`: amounts of the node, by resource.

    Raises:
        ReportError: it contradicts itself or the node.
    """
    zones = {_number(zone): zone for zone in report.zones if zone.type == NUMA_ZONE}
    if not zones:
        return None
    if len(zones) > MAX_ZONES:
        raise ReportError(f"it has {len(zones)} zones; a kubelet supports {MAX_ZONES}")
    if len(zones) != sum(zone.type == NUMA_ZONE for zone in report.zones):
        raise ReportError("two zones have the same name")
    amounts = {number: _amounts(zone) for number, zone in sorted(zones.items())}
    _check_capacity(amounts, capacity)
    policy, scope = _policy_and_scope(report)
    detail = _detail(report)
    fingerprint = report.metadata.annotations.get(podfingerprint.ANNOTATION)
    fingerprint = report.attribute(podfingerprint.ATTRIBUTE) or fingerprint
    is_readable = fingerprint is not None and podfingerprint.is_readable(fingerprint)
    indexes = {zones[number].name: index for index, number in enumerate(amounts)}
    return ZoneReport(
        _node_zones(amounts, zones, policy, scope, detail),
        tuple({name: it.allocatable for name, it in one.items()} for one in amounts.values()),
        tuple(amounts),
        frozenset(detail.pods) if detail is not None else None,
        fingerprint if is_readable else None,
        report.attribute(podfingerprint.METHOD_ATTRIBUTE) == podfingerprint.METHOD_EXCLUSIVE,
        _held(detail, indexes),
    )


def _number(zone: Zone) -> int:
    number = zone.name.removeprefix(ZONE_PREFIX)
    if number == zone.name or not number.isdecimal() or len(number) > len(str(1 << 31)):
        raise ReportError(f"zone {zone.name!r} is not named like {ZONE_PREFIX}0")
    return int(number)


def _amounts(zone: Zone) -> dict[str, _Amounts]:
    found: dict[str, _Amounts] = {}
    for each in zone.resources:
        if each.name in found:
            raise ReportError(f"zone {zone.name} lists {each.name} twice")
        found[each.name] = _checked(zone, each)
    return found


def _checked(zone: Zone, resource: ZoneResource) -> _Amounts:
    place = f"zone {zone.name}, {resource.name}"
    try:
        amounts = _Amounts(
            _whole(resource.capacity, resource.name),
            _whole(resource.allocatable, resource.name),
            _whole(resource.available, resource.name),
        )
    except QuantityError as error:
        raise ReportError(f"{place}: {error}") from error
    if amounts.available < 0 or amounts.allocatable < 0 or amounts.capacity < 0:
        raise ReportError(f"{place}: an amount is negative")
    if not amounts.available <= amounts.allocatable <= amounts.capacity:
        raise ReportError(
            f"{place}: available ({resource.available}), allocatable ({resource.allocatable}) and "
            f"capacity ({resource.capacity}) must not decrease in this order"
        )
    return amounts


def _whole(text: str | int, resource: str) -> int:
    """Return a quantity in whole CPUs or devices, or in bytes, rounded down."""
    return quantity.parse(text, resource) // quantity.scale(resource)


def _check_capacity(zones: _Zones, capacity: Mapping[str, str]) -> None:
    """Check that the zones together do not have more CPUs and memory than the node.

    A device of two zones is in both, and the Node learns of devices later than their zones.
    """
    names = {name for amounts in zones.values() for name in amounts}
    fixed = {name for name in names & capacity.keys() if name == CPU or is_memory(name)}
    for name in sorted(fixed):
        total = sum(amounts[name].capacity for amounts in zones.values() if name in amounts)
        try:
            of_node = _whole(capacity[name], name)
        except QuantityError:  # the node itself is reported elsewhere
            continue
        if total > of_node:
            raise ReportError(
                f"its zones have a capacity of {total} {name}, and the node {of_node}"
            )


def _policy_and_scope(report: NodeResourceTopology) -> tuple[str, str]:
    policy, scope = policies.NONE, CONTAINER_SCOPE
    if report.topology_policies:
        word = report.topology_policies[0]
        if word not in _LEGACY:
            raise ReportError(f"unknown topology policy {word!r}")
        policy, scope = _LEGACY[word]
    policy = report.attribute(POLICY_ATTRIBUTE) or policy
    scope = report.attribute(SCOPE_ATTRIBUTE) or scope
    if policy not in POLICIES:
        raise ReportError(f"unknown topology manager policy {policy!r}")
    if scope not in SCOPES:
        raise ReportError(f"unknown topology manager scope {scope!r}")
    return policy, scope


def _detail(report: NodeResourceTopology) -> NumaDetail | None:
    text = report.metadata.annotations.get(NUMA_DETAIL_ANNOTATION)
    if text is None:
        return None
    try:
        return numadetail.decode(text)
    except msgspec.DecodeError as error:
        raise ReportError(f"annotation {NUMA_DETAIL_ANNOTATION}: {error}") from error


def _node_zones(
    amounts: _Zones,
    zones: Mapping[int, Zone],
    policy: str,
    scope: str,
    detail: NumaDetail | None,
) -> NodeZones:
    each = amounts.values()
    if detail is None:
        has_static_memory = any(is_memory(name) for one in each for name in one)
        detail = NumaDetail(cpu_manager_policy=_STATIC)
    else:
        has_static_memory = detail.memory_manager_policy.lower() == _STATIC
    has_static_cpus = detail.cpu_manager_policy == _STATIC
    is_whole = has_static_cpus and detail.cpu_manager_options.get(_FULL_CORES) == "true"
    cores = [_cpus(text) for text in detail.cores] if is_whole else []
    names = [zones[number].name for number in amounts]
    return NodeZones(
        free=tuple({name: it.available for name, it in one.items()} for one in each),
        totals=tuple({name: _total(name, it) for name, it in one.items()} for one in each),
        policy=policy,
        scope=scope,
        has_static_cpus=has_static_cpus,
        has_static_memory=has_static_memory,
        prefer_closest=detail.topology_options.get(PREFER_CLOSEST) == "true",
        threads_per_core=max((len(core) for core in cores), default=0),
        split=_split(names, detail, cores),
        groups=_groups(detail, names),
        distances=_distances(zones, tuple(amounts)),
    )


def _total(name: str, amounts: _Amounts) -> int:
    """Return what decides how few zones could ever do; see `NodeZones.totals`."""
    return amounts.allocatable if is_memory(name) else amounts.capacity


def _cpus(text: str) -> frozenset[int]:
    # A range is written out, and anybody's annotation must not fill the memory.
    if any(len(number) > _MOST_CPU_DIGITS for number in re.findall(r"\d+", text)):
        raise ReportError(f"annotation {NUMA_DETAIL_ANNOTATION}: a CPU has too large a number")
    try:
        return parse_cpus(text)
    except ValueError as error:
        raise ReportError(f"annotation {NUMA_DETAIL_ANNOTATION}: {error}") from error


def _split(
    names: Sequence[str], detail: NumaDetail, cores: Sequence[frozenset[int]]
) -> tuple[int, ...]:
    """Return the free CPUs of each zone whose core is not free as a whole."""
    if not cores:
        return ()
    free = _cpus(detail.free)
    partly = frozenset[int]().union(*(core & free for core in cores if not core <= free))
    return tuple(len(_cpus(detail.cpus.get(name, "")) & partly) for name in names)


def _groups(detail: NumaDetail, names: Sequence[str]) -> tuple[int, ...]:
    """Return which zones' memory is used together; empty if it is not reported."""
    if detail.memory_groups is None:
        return ()
    indexes = {name: index for index, name in enumerate(names)}
    return tuple(_mask(detail.memory_groups.get(name, ()), indexes) for name in names)


def _held(
    detail: NumaDetail | None, indexes: Mapping[str, int]
) -> Mapping[str, ReportedPart] | None:
    if detail is None or detail.held is None:
        return None
    return {uid: _part(each, indexes) for uid, each in detail.held.items()}


def _part(part: PodZones, indexes: Mapping[str, int]) -> ReportedPart:
    if any(amount < 0 for amounts in part.held.values() for amount in amounts.values()):
        raise ReportError(f"annotation {NUMA_DETAIL_ANNOTATION}: an amount is negative")
    _mask(part.held, indexes)
    return ReportedPart(
        tuple(part.held.get(name, {}) for name in indexes),
        tuple(sorted({_mask(group, indexes) for group in part.memory})),
    )


def _mask(names: Iterable[str], indexes: Mapping[str, int]) -> int:
    """Return the mask of the zones with these names."""
    unknown = [name for name in names if name not in indexes]
    if unknown:
        raise ReportError(f"annotation {NUMA_DETAIL_ANNOTATION}: there is no zone {unknown[0]!r}")
    return mask_of({indexes[name] for name in names})


def _distances(zones: Mapping[int, Zone], numbers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the distances between zones; empty if some are not reported."""
    known = {zone.name: number for number, zone in zones.items()}
    found: dict[tuple[int, int], int] = {}
    for number, zone in zones.items():
        for cost in zone.costs:
            if cost.name not in known:
                raise ReportError(f"zone {zone.name} has a distance to {cost.name}, not a zone")
            found[number, known[cost.name]] = cost.value
    if any((one, other) not in found for one in numbers for other in numbers):
        return ()
    return tuple(tuple(found[one, other] for other in numbers) for one in numbers)
