"""Queue (cluster-scoped): a share of the cluster that teams submit gangs to."""

from typing import ClassVar, Final, Literal

from pydantic import Field

from bindery.api.base import ApiModel, Condition, CustomResource, Kind, PrinterColumn, Quantity
from bindery.api.names import USER_KEY
from bindery.api.states import UNLIMITED

READY: Final = "Ready"
"""The Queue condition that is False while the queue cannot be used, with the reason."""
WARNING: Final = "Warning"
"""The Queue condition that is True, with the reason, while the queue is served and yet something
about its spec is probably not meant; without that, the condition is not there."""


class QueueResource(ApiModel):
    """The queue's rules for one resource.

    Unset, `gpu` has no quota and no weight: a queue gets GPUs by being granted them. Every other
    resource has an unlimited quota and weight 1: it is shared freely.
    """

    quota: Quantity | None = None
    """What the queue is entitled to; -1 is unlimited."""
    over_quota_weight: float | None = Field(default=None, ge=0)
    """Weight of the queue, among its siblings, for resources beyond all quotas."""
    limit: Quantity = UNLIMITED
    """The most that the queue and all below it may hold at once; -1 is unlimited."""


class LabelRequirement(ApiModel):
    """One expression of a label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] | None = None


class LabelSelector(ApiModel):
    """A label selector, as in Kubernetes."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelRequirement, ...] | None = None


class NamespaceRule(ApiModel):
    """Some namespaces: those that are named, and those that are selected."""

    names: tuple[str, ...] = Field(default=(), max_length=1_000)
    """Namespaces by name."""
    selector: LabelSelector | None = None
    """Namespaces by their labels; an empty selector takes all."""


class FairUsers(ApiModel):
    """Fairness between the users of a queue."""

    label: str = Field(
        default=USER_KEY,
        max_length=316,
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    )
    """The label of PodGroups and pods whose value is the user. Gangs without it have one user
    together."""


class QueueSpec(ApiModel):
    """What an administrator grants."""

    parent: str | None = None
    """The queue above; its limits hold for this queue too. Unset: directly under the root. A tree
    has at most 32 levels."""
    priority: int = 100
    """Queues with a higher priority are served first."""
    state: Literal["Open", "Closed"] = "Open"
    """A closed queue takes nothing new; what runs goes on."""
    resources: dict[str, QueueResource] = Field(default_factory=dict)
    """By resource: `cpu`, `memory`, `gpu` (short for nvidia.com/gpu), or any other name."""
    models: dict[str, QueueResource] = Field(default_factory=dict)
    """By GPU model, as nodes are labelled: rules for the GPUs of that model alone."""
    reclaimable: bool = True
    """Whether other queues may take back what this one holds above its share."""
    preempt_min_runtime_seconds: float | None = Field(default=None, ge=0)
    """How long a gang of this queue runs before a gang of the same queue may preempt it."""
    reclaim_min_runtime_seconds: float | None = Field(default=None, ge=0)
    """How long a gang of this queue runs before another queue may reclaim from it."""
    max_run_time_seconds: float | None = Field(default=None, gt=0)
    """How long a gang of this queue, or of one below it, may run. Default: without end."""
    namespaces: NamespaceRule | None = None
    """The namespaces whose pods may use this queue and those below it. Default: all."""
    priority_classes: dict[str, NamespaceRule] = Field(default_factory=dict, max_length=100)
    """By PriorityClass: the namespaces whose pods may have it in this queue and those below it;
    `*` stands for every class that is not listed. Default: all."""
    non_preemptible: NamespaceRule | None = None
    """The namespaces whose pods may be non-preemptible in this queue and those below it. Default:
    all."""
    fair_users: FairUsers | None = None
    """If set, of gangs with equal priority in this queue, that of the user who holds the least of
    the queue's share is served first. Default: the oldest gang."""


class QueueGangs(ApiModel):
    """How many gangs, a pod without a PodGroup being one, a queue has with all below it."""

    running: int = 0
    """Those that have their minimum."""
    pending: int = 0
    """Those that wait for it; a gang whose pods are all gated does not wait for room yet."""


class QueueStatus(ApiModel):
    """What the scheduler found: of the queue and all below it, by resource.

    GPUs are `gpu`; those of a model that the queue has rules for are `gpu-model/MODEL` as well.
    Written by the scheduler of the node pool that the queue's label names.
    """

    allocated: dict[str, str] = Field(default_factory=dict)
    """What pods hold that are bound, or about to be."""
    fair_share: dict[str, str] = Field(default_factory=dict)
    """The fair share of the queue now."""
    requested: dict[str, str] = Field(default_factory=dict)
    """Allocated and pending."""
    pending: dict[str, str] = Field(default_factory=dict)
    """What pods ask for that wait."""
    kept: dict[str, str] = Field(default_factory=dict)
    """Room that is kept for later stages and reservations of its gangs, and not allocated."""
    gangs: QueueGangs = QueueGangs()
    conditions: tuple[Condition, ...] = Field(
        default=(),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )


class Queue(CustomResource):
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
    spec: QueueSpec = QueueSpec()
    status: QueueStatus | None = None
