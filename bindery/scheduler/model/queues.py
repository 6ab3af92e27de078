"""The queues as columns of allocated amounts and limits, and the tree of queues.

Written by the cluster cache and by the queue ledger. A queue that only a job names also has a row,
so that the pods are counted before the Queue object exists.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bindery.api import quantity
from bindery.api.gpus import MODEL_PREFIX
from bindery.api.names import DEFAULT_QUEUE, GPU_RESOURCE
from bindery.api.quantity import QuantityError
from bindery.api.states import MOST_QUEUE_LEVELS, UNLIMITED
from bindery.kube.objects.queueaccess import has_rules
from bindery.kube.objects.queues import Queue, QueueResource, QueueSpec
from bindery.scheduler.model.columns import IntColumns, grown
from bindery.scheduler.model.jobs import NO_ROW
from bindery.scheduler.model.queuechains import ChainFlaw, QueueChains, trace
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import Request, ResourceAxis

NO_LIMIT = np.inf
"""The value of a quota or limit that is unlimited."""

Amounts = NDArray[np.float64]
"""[resource, queue], in ledger units; exact for whole numbers up to 2**53."""


@dataclass(frozen=True, slots=True)
class QueueRule:
    """Quota, over-quota weight and limit of a queue for one resource, in ledger units."""

    quota: float
    weight: float
    limit: float
    has_own_quota: bool = False
    """Whether the Queue object has this quota; otherwise it is the default."""


GRANTED = QueueRule(quota=0.0, weight=0.0, limit=NO_LIMIT)
"""The default rule for GPUs: a queue gets GPUs only if it has a quota or weight for them."""
SHARED = QueueRule(quota=NO_LIMIT, weight=1.0, limit=NO_LIMIT)
"""The default rule for all other resources."""


@dataclass(slots=True, eq=False)
class QueueEntry:
    """The fields of a queue that are not columns."""

    name: str
    priority: int = 100
    parent: str | None = None
    is_open: bool = True
    created: str = ""
    exists: bool = False
    """Whether its object has been seen; always true for the default queue."""
    invalid: str | None = None
    """Why its spec cannot be used; its gangs wait. None if it can."""
    reclaimable: bool = True
    preempt_min_runtime_s: float | None = None
    reclaim_min_runtime_s: float | None = None
    max_run_time_s: float = math.inf
    idle_after_s: float = math.inf
    idle_timeout_s: float = math.inf
    forbids_exclusive: bool = False
    """Whether its gangs, and those of queues below, may have no exclusive domains."""
    access: QueueSpec | None = None
    """The spec, if it has rules about who may use the queue."""
    user_label: str = ""
    """The label with the user of a job, if the users of the queue take turns; else empty."""


class IdleRule(NamedTuple):
    """How long all GPUs of a gang may be unused, in seconds; infinite without limit."""

    after_s: float
    """Until the gang counts as idle."""
    timeout_s: float
    """Until the gang is evicted."""


class QueueTable:
    """Columns over queues. Axis 0: resource; axis 1: queue row. int64."""

    def __init__(self, axis: ResourceAxis) -> None:
        self.axis = axis
        self.rows: dict[str, int] = {}
        self.entries: list[QueueEntry] = []
        self._allocated: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._non_preemptible: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._pending: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._releasing: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._rules: dict[int, dict[int, QueueRule]] = {}
        """Queue row -> position on the resource axis -> rule; without default rules."""
        self.version = 0
        """Grows with each change other than of the columns."""
        self._chains = QueueChains((), {})
        self._chains_version = -1

    @property
    def allocated(self) -> IntColumns:
        """Amounts held by active pods of the queue itself, without the queues below it."""
        self._make_room()
        return self._allocated[: len(self.axis), : len(self.entries)]

    @property
    def non_preemptible(self) -> IntColumns:
        """The part of `allocated` held by pods that may not be evicted for others."""
        self._make_room()
        return self._non_preemptible[: len(self.axis), : len(self.entries)]

    @property
    def pending(self) -> IntColumns:
        """Amounts requested by pending pods of the queue itself."""
        self._make_room()
        return self._pending[: len(self.axis), : len(self.entries)]

    @property
    def releasing(self) -> IntColumns:
        """Amounts still held by evicted and deleted pods of the queue itself."""
        self._make_room()
        return self._releasing[: len(self.axis), : len(self.entries)]

    def rules(self) -> tuple[Amounts, Amounts, Amounts]:
        """Return quota, over-quota weight and limit of each queue: [resource, queue]."""
        defaults = [_default(name) for name in self.axis.names]
        shape = (len(self.axis), len(self.entries))
        quota, weight, limit = (
            np.repeat(np.array([getattr(rule, part) for rule in defaults])[:, None], shape[1], 1)
            for part in ("quota", "weight", "limit")
        )
        unruled = self.rows.get(DEFAULT_QUEUE, NO_ROW)
        # Without a Queue object, an administrator could not give the default queue any GPUs.
        if unruled != NO_ROW and unruled not in self._rules:
            quota[:, unruled], weight[:, unruled] = SHARED.quota, SHARED.weight
        for row, rules in self._rules.items():
            for index, rule in rules.items():
                quota[index, row], weight[index, row] = rule.quota, rule.weight
                limit[index, row] = rule.limit
            implied = self._implied_gpus(rules)
            if implied is not None:
                gpu = self.axis.index(GPU_RESOURCE)
                quota[gpu, row], weight[gpu, row] = implied
        return quota, weight, limit

    def _implied_gpus(self, rules: Mapping[int, QueueRule]) -> tuple[float, float] | None:
        """Return the quota and weight of GPUs that quotas for MIG instances and the like imply.

        Without them, such a quota would be useless: its instances also count as GPUs. None if no
        such quota exists, or if the queue has a quota or weight for GPUs.
        """
        gpus = rules.get(self.axis.index(GPU_RESOURCE), GRANTED)
        if gpus.quota or gpus.weight:
            return None
        counted = [(rules[at], each) for at, each in self.axis.counted_as_gpus() if at in rules]
        granted = [(r, each) for r, each in counted if r.has_own_quota and r.quota != NO_LIMIT]
        if not granted:
            return None
        return sum(r.quota * each for r, each in granted), max(r.weight for r, _ in granted)

    def row(self, name: str) -> int:
        """Return the row of the queue `name`; a new queue gets one."""
        row = self.rows.get(name, NO_ROW)
        if row == NO_ROW:
            row = self.rows[name] = len(self.entries)
            self.entries.append(QueueEntry(name, exists=name == DEFAULT_QUEUE))
            self.version += 1
        return row

    def put(self, queue: Queue) -> None:
        """Add or update a queue. A spec with mistakes makes the queue invalid."""
        row = self.row(queue.metadata.name)
        entry = self.entries[row]
        entry.exists, entry.created = True, queue.metadata.creation_timestamp or ""
        entry.priority, entry.parent = queue.spec.priority, queue.spec.parent or None
        entry.is_open = queue.spec.state != "Closed"
        entry.reclaimable = queue.spec.reclaimable
        entry.preempt_min_runtime_s = queue.spec.preempt_min_runtime_seconds
        entry.reclaim_min_runtime_s = queue.spec.reclaim_min_runtime_seconds
        entry.max_run_time_s = _or_infinite(queue.spec.max_run_time_seconds)
        entry.idle_after_s = _or_infinite(queue.spec.idle_after_seconds)
        entry.idle_timeout_s = _or_infinite(queue.spec.idle_timeout_seconds)
        entry.forbids_exclusive = queue.spec.exclusive_domains == "Forbid"
        entry.access = queue.spec if has_rules(queue.spec) else None
        users = queue.spec.fair_users
        entry.user_label = users.label if users is not None else ""
        self._rules[row], problems = _rules(queue.spec, self.axis)
        problems += [queue.unreadable] if queue.unreadable else _other_problems(queue.spec)
        entry.invalid = "; ".join(problems) or None
        if entry.parent is not None:  # the object of the parent may come later
            self.row(entry.parent)
        self.version += 1

    def remove(self, name: str) -> None:
        """Remove the object of the queue `name`; its pods stay counted."""
        row = self.rows[name]
        self.entries[row] = QueueEntry(name, exists=name == DEFAULT_QUEUE)
        self._rules.pop(row, None)
        self.version += 1

    def compact(self, named: AbstractSet[str]) -> None:
        """Drop the queues that have no object and are neither in `named` nor a parent.

        `named` has the queues that pods or jobs name. Rows change and all columns are 0 afterwards;
        the caller enters the pods again.
        """
        parents = {entry.parent for entry in self.entries}
        kept = [
            (entry, self._rules.get(row))
            for row, entry in enumerate(self.entries)
            if entry.exists or entry.name in named or entry.name in parents
        ]
        self.entries = [entry for entry, _ in kept]
        self.rows = {entry.name: row for row, entry in enumerate(self.entries)}
        self._rules = {row: rules for row, (_, rules) in enumerate(kept) if rules is not None}
        self.version += 1
        self.empty()

    def ruled(self, row: int) -> Mapping[int, QueueRule]:
        """Return the rules of the queue itself: position on the resource axis -> rule."""
        return self._rules.get(row, {})

    def empty(self) -> None:
        """Set all columns to 0."""
        for columns in (self._allocated, self._non_preemptible, self._pending, self._releasing):
            columns[:] = 0

    def hold(self, row: int, request: Request, *, preemptible: bool, sign: int) -> None:
        """Add (`sign` 1) or remove (-1) an active pod of the queue."""
        columns = [self.allocated] if preemptible else [self.allocated, self.non_preemptible]
        request = request.in_queues
        for index, amount in zip(request.indices, request.amounts, strict=True):
            for column in columns:
                column[index, row] += sign * amount

    def ask(self, row: int, request: Request, sign: int) -> None:
        """Add or remove a pending pod of the queue."""
        pending = self.pending
        request = request.in_queues
        for index, amount in zip(request.indices, request.amounts, strict=True):
            pending[index, row] += sign * amount

    def leave(self, row: int, request: Request, sign: int) -> None:
        """Add or remove a pod of the queue that is releasing its room."""
        releasing = self.releasing
        request = request.in_queues
        for index, amount in zip(request.indices, request.amounts, strict=True):
            releasing[index, row] += sign * amount

    def chains(self) -> tuple[tuple[int, ...], ...]:
        """Return the chain of each queue, by row: its row and those of its ancestors, bottom up.

        See `QueueChains` for cycles and queues that are too deep.
        """
        return self._traced().rows

    def chain(self, row: int) -> tuple[int, ...]:
        """Return the rows of a queue and of its ancestors, bottom up."""
        return self._traced().rows[row]

    def flaw(self, row: int) -> ChainFlaw | None:
        """Return why the queue's position in the tree is not valid; None if it is."""
        return self._traced().flaws.get(row)

    def problem(self, row: int) -> tuple[str, str] | None:
        """Return why no job of the queue at `row` can be planned: (reason, text), or None."""
        for at in self.chain(row):
            entry = self.entries[at]
            if not entry.exists:
                return missing_queue(entry.name)
            if entry.invalid is not None:
                return JobReason.QUEUE_INVALID, f"queue {entry.name} is not valid: {entry.invalid}"
            if not entry.is_open:
                return JobReason.QUEUE_CLOSED, f"queue {entry.name} is closed"
        flaw = self.flaw(row)
        if flaw is ChainFlaw.TOO_DEEP:
            name = self.entries[row].name
            return (
                JobReason.QUEUE_INVALID,
                f"queue {name} is more than {MOST_QUEUE_LEVELS} levels deep",
            )
        if flaw is not None:
            # Chains end within the cycle: the last queue is on it, even if this queue is not.
            top = self.entries[self.chain(row)[-1]]
            return JobReason.QUEUE_INVALID, f"queue {top.name} is its own ancestor"
        return None

    def run_time_limit(self, row: int) -> tuple[float, str]:
        """Return the shortest run time limit of a queue and its ancestors, and its queue."""
        entries = [self.entries[at] for at in self.chain(row)]
        return min(
            ((entry.max_run_time_s, entry.name) for entry in entries), default=(math.inf, "")
        )

    def idle_rule(self, row: int) -> IdleRule:
        """Return the shortest times of a queue and its ancestors."""
        entries = [self.entries[at] for at in self.chain(row)]
        timeout_s = min((entry.idle_timeout_s for entry in entries), default=math.inf)
        after_s = min((entry.idle_after_s for entry in entries), default=math.inf)
        return IdleRule(min(after_s, timeout_s), timeout_s)

    def is_sound(self, row: int) -> bool:
        """Return whether the queue and all its ancestors exist and are valid, open or closed.

        The fair share of another queue is not known, so nothing is reclaimed from it.
        """
        entries = [self.entries[at] for at in self.chain(row)]
        return self.flaw(row) is None and all(e.exists and e.invalid is None for e in entries)

    def _traced(self) -> QueueChains:
        if self._chains_version != self.version:
            above = (entry.parent for entry in self.entries)
            self._chains = trace([NO_ROW if name is None else self.rows[name] for name in above])
            self._chains_version = self.version
        return self._chains

    def _make_room(self) -> None:
        resources, items = len(self.axis), len(self.entries)
        if self._allocated.shape[0] < resources or self._allocated.shape[1] < items:
            self._allocated = grown(self._allocated, resources, items)
            self._non_preemptible = grown(self._non_preemptible, resources, items)
            self._pending = grown(self._pending, resources, items)
            self._releasing = grown(self._releasing, resources, items)


