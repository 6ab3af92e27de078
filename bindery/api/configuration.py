"""The configuration files of the scheduler, the binder and the grouper.

Each is one YAML document, read by `bindery.api.yamlfile.load` and checked as a whole before it is
used. Durations are seconds; the unit is in the key's name.
"""

from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from bindery.api.base import ApiModel, NonNegative
from bindery.api.gpus import DEFAULT_GPU_DEVICE_CLASSES, DEFAULT_GPU_RESOURCES
from bindery.api.names import SCHEDULER_NAME
from bindery.api.usage import UsageConfiguration

DEFAULT_ACTIONS: Final = (
    "allocate",  # what fits now, and reservations for the first that do not fit
    "backfill",  # what ends before a reservation begins
    "consolidation",  # moves that make room
    "reclaim",  # between queues, by fair share
    "preempt",  # inside a queue, by priority
    "stalegangeviction",  # what is left of gangs that have lost their minimum
    "runtimelimit",  # gangs that have run for as long as they may
)
DEFAULT_PLUGINS: Final = (
    "predicates",  # hard filters: selectors, affinity, taints, readiness
    "queuelimits",  # no queue above its limit, here or at an ancestor
    "tenancy",  # which namespaces may use a queue, and how
    "fairshare",  # the queue that is furthest below its share first; quotas of pinned work
    "priority",  # higher job priority first
    "gang",  # whole gangs; below their minimum before extras
    "dra",  # devices for resource claims
    "gpusharing",  # parts of GPUs, and GPUs one by one
    "hami",  # devices that HAMi shares
    "numa",  # nodes that can align the pod to their NUMA zones
    "cooldown",  # a node that refused a pod is avoided for a while
    "volumes",  # persistent volumes: bound, to be bound, to be provisioned
    "topology",  # racks, blocks and HyperNodes for gangs and their sub-groups
    "hostports",  # no two pods with one host port on a node
    "podaffinity",  # affinity and anti-affinity between pods
    "topologyspread",  # topology spread constraints
    "nodepreference",  # preferred affinity and soft taints
    "imagelocality",  # between otherwise equal nodes, one that has the images
    "fragmentation",  # the place where the typical workload loses the fewest GPUs
    "nodeplacement",  # binpack or spread
)
DEFAULT_BINDER_PLUGINS: Final = (
    "volumes",  # claims get their volumes, and are waited for
    "dra",  # resource claims get their devices, and are reserved for their pods
    "gpusharing",  # pods that share GPUs are told which, and reservation pods hold these
    "hami",  # HAMi's devices are written onto pods, and their nodes locked in turn
    "numa",  # the predicted NUMA zones are recorded on the pod
)


class BinderPluginConfiguration(ApiModel):
    """One plugin of the binder, in the order in which it is called."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What the plugin's own arguments model understands; unknown keys are errors."""


class PluginConfiguration(BinderPluginConfiguration):
    """One plugin of the scheduler, in the order in which it is called."""

    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """The plugin's scores of nodes are multiplied by it."""


class LeaderElection(ApiModel):
    """Which of several replicas acts. Defaults are those of Kubernetes' own components."""

    enabled: bool = True
    """false: the process acts at once, for a single replica."""
    namespace: str = "kube-system"
    """Where the Lease is; the same for all releases of the chart in a cluster."""
    lease_seconds: float = Field(default=15.0, gt=0)
    """How long a silent leader keeps the Lease."""
    renew_deadline_seconds: float = Field(default=10.0, gt=0)
    """A leader that could not renew for so long stops acting."""
    retry_seconds: float = Field(default=2.0, gt=0)
    """The time between two attempts to get or renew the Lease."""


class BindRequestConfiguration(ApiModel):
    """How Statements become BindRequests."""

    max_pods: int = Field(default=500, ge=1, le=500)
    """A larger commit is split; 1 writes one object per pod."""
    backoff_limit: NonNegative = 5
    """How many attempts of the binder may fail before the pods are planned elsewhere."""
    timeout_seconds: float = Field(default=600.0, gt=0)
    """A request without an outcome after so long is removed and its pods are planned again."""
    merge_above: NonNegative = 4
    """A cycle that commits more single-pod Statements of one namespace than this merges them."""
    max_statements: int = Field(default=50, ge=1, le=500)
    """How many Statements of one namespace may share a request, up to 100 pods. They share one only
    while 16 requests are being created; 1 writes one request per Statement."""


