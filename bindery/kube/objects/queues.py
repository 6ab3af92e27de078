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
"""What goes into a column: JSON knows larger numbers."""
READY: Final = "Ready"
"""The Queue condition that is False while the queue cannot be used, with the reason."""
WARNING: Final = "Warning"
"""The Queue condition that is True, with the reason, while the queue is served and yet something
about its spec is probably not meant; without that, the condition is not there."""
_LABEL_PATTERN: Final = (
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
)


class QueueResource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The queue's rules for one resource.

    Unset, `gpu` has no quota and no weight: a queue gets GPUs by being granted them. Every other
    resource has an unlimited quota and weight 1: it is shared freely.
    """

    quota: Quantity | None = None
    """What the queue is entitled to; -1 is unlimited."""
    over_quota_weight: Annotated[float | None, AT_LEAST_ZERO] = None
    """Weight of the queue, among its siblings, for resources beyond all quotas."""
    limit: Quantity = UNLIMITED
    """The most that the queue and all below it may hold at once; -1 is unlimited."""


class NamespaceRule(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Some namespaces: those that are named, and those that are selected."""

    names: Annotated[list[str], schema(maxItems=1_000)] = field(default_factory=list)
    """Namespaces by name."""
    selector: LabelSelector | None = None
    """Namespaces by their labels; an empty selector takes all."""

    def takes(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the namespace `name` with `labels` is named or selected."""
        return name in self.names or (self.selector is not None and self.selector.matches(labels))


class FairUsers(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Fairness between the users of a queue."""

    label: Annotated[str, schema(maxLength=316, pattern=_LABEL_PATTERN)] = USER_KEY
    """The label of PodGroups and pods whose value is the user. Gangs without it have one user
    together."""


class QueueSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What an administrator grants."""

    parent: str | None = None
    """The queue above; its limits hold for this queue too. Unset: directly under the root. A tree
    has at most 32 levels."""
    priority: _Int64 = 100
    """Queues with a higher priority are served first."""
    state: Annotated[str, one_of("Open", "Closed")] = "Open"
    """A closed queue takes nothing new; what runs goes on."""
    resources: dict[str, QueueResource] = field(default_factory=dict)
    """By resource: `cpu`, `memory`, `gpu` (short for nvidia.com/gpu), or any other name."""
    models: dict[str, QueueResource] = field(default_factory=dict)
    """By GPU model, as nodes are labelled: rules for the GPUs of that model alone."""
    reclaimable: bool = True
    """Whether other queues may take back what this one holds above its share."""
    preempt_min_runtime_seconds: Annotated[float | None, AT_LEAST_ZERO] = None
    """How long a gang of this queue runs before a gang of the same queue may preempt it."""
    reclaim_min_runtime_seconds: Annotated[float | None, AT_LEAST_ZERO] = None
    """How long a gang of this queue runs before another queue may reclaim from it."""
    max_run_time_seconds: Annotated[float | None, ABOVE_ZERO] = None
    """How long a gang of this queue, or of one below it, may run. Default: without end."""
    namespaces: NamespaceRule | None = None
    """The namespaces whose pods may use this queue and those below it. Default: all."""
    priority_classes: Annotated[dict[str, NamespaceRule], schema(maxProperties=100)] = field(
        default_factory=dict
    )
    """By PriorityClass: the namespaces whose pods may have it in this queue and those below it;
    `*` stands for every class that is not listed. Default: all."""
    non_preemptible: NamespaceRule | None = None
    """The namespaces whose pods may be non-preemptible in this queue and those below it. Default:
    all."""
    fair_users: FairUsers | None = None
    """If set, of gangs with equal priority in this queue, that of the user who holds the least of
    the queue's share is served first. Default: the oldest gang."""


class GangCounts(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many gangs, a pod without a PodGroup being one, a queue has with all below it."""

    running: int = 0
    """Those that have their minimum."""
    pending: int = 0
    """Those that wait for it; a gang whose pods are all gated does not wait for room yet."""


class QueueStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What the scheduler found: of the queue and all below it, by resource.

    GPUs are `gpu`; those of a model that the queue has rules for are `gpu-model/MODEL` as well.
    Written by the scheduler of the node pool that the queue's label names.
    """

    allocated: dict[str, str] = field(default_factory=dict)
    """What pods hold that are bound, or about to be."""
    fair_share: dict[str, str] = field(default_factory=dict)
    """The fair share of the queue now."""
    requested: dict[str, str] = field(default_factory=dict)
    """Allocated and pending."""
    pending: dict[str, str] = field(default_factory=dict)
    """What pods ask for that wait."""
    kept: dict[str, str] = field(default_factory=dict)
    """Room that is kept for later stages and reservations of its gangs, and not allocated."""
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
            PrinterColumn(name="Parent", json_path=".spec.parent"),
            PrinterColumn(
                name="Weight", type="number", json_path=".spec.resources.gpu.overQuotaWeight"
            ),
            PrinterColumn(name="GPUs", json_path=".status.allocated.gpu"),
            PrinterColumn(name="Fair share", json_path=".status.fairShare.gpu"),
            PrinterColumn(name="Pending", json_path=".status.pending.gpu"),
            PrinterColumn(name="Running", type="integer", json_path=".status.gangs.running"),
            PrinterColumn(name="Waiting", type="integer", json_path=".status.gangs.pending"),
            PrinterColumn(name="State", json_path=".spec.state"),
            PrinterColumn(name="Ready", json_path='.status.conditions[?(@.type=="Ready")].status'),
            PrinterColumn(name="Priority", type="integer", json_path=".spec.priority", priority=1),
            PrinterColumn(name="GPU limit", json_path=".spec.resources.gpu.limit", priority=1),
            PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
        ),
    )
    spec: QueueSpec = field(default_factory=QueueSpec)
    status: Annotated[QueueStatus, NO_DEFAULT] = field(default_factory=QueueStatus)
    unreadable: str = ""
    """Why it could be read only in part."""