def rolled_up(own: IntColumns, chains: Sequence[Sequence[int]]) -> IntColumns:
    """Return the sums of each queue and all queues below it; `own` [any, queue] has their own.

    `chains`: queue row -> rows of itself and its ancestors, as from `QueueTable.chains`.
    """
    sums = np.zeros_like(own)
    ancestors = np.array([at for chain in chains for at in chain], dtype=np.intp)
    rows = np.repeat(np.arange(len(chains)), [len(chain) for chain in chains])
    for column, total in zip(own, sums, strict=True):
        # add.at, as `+=` would count an ancestor once however many queues are below it.
        np.add.at(total, ancestors, column[rows])
    return sums


def _default(resource: str) -> QueueRule:
    if resource == GPU_RESOURCE:
        return GRANTED
    if resource.startswith(MODEL_PREFIX):
        # Without a rule for the model, only the rule for GPUs of all models applies.
        return QueueRule(quota=NO_LIMIT, weight=0.0, limit=NO_LIMIT)
    return SHARED


def _rules(spec: QueueSpec, axis: ResourceAxis) -> tuple[dict[int, QueueRule], list[str]]:
    """Return the valid rules of `spec`, by position on the axis, and the problems of the others."""
    rules: dict[int, QueueRule] = {}
    problems: list[str] = []
    named = [(f"spec.resources.{name}", name, rule) for name, rule in spec.resources.items()]
    named += [(f"spec.models.{n}", MODEL_PREFIX + n, rule) for n, rule in spec.models.items()]
    for place, name, resource in named:
        index = axis.index(name)
        if index in rules:  # `gpu` and `nvidia.com/gpu` are the same resource
            problems.append(f"{place}: there are rules for {axis.names[index]} already")
        try:
            rules[index] = _rule(resource, axis.names[index])
        except QuantityError as error:
            problems.append(f"{place}.{error}")
    return rules, problems