class BackfillConfiguration(ApiModel):
    """Which gangs that do not fit hold a reservation while the action `backfill` is on."""

    reservations: NonNegative = 1
    """How many gangs at once: the first that do not fit, in the order in which they are served."""
    after_seconds: float = Field(default=0.0, ge=0)
    """How long a gang waits before it gets one."""
    window_seconds: float = Field(default=86400.0, ge=0)
    """A start that lies further ahead counts as one that is not known."""
    unknown_start_after_seconds: float = Field(default=300.0, ge=0)
    """How long a gang waits before it gets one whose start is not known. Its room may then stay
    idle for as long as pods without an expected run time run."""


class GrouperExpectation(ApiModel):
    """What the scheduler expects of the grouper, which writes PodGroups for pods without one."""

    wait_for_groups: bool = False
    """Whether pods that have a controller wait until a PodGroup selects them. For clusters where
    the grouper runs."""


class VictimPreference(StrEnum):
    """Which of several gangs of one queue and priority is evicted first."""

    NEWEST = "Newest"
    """The one that was created last."""
    YOUNGEST = "Youngest"
    """The one that started last."""
    CHEAPEST = "Cheapest"
    """The one that holds the smallest part of the cluster."""
    LEAST_WORK_LOST = "LeastWorkLost"
    """The one with the smallest part of the cluster times the time since its last checkpoint."""


class DisruptionConfiguration(ApiModel):
    """The pods that the scheduler does not evict, and the order in which it evicts others."""

    spare_from: tuple[Literal["consolidation", "reclaim", "preempt"], ...] = ("consolidation",)
    """The actions that do not evict pods with an annotation against it, or with local data."""
    local_data: bool = True
    """Whether local data counts: a hostPath volume, or an emptyDir volume that is not in memory."""
    prefer: VictimPreference = VictimPreference.NEWEST
    """Which of several gangs of one queue and priority is evicted first: Newest, Youngest, Cheapest
    or LeastWorkLost."""


