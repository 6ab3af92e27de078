"""Queue (cluster-scoped): a share of the cluster that teams submit gangs to."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import field

from bindery.api.names import USER_KEY
from bindery.api.states import UNLIMITED
from bindery.kube.objects.declaring import (
    ABOVE_ZERO,
    AT_LEAST_ZERO,
    LIST_BY_TYPE,
    NO_DEFAULT,
    Kind,
    PrinterColumn,
    one_of,
    schema,
)
from bindery.kube.objects.selectors import LabelSelector
from bindery.kube.objects.watched import Condition, CustomResource

Quantity = Annotated[
    int | str,
    msgspec.Meta(
        extra_json_schema={
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            # The grammar of apimachinery's resource.Quantity without a sign: only -1, unlimited, is
            # below zero. `pattern` applies to strings, `minimum` to integers.
            "pattern": r"^(-1|\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
            r"([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?)$",
            "minimum": -1,
        }
    ),
]
"""A Kubernetes quantity, such as 8, 1500m or 64Gi."""
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""The range of an integer column: numbers in JSON can be larger."""
READY: Final = "Ready"
"""The Queue condition that is False while the queue cannot be used, with the reason."""
WARNING: Final = "Warning"
"""The Queue condition that is True while the queue is served but its spec has a probable mistake.
Without a mistake, the condition does not exist."""
_LABEL_PATTERN: Final = (
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
)