def missing_queue(name: str) -> tuple[str, str]:
    """Return the problem of a queue that does not exist: reason and text."""
    return JobReason.QUEUE_DOES_NOT_EXIST, f"queue {name} does not exist"


def _other_problems(spec: QueueSpec) -> list[str]:
    problems = []
    if spec.state not in ("Open", "Closed"):
        problems.append(f"spec.state: {spec.state!r} is neither Open nor Closed")
    if spec.exclusive_domains not in ("Allow", "Forbid"):
        problems.append(
            f"spec.exclusiveDomains: {spec.exclusive_domains!r} is neither Allow nor Forbid"
        )
    for name, runtime_s in (
        ("preemptMinRuntimeSeconds", spec.preempt_min_runtime_seconds),
        ("reclaimMinRuntimeSeconds", spec.reclaim_min_runtime_seconds),
        ("maxRunTimeSeconds", spec.max_run_time_seconds),
        ("idleAfterSeconds", spec.idle_after_seconds),
        ("idleTimeoutSeconds", spec.idle_timeout_seconds),
    ):
        if runtime_s is not None and runtime_s < 0:
            problems.append(f"spec.{name}: {runtime_s:g} is negative")
    if spec.fair_users is not None and not spec.fair_users.label:
        problems.append("spec.fairUsers.label: it is empty")
    return problems


def _or_infinite(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _rule(resource: QueueResource, name: str) -> QueueRule:
    """Return the rule of `resource`, with defaults for missing parts.

    Raises:
        QuantityError: a part is not valid; the message begins with the name of the part.
    """
    default = _default(name)
    weight = default.weight if resource.over_quota_weight is None else resource.over_quota_weight
    if weight < 0:
        raise QuantityError(f"overQuotaWeight: {weight:g} is negative")
    return QueueRule(
        quota=_amount(resource.quota, name, "quota", default.quota),
        weight=weight,
        limit=_amount(resource.limit, name, "limit", NO_LIMIT),
        has_own_quota=resource.quota is not None,
    )


def _amount(given: int | str | None, resource: str, part: str, default: float) -> float:
    if given is None:
        return default
    if given in (UNLIMITED, str(UNLIMITED)):
        return NO_LIMIT
    try:
        amount = quantity.parse(given, resource)
    except QuantityError as error:
        raise QuantityError(f"{part}: {error}") from error
    if amount < 0:
        raise QuantityError(f"{part}: {given} is negative")
    return float(amount)