class SchedulerConfiguration(ApiModel):
    """One scheduler: its pool, its actions and plugins in order, its timing."""

    api_version: Literal["scheduling.bindery.dev/v1alpha1"] = "scheduling.bindery.dev/v1alpha1"
    kind: Literal["SchedulerConfiguration"] = "SchedulerConfiguration"
    scheduler_name: str = SCHEDULER_NAME
    """Pods with this `spec.schedulerName` are planned; all others only count as usage."""
    node_pool: str = ""
    """The pool that this scheduler owns; "" is the default pool: all without the label."""
    actions: tuple[str, ...] = DEFAULT_ACTIONS
    """What each cycle does, in this order."""
    plugins: tuple[PluginConfiguration, ...] = tuple(
        PluginConfiguration(name=name) for name in DEFAULT_PLUGINS
    )
    """What decides about queues, jobs and nodes, in the order in which they are asked."""
    gpu_resources: tuple[str, ...] = DEFAULT_GPU_RESOURCES
    """The resources that queues count as GPUs, as shell patterns such as `gpu.intel.com/*`. MIG
    instances always count, each as its number of compute slices."""
    gpu_device_classes: tuple[str, ...] = DEFAULT_GPU_DEVICE_CLASSES
    """The DeviceClasses whose devices queues count as GPUs, as shell patterns such as
    `*.nvidia.com`: each device that resource claims have counts as one."""
    cycle_seconds: float = Field(default=1.0, gt=0)
    """The longest time between two cycles without events."""
    min_cycle_seconds: float = Field(default=0.05, ge=0)
    """The shortest time between two cycles, so that events are taken in batches."""
    cycle_budget_seconds: float = Field(default=5.0, gt=0)
    """How long a cycle plans further jobs. Then it commits its plans, and the next cycle continues
    with the remaining jobs."""
    attempt_seconds: float = Field(default=1.0, gt=0)
    """How long a cycle may plan one job at once; making room for it may take five times as long. A
    job that takes longer is set aside for 10 s, and each further time for twice as long, up to 15
    min; then it gets twice the time, up to 16 times."""
    max_cycle_seconds: float = Field(default=120.0, gt=0)
    """Longest duration of a cycle. Then the cycle hangs, for example in a plugin, and the process
    ends."""
    failed_node_cooldown_seconds: float = Field(default=60.0, ge=0)
    """How long a node is avoided at most after a bind to it failed, or it refused a pod. The first
    time is a quarter of it and doubles with each further failure; a change of the node's
    allocatable resources or declared features ends it."""
    stuck_in_releasing_seconds: float = Field(default=120.0, ge=0)
    """How long after its grace period a terminating pod is expected to go. Then plans no longer
    count on its resources."""
    consolidation_max_moved: NonNegative = 16
    """How many jobs may be moved for one that waits."""
    staleness_grace_period_seconds: float = 60.0
    """How long a gang that has run may stay below its minimum, if its PodGroup has no value;
    negative: no limit."""
    backfill: BackfillConfiguration = BackfillConfiguration()
    disruption: DisruptionConfiguration = DisruptionConfiguration()
    tenancy_policy_enforced: bool = False
    """Whether the chart's admission policy guards what the binder records on pods, and the queues
    of PodGroups. Without it, what this process saw comes before what pods and PodGroups have."""
    bind_request: BindRequestConfiguration = BindRequestConfiguration()
    grouper: GrouperExpectation = GrouperExpectation()
    leader_election: LeaderElection = LeaderElection()
    usage: UsageConfiguration = UsageConfiguration()
    """Time-based shares: what queues used in the past lowers what they get over quota."""

    @property
    def counted_as_gpus(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The resources and the DeviceClasses that queues count as GPUs."""
        return self.gpu_resources, self.gpu_device_classes

    @field_validator("plugins")
    @classmethod
    def _names_are_unique(
        cls, plugins: tuple[PluginConfiguration, ...]
    ) -> tuple[PluginConfiguration, ...]:
        names = [plugin.name for plugin in plugins]
        if len(names) != len(set(names)):
            raise ValueError("a plugin is named twice")
        return plugins


class WebhookConfiguration(ApiModel):
    """The admission webhook, which runs the binder's plugins when pods are created."""

    scheduler_name: str = SCHEDULER_NAME
    """Pods with this `spec.schedulerName` are looked at."""
    port: int = Field(default=8443, ge=1, le=65535)
    """The port that the API server calls."""
    host: str = ""
    """The address that it listens on; "": that of the option --listen-address."""
    dns_names: tuple[str, ...] = ("bindery-webhook.bindery-system.svc",)
    """Names and addresses by which the API server calls it: its certificate is for them."""
    namespace: str = "bindery-system"
    """Where the webhook keeps its certificates."""
    secret: str = "bindery-webhook"  # noqa: S105  # a name, no password
    """The Secret with its certificates."""
    configuration: str = "bindery-webhook"
    """The name of both webhook configurations; the webhook writes its CA bundle into them."""
    certificate_seconds: float = Field(default=90 * 86400.0, ge=1)
    """How long a certificate is good for; it is renewed after two thirds of that."""
    authority_seconds: float = Field(default=5 * 365 * 86400.0, ge=1)
    """How long the authority is good for that signs certificates."""
    overlap_seconds: float = Field(default=600.0, ge=0)
    """How long a new authority is published before it signs."""


class BinderConfiguration(ApiModel):
    """One binder: its plugins in order and its bounds."""

    api_version: Literal["scheduling.bindery.dev/v1alpha1"] = "scheduling.bindery.dev/v1alpha1"
    kind: Literal["BinderConfiguration"] = "BinderConfiguration"
    plugins: tuple[BinderPluginConfiguration, ...] = tuple(
        BinderPluginConfiguration(name=name) for name in DEFAULT_BINDER_PLUGINS
    )
    """What prepares pods before they are bound, in this order."""
    concurrent_binds: int = Field(default=32, ge=1)
    """Calls for pods in flight at once, over all requests: bindings, and those of plugins."""
    time_to_live_seconds: float = Field(default=300.0, ge=0)
    """Finished requests are removed after so long."""
    max_backoff_seconds: float = Field(default=300.0, gt=0)
    """The longest wait between two attempts."""
    leader_election: LeaderElection = LeaderElection()
    webhook: WebhookConfiguration = WebhookConfiguration()
    """For `bindery webhook run`, which reads the same file; the binder itself does not look."""


class GrouperConfiguration(ApiModel):
    """One grouper: which pods it groups, by which rows, and how fast."""

    api_version: Literal["scheduling.bindery.dev/v1alpha1"] = "scheduling.bindery.dev/v1alpha1"
    kind: Literal["GrouperConfiguration"] = "GrouperConfiguration"
    scheduler_names: tuple[str, ...] = Field(default=(SCHEDULER_NAME,), min_length=1)
    """Pods with one of these in `spec.schedulerName` are grouped."""
    row_files: tuple[str, ...] = ()
    """Files with further rows for kinds of workloads; they replace shipped rows of the same kind.
    A path that is not absolute begins at this file."""
    debounce_seconds: float = Field(default=0.1, ge=0)
    """How long changes of a workload are collected before its PodGroups are worked out again."""
    concurrent_writes: int = Field(default=16, ge=1)
    """Writes in flight at once, over all workloads."""
    leader_election: LeaderElection = LeaderElection()
