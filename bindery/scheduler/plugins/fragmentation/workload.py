"""The typical workload: which kinds of pods occur, and how often.

It is a function of the existing pods, without memory, so a new leader computes the same. Pods that
were created later count more. Counts are rounded to steps of about 19 %, so that a few further pods
seldom change the workload, and what is derived from it stays valid.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import accumulate
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from bindery.api import quantity
from bindery.api.gpushare import WHOLE
from bindery.api.names import GPU_RESOURCE
from bindery.kube.objects.podspec import NodeAffinity, NodeSelector, Toleration
from bindery.scheduler.model.content_key import content_key
from bindery.scheduler.model.resources import Request, ResourceAxis
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.plugins.fragmentation.gradient import MOST_WEIGHT, TypicalWorkload

COVERED: Final = 0.95
"""The part of all pods that the typical workload covers, the most frequent kinds first."""
MOST_KINDS: Final = 100
MINIMUM_PODS: Final = 50
"""The default number of pods with GPUs from which on their workload counts as typical."""
HALF_LIFE_DAYS: Final = 7
_STEPS: Final = 4
"""Steps of weights between a number and its double."""
_HALVINGS: Final = 16
"""A pod that is older than so many half-lives does not count."""
_UNKNOWN_DAY: Final = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, order=True)
class PodKind:
    """Pods that are equal for the measure of fragmentation."""

    cpu: int
    """Milli cores; 0 for pods without GPUs, which are all one kind."""
    portion: int
    """Of each device, in units of which `WHOLE` make one; 0 for pods without GPUs."""
    devices: int
    constraint: bytes = b""
    """The key of its constraint; the same content has the same key."""
    nodes: Shape | None = field(default=None, compare=False, repr=False)
    """Its constraint, as a shape without requests; `Kinds` keeps it as long as the kind."""


NO_GPU: Final = PodKind(0, 0, 0)


class Kinds:
    """The kind of each shape, and the constraints of kinds on nodes apart from room."""

    def __init__(self) -> None:
        # Weak: shapes go with their pods.
        self._kinds: WeakKeyDictionary[Shape, PodKind | None] = WeakKeyDictionary()
        self._constraints: WeakValueDictionary[bytes, Shape] = WeakValueDictionary()
        """Weak: selectors of users go with the last kind that has them."""
        _, self._none = self.put({}, None, ())

    def of(self, axis: ResourceAxis, shape: Shape) -> PodKind | None:
        """Return the kind of pods of `shape`; None if fragmentation does not concern them.

        These are pods that cannot be placed, and pods whose devices are in other ledgers.
        """
        if shape not in self._kinds:
            self._kinds[shape] = self._read(axis, shape)
        return self._kinds[shape]

    def put(
        self,
        node_selector: dict[str, str],
        required: NodeSelector | None,
        tolerations: Iterable[Toleration],
    ) -> tuple[bytes, Shape]:
        """Return the constraint of these fields: its key, and a shape without requests."""
        content = sorted(node_selector.items()), required, sorted(tolerations, key=content_key)
        key = b"" if content == ([], None, []) else content_key(content)
        known = self._constraints.get(key)
        if known is None:
            affinity = NodeAffinity(required=required) if required is not None else None
            known = self._constraints[key] = Shape(
                Request((), ()), False, node_selector, affinity, tuple(content[2]), None
            )
        return key, known

    def constraint(self, key: bytes) -> Shape:
        """Return the constraint with the key of a kind, as a shape without requests."""
        return self._constraints[key]

    def _read(self, axis: ResourceAxis, shape: Shape) -> PodKind | None:
        request, share = shape.request, shape.request.share
        if shape.refusal is not None or shape.share_problems or request.part is not None:
            return None
        amounts = dict(zip(request.indices, request.amounts, strict=True))
        if share is None:
            return NO_GPU if not shape.wants_gpu else None
        # For a share by memory, the amounts are those on the smallest devices.
        gpus = amounts.get(axis.index(GPU_RESOURCE), 0)
        portion = share.portion or gpus * WHOLE // quantity.scale(GPU_RESOURCE) // share.devices
        required = shape.node_affinity.required if shape.node_affinity is not None else None
        key, nodes = self.put(shape.node_selector, required, shape.tolerations)
        cpu = amounts.get(axis.index("cpu"), 0)
        return PodKind(cpu, max(1, min(portion, WHOLE)), share.devices, key, nodes)


@dataclass(frozen=True)
class TypicalPods:
    """The kinds of the typical workload with their weights, the most frequent first."""

    weights: tuple[tuple[PodKind, int], ...]

    def workload(self) -> TypicalWorkload:
        """Return the kinds as columns."""
        rows = [(weight, k.cpu, k.portion, k.devices) for k, weight in self.weights]
        return TypicalWorkload(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)

    @property
    def constraints(self) -> Sequence[bytes]:
        """The key of the constraint of each kind."""
        return [kind.constraint for kind, _ in self.weights]


Counts = Mapping[str, Mapping[Shape, int]]
"""Day of creation (`2026-01-31`) -> shape -> number of pods."""


def learn(
    counts: Counts,
    axis: ResourceAxis,
    kinds: Kinds,
    half_life_days: int = HALF_LIFE_DAYS,
    minimum_pods: int = MINIMUM_PODS,
) -> TypicalPods:
    """Return the typical pods of `counts`; none if fewer than `minimum_pods` request GPUs.

    A pod that was created `half_life_days` earlier counts half. The newest day is the reference,
    not the clock, so a pause changes nothing.
    """
    days = {day: _ordinal(day) for day in counts}
    newest = max(days.values(), default=0)
    sums: defaultdict[PodKind, int] = defaultdict(int)
    with_gpus = 0
    for day, by_shape in counts.items():
        halvings = (newest - days[day]) // half_life_days
        for shape, count in by_shape.items():
            kind = kinds.of(axis, shape)
            if kind is not None:
                with_gpus += count if kind.devices else 0
                sums[kind] += (count << _HALVINGS) >> halvings
    return typical(sums) if with_gpus >= max(1, minimum_pods) else TypicalPods(())


def typical(sums: Mapping[PodKind, int]) -> TypicalPods:
    """Return the most frequent kinds of `sums` (kind -> how often), with rounded weights."""
    rounded = {kind: _rounded(amount) for kind, amount in sums.items() if amount > 0}
    ordered = sorted(rounded, key=lambda kind: (-rounded[kind], kind))[:MOST_KINDS]
    total = sum(rounded.values())
    before = accumulate((rounded[kind] for kind in ordered), initial=0)
    kept = [kind for kind, sum_ in zip(ordered, before, strict=False) if sum_ < COVERED * total]
    # The largest weight gets 12 bits: with `MOST_KINDS` kinds, the sum is below MOST_WEIGHT.
    shift = max(0, max((rounded[kind] for kind in kept), default=0).bit_length() - 12)
    weights = [(kind, max(1, rounded[kind] >> shift)) for kind in kept]
    assert sum(weight for _, weight in weights) <= MOST_WEIGHT, "the weights of a workload"
    return TypicalPods(tuple(weights))


def given(weights: Iterable[tuple[PodKind, int]]) -> TypicalPods:
    """Return the kinds of `weights`, each with the sum of its weights, without any rounding.

    Only weights whose sum is too large for `TypicalWorkload` are scaled down.
    """
    sums: defaultdict[PodKind, int] = defaultdict(int)
    for kind, weight in weights:
        sums[kind] += weight
    factor = -(-sum(sums.values()) // (MOST_WEIGHT - len(sums)))
    scaled = {kind: max(1, weight // max(factor, 1)) for kind, weight in sums.items()}
    return TypicalPods(tuple(sorted(scaled.items(), key=lambda item: (-item[1], item[0]))))


def _rounded(amount: int) -> int:
    """Return the nearest power of 2**(1/4), as an integer."""
    return round(2 ** (round(_STEPS * math.log2(amount)) / _STEPS))


def _ordinal(day: str) -> int:
    try:
        return date.fromisoformat(day).toordinal()
    except ValueError:  # the API server writes the creation time; a file may have none
        return _UNKNOWN_DAY