class QueueResource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The queue's rules for one resource.

    Unset, `gpu` has no quota and no weight: a queue gets GPUs only by a grant. Every other resource
    has an unlimited quota and weight 1, so queues share the resource freely.
    """

    quota: Quantity | None = None
    """The amount that the queue is entitled to; -1 is unlimited."""
    over_quota_weight: Annotated[float | None, AT_LEAST_ZERO] = None
    """Weight of the queue, among its sibling queues, for resources beyond all quotas."""
    limit: Quantity = UNLIMITED
    """The maximum that the queue and all queues below may hold at once; -1 is unlimited."""


class NamespaceRule(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A set of namespaces: the named namespaces, and the selected namespaces."""

    names: Annotated[list[str], schema(maxItems=1_000)] = field(default_factory=list)
    """Namespaces by name."""
    selector: LabelSelector | None = None
    """Namespaces by their labels; an empty selector selects all."""

    def takes(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the namespace `name` with `labels` is named or selected."""
        return name in self.names or (self.selector is not None and self.selector.matches(labels))


class FairUsers(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Fairness between the users of a queue."""

    label: Annotated[str, schema(maxLength=316, pattern=_LABEL_PATTERN)] = USER_KEY
    """The label of PodGroups and pods whose value is the user. All gangs without the label count as
    one user."""


class QueueSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The grants of an administrator."""

    parent: str | None = None
    """The parent queue, with limits that hold for this queue too. Unset: the queue is directly
    below the root. A tree has at most 32 levels."""
    priority: _Int64 = 100
    """Queues with a higher priority are served first."""
    state: Annotated[str, one_of("Open", "Closed")] = "Open"
    """A closed queue accepts no new pods; running pods continue."""
    resources: dict[str, QueueResource] = field(default_factory=dict)
    """By resource: `cpu`, `memory`, `gpu` (short for nvidia.com/gpu), or any other name."""
    models: dict[str, QueueResource] = field(default_factory=dict)
    """By GPU model, as nodes are labelled: rules for the GPUs of that model alone."""
    reclaimable: bool = True
    """Whether other queues may reclaim the resources that this queue holds above its share."""
    preempt_min_runtime_seconds: Annotated[float | None, AT_LEAST_ZERO] = None
    """How long a gang of this queue runs before a gang of the same queue may preempt it."""
    reclaim_min_runtime_seconds: Annotated[float | None, AT_LEAST_ZERO] = None
    """How long a gang of this queue runs before another queue may reclaim from it."""
    max_run_time_seconds: Annotated[float | None, ABOVE_ZERO] = None
    """How long a gang of this queue, or of a queue below, may run. Default: without limit."""
    idle_after_seconds: Annotated[float | None, ABOVE_ZERO] = None
    """How long the GPUs of a gang of this queue, or of a queue below, may all be unused until the
    gang counts as idle: its status shows it, and it is the first victim in its queue. Default:
    `idleTimeoutSeconds`, else gangs never count as idle."""
    idle_timeout_seconds: Annotated[float | None, ABOVE_ZERO] = None
    """How long the GPUs of a gang of this queue, or of a queue below, may all be unused until the
    gang is evicted. Default: without limit."""
    namespaces: NamespaceRule | None = None
    """The namespaces with access to this queue and to the queues below. Default: all."""
    priority_classes: Annotated[dict[str, NamespaceRule], schema(maxProperties=100)] = field(
        default_factory=dict
    )
    """By PriorityClass: the namespaces in which pods of this queue and of the queues below may have
    the class; `*` stands for every class that is not listed. Default: all."""
    non_preemptible: NamespaceRule | None = None
    """The namespaces in which pods of this queue and of the queues below may be non-preemptible.
    Default: all."""
    exclusive_domains: Annotated[str, one_of("Allow", "Forbid")] = "Allow"
    """Whether gangs of this queue and of the queues below may have exclusive domains, which no
    other gang can use. A queue holds all of the exclusive domains of its gangs."""
    fair_users: FairUsers | None = None
    """If set: of gangs with equal priority in this queue, the gang of the user with the smallest
    part of the queue's share is served first. Default: the oldest gang is first."""


class GangCounts(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many gangs the queue and all queues below have. A pod without a PodGroup counts as a
    gang.
    """

    running: int = 0
    """The number of gangs that have their minimum."""
    pending: int = 0
    """The number of gangs that wait for their minimum; a gang with only gated pods does not wait
    for room yet."""


class QueueStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The observations of the scheduler about the queue and all queues below, by resource.

    GPUs are `gpu`; GPUs of a model for which the queue has rules are `gpu-model/MODEL` as well. The
    scheduler of the node pool in the queue's label writes the status.
    """

    allocated: dict[str, str] = field(default_factory=dict)
    """The resources of pods that are bound or will be bound."""
    fair_share: dict[str, str] = field(default_factory=dict)
    """The fair share of the queue now."""
    requested: dict[str, str] = field(default_factory=dict)
    """Allocated and pending."""
    pending: dict[str, str] = field(default_factory=dict)
    """The requests of waiting pods."""
    kept: dict[str, str] = field(default_factory=dict)
    """Room that is kept for later stages, exclusive domains and reservations of the queue's gangs,
    and not allocated."""
    gangs: GangCounts = GangCounts()
    conditions: Annotated[list[Condition] | None, LIST_BY_TYPE] = None


class Queue(CustomResource, frozen=True, rename="camel", kw_only=True, gc=False):
    """A queue of gangs with limits."""

    kind_info: ClassVar[Kind] = Kind(
        kind="Queue",
        plural="queues",
        short_names=("bq",),
        namespaced=False,
        columns=(
            PrinterColumn("Parent", ".spec.parent"),
            PrinterColumn("Weight", ".spec.resources.gpu.overQuotaWeight", "number"),
            PrinterColumn("GPUs", ".status.allocated.gpu"),
            PrinterColumn("Fair share", ".status.fairShare.gpu"),
            PrinterColumn("Pending", ".status.pending.gpu"),
            PrinterColumn("Running", ".status.gangs.running", "integer"),
            PrinterColumn("Waiting", ".status.gangs.pending", "integer"),
            PrinterColumn("State", ".spec.state"),
            PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            PrinterColumn("Priority", ".spec.priority", "integer", priority=1),
            PrinterColumn("GPU limit", ".spec.resources.gpu.limit", priority=1),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
    )
    spec: QueueSpec = field(default_factory=QueueSpec)
    status: Annotated[QueueStatus, NO_DEFAULT] = field(default_factory=QueueStatus)
    unreadable: str = ""
    """Why the object was read only in part."""
