"""Well-known names: API group, labels, annotations, finalizers, conditions, entry points."""

import re
from typing import Final

GROUP: Final = "scheduling.bindery.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

SCHEDULER_NAME: Final = "bindery"
"""The default `spec.schedulerName` of the pods that Bindery plans."""
SCHEDULER_LEASE: Final = "bindery-scheduler"
"""The Lease of the scheduler of the default node pool."""
BINDER_LEASE: Final = "bindery-binder"
GROUPER_LEASE: Final = "bindery-grouper"


def scheduler_lease(pool: str) -> str:
    """Return the name of the Lease of the scheduler of `pool`; "" is the default pool."""
    return f"{SCHEDULER_LEASE}-{pool}" if pool else SCHEDULER_LEASE


# Labels
QUEUE_LABEL: Final = f"{GROUP}/queue"
"""On a pod without a PodGroup: the queue that it is counted in. On a namespace: the queue of its
pods and PodGroups that name none."""
ENABLED_LABEL: Final = f"{GROUP}/enabled"
"""On a namespace: "true" lets the webhook give its pods to Bindery.
On a pod: "false" excepts it."""
NODE_POOL_LABEL: Final = f"{GROUP}/node-pool"
"""On nodes, PodGroups, pods and BindRequests: the pool, and so the scheduler, they belong to."""
POD_NAME_LABEL: Final = f"{GROUP}/pod-name"
"""On a BindRequest with a single pod: that pod's name."""
SELECTED_NODE_LABEL: Final = f"{GROUP}/selected-node"
"""On a BindRequest with a single pod: the node that was chosen."""
STATEMENT_LABEL: Final = f"{GROUP}/statement"
"""On every part of a BindRequest that was split: the id of the Statement they come from."""
FENCE_LABEL: Final = f"{GROUP}/fence"
"""On a BindRequest without a Statement, which announces the fencing token of a new leader."""
SHARES_GPU_LABEL: Final = f"{GROUP}/shares-gpu"
"""On a pod with a share of a GPU, of however many devices: labels of groups cannot be watched by
prefix. The binder writes it."""

# Annotations
POD_GROUP_ANNOTATION: Final = f"{GROUP}/pod-group"
"""On a pod: the name of its PodGroup, in the pod's namespace."""
HOLLOW_RUN_SECONDS_ANNOTATION: Final = "hollow.bindery.dev/run-seconds"
"""On a pod of a hollow node: how long its containers run before they succeed."""
SOURCES_ANNOTATION: Final = f"{GROUP}/sources"
"""On a PodGroup that the grouper wrote: JSON, field of the spec -> "Kind/name" of the object that
the value came from."""
MADE_BY_LABEL: Final = f"{GROUP}/made-by"
"""On a PodGroup: which component wrote it."""
MADE_BY_GROUPER: Final = "grouper"
SUB_GROUP_LABEL: Final = f"{GROUP}/sub-group"
"""On a pod: the sub-group of its PodGroup that it belongs to."""
MARK_ANNOTATIONS: Final = (
    "pod-group-name",  # KAI-Scheduler
    "scheduling.k8s.io/group-name",  # Volcano
    "scheduling.volcano.sh/group-name",
)
MARK_LABELS: Final = ("kueue.x-k8s.io/pod-group-name",)
"""By these keys others mark the pods of a gang: the grouper writes a PodGroup for each value."""
ROLE_LABEL: Final = f"{GROUP}/role"
"""On a pod: the role that it plays in its PodGroup."""
PREEMPTIBLE_ANNOTATION: Final = f"{GROUP}/preemptible"
"""On a pod: "true" or "false"; overrides what its PodGroup says."""
EXPECTED_RUNTIME_ANNOTATION: Final = f"{GROUP}/expected-runtime-seconds"
"""On a pod: how long it expects to run, in seconds; a PodGroup has a field for it."""

# Labels or annotations that users write on a pod, its template, or an owner of it. The grouper
# reads them; the nearest to the pod wins.
MIN_MEMBER_KEY: Final = f"{GROUP}/min-member"
"""How many pods must run together."""
QUEUE_KEY: Final = QUEUE_LABEL
"""The queue of the gang."""
QUEUE_KEYS: Final = (
    QUEUE_KEY,
    "kai.scheduler/queue",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/queue-name",
    "kueue.x-k8s.io/queue-name",
)
"""The same, and the keys of other schedulers that mean it; the first counts."""
USER_KEY: Final = f"{GROUP}/user"
"""The user of the gang, for fairness between the users of a queue."""
PRIORITY_CLASS_KEY: Final = f"{GROUP}/priority-class"
"""The PriorityClass of the gang."""
TOPOLOGY_KEY: Final = f"{GROUP}/topology"
"""The name of a Topology."""
TOPOLOGY_REQUIRED_KEY: Final = f"{GROUP}/topology-required"
"""The level of which the pods must not leave a domain."""
TOPOLOGY_PREFERRED_KEY: Final = f"{GROUP}/topology-preferred"
"""The level that is tried first."""
SEGMENT_SIZE_KEY: Final = f"{GROUP}/segment-size"
"""How many consecutive pods share a domain."""
SEGMENT_REQUIRED_KEY: Final = f"{GROUP}/segment-required"
"""The level of which a segment must not leave a domain."""
SEGMENT_PREFERRED_KEY: Final = f"{GROUP}/segment-preferred"
"""The level that is tried first for a segment."""
RUN_TIME_LIMIT_KEY: Final = f"{GROUP}/run-time-limit-seconds"
"""How long the gang may run."""
PREEMPTION_DELAY_KEY: Final = f"{GROUP}/preemption-delay-seconds"
"""How long the gang waits before others may be evicted for it."""
STALENESS_GRACE_PERIOD_KEY: Final = f"{GROUP}/staleness-grace-period-seconds"
"""How long the gang may go on below its minimum; negative: for ever."""
STAGE_TIMEOUT_KEY: Final = f"{GROUP}/stage-timeout-seconds"
"""How long the room of later stages is kept."""
DISRUPTION_MODE_KEY: Final = f"{GROUP}/disruption-mode"
"""What is evicted together: Pod or Group."""
SKIP_GROUPER_KEY: Final = f"{GROUP}/skip-grouper"
"""The value "true" keeps the grouper off the pod, or off all pods below the owner."""
KAI_SKIP_KEY: Final = "kai.scheduler/skip-podgrouper"
"""The same of KAI-Scheduler. Operators that mark pods write it too, so a mark comes first."""

