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
    "allocate",  # jobs that fit now, and reservations for the first that do not fit
    "backfill",  # jobs that end before a reservation begins
    "consolidation",  # moves that make room
    "reclaim",  # between queues, by fair share
    "preempt",  # inside a queue, by priority
    "stalegangeviction",  # pods of gangs that have lost their minimum
    "runtimelimit",  # gangs that have reached their limit of run time
    "idlegpus",  # gangs whose GPUs have been idle for too long
)
DEFAULT_PLUGINS: Final = (
    "predicates",  # hard filters: selectors, affinity, taints, readiness
    "queuelimits",  # no queue above its limit, here or at an ancestor
    "tenancy",  # which namespaces may use a queue, and how
    "fairshare",  # the queue that is furthest below its share first; quotas of pinned work
    "priority",  # higher job priority first
    "gang",  # whole gangs; below their minimum before extras
    "dra",  # devices for resource claims
    "gpusharing",  # shares of GPUs, and single GPUs
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
    "volumes",  # volumes for claims, with a wait until they are bound
    "dra",  # devices for resource claims, reserved for their pods
    "gpusharing",  # reservation pods for shared GPUs, and their devices for the users
    "hami",  # HAMi's devices on pods, and the locks of their nodes
    "numa",  # the record of the predicted NUMA zones on the pod
)


class BinderPluginConfiguration(ApiModel):
    """One plugin of the binder, in the order in which it is called."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the plugin; unknown keys are errors."""


class PluginConfiguration(BinderPluginConfiguration):
    """One plugin of the scheduler, in the order in which it is called."""

    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Factor for the plugin's scores of nodes."""


class LeaderElection(ApiModel):
    """The election of one of several replicas. Defaults are those of Kubernetes' own components."""

    enabled: bool = True
    """false: the process acts without an election, for a single replica."""
    namespace: str = "kube-system"
    """The namespace of the Lease; the same for all releases of the chart in a cluster."""
    lease_seconds: float = Field(default=15.0, gt=0)
    """Time until the Lease of a silent leader expires."""
    renew_deadline_seconds: float = Field(default=10.0, gt=0)
    """Time without a successful renewal after which a leader stops acting."""
    retry_seconds: float = Field(default=2.0, gt=0)
    """The time between two attempts to get or renew the Lease."""


class BindRequestConfiguration(ApiModel):
    """Rules for writing Statements into BindRequests."""

    max_pods: int = Field(default=500, ge=1, le=500)
    """A larger commit is split; 1 writes one object per pod."""
    backoff_limit: NonNegative = 5
    """Number of failed attempts of the binder after which the pods are planned again."""
    timeout_seconds: float = Field(default=600.0, gt=0)
    """Time after which a request without an outcome is deleted and its pods are planned again."""
    merge_above: NonNegative = 4
    """Number of single-pod Statements of one namespace in a cycle above which they are merged."""
    max_statements: int = Field(default=50, ge=1, le=500)
    """Maximum number of Statements of one namespace that share a request, up to 100 pods.
    Statements share a request only while 16 requests are being created; 1 writes one request for
    each Statement."""


class BackfillConfiguration(ApiModel):
    """Reservations for gangs that do not fit, while the action `backfill` is on."""

    reservations: NonNegative = 1
    """Number of gangs with a reservation at a time: the first that do not fit, in the order of
    service.
    """
    after_seconds: float = Field(default=0.0, ge=0)
    """Time that a gang waits before it gets a reservation."""
    window_seconds: float = Field(default=86400.0, ge=0)
    """A start further ahead than this time counts as unknown."""
    unknown_start_after_seconds: float = Field(default=300.0, ge=0)
    """Time that a gang waits before it gets a reservation with an unknown start. The reserved room
    may stay idle while pods without an expected run time run."""


class GrouperExpectation(ApiModel):
    """Settings for clusters with the grouper, which writes PodGroups for pods without one."""

    wait_for_groups: bool = False
    """Whether pods with a controller wait until a PodGroup selects them. Set it only where the
    grouper runs."""


class VictimPreference(StrEnum):
    """The order in which gangs of one queue and priority are evicted."""

    NEWEST = "Newest"
    """The gang that was created last."""
    YOUNGEST = "Youngest"
    """The gang that started last."""
    CHEAPEST = "Cheapest"
    """The gang that holds the smallest part of the cluster."""
    LEAST_WORK_LOST = "LeastWorkLost"
    """The gang with the smallest product of its part of the cluster and the time since its last
    checkpoint.
    """