DO_NOT_DISRUPT_ANNOTATION: Final = f"{GROUP}/do-not-disrupt"
"""On a pod: "true" leaves it in place when others are moved."""
LAST_CHECKPOINT_ANNOTATION: Final = f"{GROUP}/last-checkpoint"
"""On a pod or a PodGroup: when its work was last saved, such as 2026-01-01T00:00:00Z."""
PROVISIONING_REQUEST_ANNOTATION: Final = f"{GROUP}/provisioning-request"
"""On a PodGroup, one of its pods or an owner of them: "true" asks for nodes while the gang lacks
room, "false" does not. The PodGroup comes first."""

NUMA_DETAIL_ANNOTATION: Final = f"{GROUP}/numa-detail"
"""On a NodeResourceTopology of the node agent: JSON, see `bindery.api.numadetail`."""
NUMA_ZONES_ANNOTATION: Final = f"{GROUP}/numa-zones"
"""On a bound pod: the NUMA zones that the scheduler expects it to have; JSON, see
`bindery.api.numaplacement`. The binder writes it when it binds the pod."""
CONFIGURATION_ANNOTATION: Final = f"{GROUP}/configuration"
"""On a Lease: JSON, the configuration that its holder uses: its hash, and what differs from the
defaults."""
ROWS_ANNOTATION: Final = f"{GROUP}/rows"
"""On the Lease of the grouper: JSON, the rows of users that it uses."""
KEPT_ROOM_ANNOTATION: Final = f"{GROUP}/kept-room"
"""On a bound pod of a gang with stages: where room was kept for later ones; JSON, see
`bindery.api.keptroom`. The binder writes it when it binds the pod."""
EXCLUSIVE_DOMAINS_ANNOTATION: Final = f"{GROUP}/exclusive-domains"
"""On a bound pod: the levels at which it holds the domain of its node for its gang alone; JSON, see
`bindery.api.exclusive`. The binder writes it when it binds the pod."""

SCALES_FOR_ANNOTATION: Final = f"{GROUP}/scales-for"
"""On a scaling pod: the UIDs of the waiting pods whose GPUs it requests."""
SCALED_BY_LABEL: Final = f"{GROUP}/scaled-by"
"""On a scaling pod: the scheduler that wrote it."""
SCALING_GATE: Final = f"{GROUP}/scaling-pod"
"""The scheduling gate of scaling pods. It is never removed."""

CHARGED_QUEUE_ANNOTATION: Final = f"{GROUP}/charged-queue"
"""On a bound pod: the queue that it counts in until it ends. The binder writes it when it binds the
pod."""
CHARGED_GROUP_ANNOTATION: Final = f"{GROUP}/charged-pod-group"
"""On a bound pod: the UID of the PodGroup that it was bound with. The binder writes it when it
binds the pod."""
CHARGED_PREEMPTIBILITY_ANNOTATION: Final = f"{GROUP}/charged-preemptibility"
"""On a bound pod: whether it counts as `Preemptible` or `NonPreemptible`. The binder writes it when
it binds the pod, and the scheduler when a cycle has granted a change."""
SPREAD_DEVICES_ANNOTATION: Final = f"{GROUP}/spread-devices"
"""On a pod: "true" keeps it off the GPUs of which another pod of its job has a part."""
GPU_INDEXES_ANNOTATION: Final = f"{GROUP}/gpu-indexes"
"""On a running pod: the GPUs of its node that it was seen to hold, such as 0,3. Written by whoever
sees it; a scheduler without it knows how many are held, and not which."""

# Node labels and resources
GPU_RESOURCE: Final = "nvidia.com/gpu"
MIG_PREFIX: Final = "nvidia.com/mig-"
"""What the resource names of MIG instances begin with."""
GPU_MODEL_LABEL: Final = "nvidia.com/gpu.product"
GPU_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
"""MiB of one device."""
HAMI_REGISTER_ANNOTATION: Final = "hami.io/node-nvidia-register"
"""On a node whose device plugin shares GPUs by HAMi's protocol: its devices."""
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""On every namespace: its name."""
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
RACK_LABEL: Final = "topology.bindery.dev/rack"

DEFAULT_QUEUE: Final = "default"
"""The queue of pods and PodGroups that name none. It need not exist: then it has no limits."""

# Entry point groups for third-party plugins
SCHEDULER_PLUGINS: Final = "bindery.scheduler_plugins"
BINDER_PLUGINS: Final = "bindery.binder_plugins"

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_MOST_NAME: Final = 253
LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""A value of a label that is not empty."""
LABEL_KEY: Final = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{LABEL_VALUE.pattern}")
"""A key of a label: a name, perhaps after a prefix."""


def name_problem(name: str) -> str:
    """Return why no PodGroup can have `name` (RFC 1123 subdomain); "" if one can."""
    if len(name) > _MOST_NAME:
        return f"a name has at most {_MOST_NAME} characters"
    if _NAME.fullmatch(name) is None:
        return "a name has lower case letters, digits, - and ., and no - or . at its ends"
    return ""