class DisruptionConfiguration(ApiModel):
    """The pods that the scheduler does not evict, and the order in which it evicts others."""

    spare_from: tuple[Literal["consolidation", "reclaim", "preempt"], ...] = ("consolidation",)
    """The actions that do not evict pods with local data or with an annotation against eviction."""
    local_data: bool = True
    """Whether local data protects a pod: a hostPath volume, or an emptyDir volume that is not in
    memory.
    """
    prefer: VictimPreference = VictimPreference.NEWEST
    """Which of several gangs of one queue and priority is evicted first: Newest, Youngest, Cheapest
    or LeastWorkLost."""


class HistoryConfiguration(ApiModel):
    """The history of gangs and queues, which the dashboard shows."""

    enabled: bool = False
    """Whether the scheduler keeps a history in a ConfigMap. A change needs a restart."""
    window_seconds: float = Field(default=7 * 86400.0, ge=600)
    """Age above which the history is dropped."""
    save_seconds: float = Field(default=30.0, ge=10)
    """Minimum time between two writes of the history."""


class SchedulerConfiguration(ApiModel):
    """One scheduler: node pool, actions and plugins in order, timing."""

    api_version: Literal["scheduling.bindery.dev/v1alpha1"] = "scheduling.bindery.dev/v1alpha1"
    kind: Literal["SchedulerConfiguration"] = "SchedulerConfiguration"
    scheduler_name: str = SCHEDULER_NAME
    """The scheduler plans pods with this `spec.schedulerName`; other pods only count as usage."""
    node_pool: str = ""
    """The node pool of this scheduler; "" is the default pool: all nodes without the label."""
    actions: tuple[str, ...] = DEFAULT_ACTIONS
    """The actions of each cycle, in this order."""
    plugins: tuple[PluginConfiguration, ...] = tuple(
        PluginConfiguration(name=name) for name in DEFAULT_PLUGINS
    )
    """The plugins for queues, jobs and nodes, in the order in which they are called."""
    gpu_resources: tuple[str, ...] = DEFAULT_GPU_RESOURCES
    """The resources that queues count as GPUs, as shell patterns such as `gpu.intel.com/*`. MIG
    instances always count, each as its number of compute slices."""
    gpu_device_classes: tuple[str, ...] = DEFAULT_GPU_DEVICE_CLASSES
    """The DeviceClasses whose devices queues count as GPUs, as shell patterns such as
    `*.nvidia.com`: each allocated device counts as one GPU."""
    cycle_seconds: float = Field(default=1.0, gt=0)
    """Maximum time between two cycles without events."""
    min_cycle_seconds: float = Field(default=0.05, ge=0)
    """Minimum time between two cycles, so that events are processed in batches."""
    cycle_budget_seconds: float = Field(default=5.0, gt=0)
    """Time for which a cycle plans further jobs. Then the cycle commits its plans, and the next
    cycle continues with the remaining jobs."""
    attempt_seconds: float = Field(default=1.0, gt=0)
    """Time for which a cycle may plan one job; making room for a job may take five times as long. A
    job that takes longer is postponed for 10 s, and for twice as long after each further time, up
    to 15 min; then it gets twice the time, up to 16 times."""
    max_cycle_seconds: float = Field(default=120.0, gt=0)
    """Maximum duration of a cycle. A longer cycle hangs, for example in a plugin, and the process
    ends."""
    failed_node_cooldown_seconds: float = Field(default=60.0, ge=0)
    """Maximum time for which a node is avoided after a failed binding to it, or after it refused a
    pod. The first time is a quarter of the maximum and doubles with each further failure. A change
    of the node's allocatable resources or declared features ends the time."""
    stuck_in_releasing_seconds: float = Field(default=120.0, ge=0)
    """Time after the grace period within which a terminating pod is expected to end. Afterwards,
    plans no longer count on the pod's resources."""
    max_stage_timeout_seconds: float = Field(default=3600.0, ge=0)
    """Maximum time for which room is kept for a later stage of a gang, whatever
    `stageTimeoutSeconds` its PodGroup has."""
    consolidation_max_moved: NonNegative = 16
    """Maximum number of jobs that are moved for one waiting job."""
    staleness_grace_period_seconds: float = 60.0
    """Time for which a gang that has run may stay below its minimum, if its PodGroup has no value;
    negative: no limit."""
    backfill: BackfillConfiguration = BackfillConfiguration()
    disruption: DisruptionConfiguration = DisruptionConfiguration()
    tenancy_policy_enforced: bool = False
    """Whether the chart's admission policy protects the binder's records on pods, and the queues of
    PodGroups. Without the policy, the scheduler trusts its own observations over the content of
    pods and PodGroups."""
    bind_request: BindRequestConfiguration = BindRequestConfiguration()
    grouper: GrouperExpectation = GrouperExpectation()
    leader_election: LeaderElection = LeaderElection()
    usage: UsageConfiguration = UsageConfiguration()
    """Time-based shares: past usage of a queue lowers its share over quota."""
    history: HistoryConfiguration = HistoryConfiguration()

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
    """The admission webhook. It runs the binder's plugins when pods are created."""

    scheduler_name: str = SCHEDULER_NAME
    """The webhook checks pods with this `spec.schedulerName`."""
    port: int = Field(default=8443, ge=1, le=65535)
    """The port that the API server calls."""
    host: str = ""
    """The address on which the webhook listens; "": the address of the option --listen-address."""
    dns_names: tuple[str, ...] = ("bindery-webhook.bindery-system.svc",)
    """Names and addresses by which the API server calls the webhook; they are in its
    certificate.
    """
    namespace: str = "bindery-system"
    """The namespace of the webhook's certificates."""
    secret: str = "bindery-webhook"  # noqa: S105  # a name, no password
    """The Secret of the webhook's certificates."""
    configuration: str = "bindery-webhook"
    """The name of both webhook configurations; the webhook writes its CA bundle into them."""
    certificate_seconds: float = Field(default=90 * 86400.0, ge=1)
    """Lifetime of a certificate, which is renewed after two thirds of this time."""
    authority_seconds: float = Field(default=5 * 365 * 86400.0, ge=1)
    """Lifetime of the authority that signs certificates."""
    overlap_seconds: float = Field(default=600.0, ge=0)
    """Time for which a new authority is published before it signs."""


class BinderConfiguration(ApiModel):
    """One binder: plugins in order, and limits."""

    api_version: Literal["scheduling.bindery.dev/v1alpha1"] = "scheduling.bindery.dev/v1alpha1"
    kind: Literal["BinderConfiguration"] = "BinderConfiguration"
    plugins: tuple[BinderPluginConfiguration, ...] = tuple(
        BinderPluginConfiguration(name=name) for name in DEFAULT_BINDER_PLUGINS
    )
    """The plugins that prepare pods before they are bound, in this order."""
    concurrent_binds: int = Field(default=32, ge=1)
    """Maximum number of concurrent calls for pods, over all requests: bindings, and calls of
    plugins.
    """
    time_to_live_seconds: float = Field(default=300.0, ge=0)
    """Time after which finished requests are deleted."""
    max_backoff_seconds: float = Field(default=300.0, gt=0)
    """Maximum time between two attempts."""
    leader_election: LeaderElection = LeaderElection()
    webhook: WebhookConfiguration = WebhookConfiguration()
    """For `bindery webhook run`, which reads the same file; the binder ignores it."""


TOPOGRAPH_LEVELS: Final = (
    ("accelerator.topograph.run/sub-domain",),
    (
        "accelerator.topograph.run/domain",
        "network.topology.nvidia.com/accelerator",
        "nvidia.com/gpu.clique",
    ),
    (
        "fabric.topograph.run/tier-0",
        "network.topology.nvidia.com/leaf",
        "network.topology.nvidia.com/block",
    ),
    ("fabric.topograph.run/tier-1", "network.topology.nvidia.com/spine"),
    (
        "fabric.topograph.run/tier-2",
        "network.topology.nvidia.com/core",
        "network.topology.nvidia.com/datacenter",
    ),
)
"""Labels of nodes by Topograph (v1, v0.5, v0.1), the closest level first, and the GPU operator's
label of NVLink domains, which Topograph uses where it is there."""


class GrouperConfiguration(ApiModel):
    """One grouper: scheduler names, rows and rates."""

    api_version: Literal["scheduling.bindery.dev/v1alpha1"] = "scheduling.bindery.dev/v1alpha1"
    kind: Literal["GrouperConfiguration"] = "GrouperConfiguration"
    scheduler_names: tuple[str, ...] = Field(default=(SCHEDULER_NAME,), min_length=1)
    """The grouper groups pods with one of these names in `spec.schedulerName`."""
    row_files: tuple[str, ...] = ()
    """Files with further rows for kinds of workloads; they replace shipped rows of the same kind. A
    relative path starts at the directory of this file."""
    debounce_seconds: float = Field(default=0.1, ge=0)
    """Time for which changes of a workload are collected before its PodGroups are computed."""
    concurrent_writes: int = Field(default=16, ge=1)
    """Maximum number of concurrent writes, over all workloads."""
    hyper_node_levels: tuple[tuple[str, ...], ...] = TOPOGRAPH_LEVELS
    """Labels of nodes by which HyperNodes are made: one list for each level, the closest level
    first; in a list, the first label that a node has counts. Without levels, none are made."""
    leader_election: LeaderElection = LeaderElection()
