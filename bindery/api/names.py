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
"""Label of a pod without a PodGroup: its queue. Label of a namespace: the default queue of its pods
and PodGroups."""
ENABLED_LABEL: Final = f"{GROUP}/enabled"
"""Label of a namespace: with "true", the webhook sets Bindery as scheduler of its pods. Label of a
pod: "false" is an exception."""
NODE_POOL_LABEL: Final = f"{GROUP}/node-pool"
"""Label of nodes, PodGroups, pods and BindRequests: the node pool of one scheduler."""
POD_NAME_LABEL: Final = f"{GROUP}/pod-name"
"""Label of a BindRequest with a single pod: the pod's name."""
SELECTED_NODE_LABEL: Final = f"{GROUP}/selected-node"
"""Label of a BindRequest with a single pod: the chosen node."""
STATEMENT_LABEL: Final = f"{GROUP}/statement"
"""Label of every part of a BindRequest that was split: the id of its Statement."""
FENCE_LABEL: Final = f"{GROUP}/fence"
"""Label of a BindRequest without a Statement, which announces the fencing token of a new leader."""
SHARES_GPU_LABEL: Final = f"{GROUP}/shares-gpu"
"""Label of a pod with shares of GPUs, because labels of groups cannot be watched by prefix. The
binder writes it."""

# Annotations
POD_GROUP_ANNOTATION: Final = f"{GROUP}/pod-group"
"""On a pod: the name of its PodGroup, in the pod's namespace."""
HOLLOW_RUN_SECONDS_ANNOTATION: Final = "hollow.bindery.dev/run-seconds"
"""Annotation of a pod on a hollow node: seconds that its containers run before they succeed."""
SOURCES_ANNOTATION: Final = f"{GROUP}/sources"
"""Annotation of a PodGroup written by the grouper: JSON, field of the spec -> "Kind/name" of the
object with the value."""
MADE_BY_LABEL: Final = f"{GROUP}/made-by"
"""Label of a PodGroup: the component that wrote it."""
MADE_BY_GROUPER: Final = "grouper"
SUB_GROUP_LABEL: Final = f"{GROUP}/sub-group"
"""Label of a pod: its sub-group in its PodGroup."""
MARK_ANNOTATIONS: Final = (
    "pod-group-name",  # KAI-Scheduler
    "scheduling.k8s.io/group-name",  # Volcano
    "scheduling.volcano.sh/group-name",
)
MARK_LABELS: Final = ("kueue.x-k8s.io/pod-group-name",)
"""Labels of other projects that mark the pods of a gang by a common value."""
ROLE_LABEL: Final = f"{GROUP}/role"
"""Label of a pod: its role in its PodGroup."""
PREEMPTIBLE_ANNOTATION: Final = f"{GROUP}/preemptible"
"""Annotation of a pod: "true" or "false"; overrides its PodGroup."""
EXPECTED_RUNTIME_ANNOTATION: Final = f"{GROUP}/expected-runtime-seconds"
"""Annotation of a pod: expected run time in seconds; PodGroups have a field for it."""

# Labels or annotations that users write on a pod, its template, or an owner. The grouper reads
# them; the object nearest to the pod has priority.
MIN_MEMBER_KEY: Final = f"{GROUP}/min-member"
"""Number of pods that must run together."""
QUEUE_KEY: Final = QUEUE_LABEL
"""The queue of the gang."""
QUEUE_KEYS: Final = (
    QUEUE_KEY,
    "kai.scheduler/queue",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/queue-name",
    "kueue.x-k8s.io/queue-name",
)
"""The key of the queue, and the keys of other schedulers; the first that is set counts."""
USER_KEY: Final = f"{GROUP}/user"
"""The user of the gang, for fairness between the users of a queue."""
PRIORITY_CLASS_KEY: Final = f"{GROUP}/priority-class"
"""The PriorityClass of the gang."""
TOPOLOGY_KEY: Final = f"{GROUP}/topology"
"""The name of a Topology."""
TOPOLOGY_REQUIRED_KEY: Final = f"{GROUP}/topology-required"
"""The level at which all pods must be in one domain."""
TOPOLOGY_PREFERRED_KEY: Final = f"{GROUP}/topology-preferred"
"""The level that is tried first."""
SEGMENT_SIZE_KEY: Final = f"{GROUP}/segment-size"
"""Number of consecutive pods that share a domain."""
SEGMENT_REQUIRED_KEY: Final = f"{GROUP}/segment-required"
"""The level at which each segment must be in one domain."""
SEGMENT_PREFERRED_KEY: Final = f"{GROUP}/segment-preferred"
"""The level that is tried first for a segment."""
RUN_TIME_LIMIT_KEY: Final = f"{GROUP}/run-time-limit-seconds"
"""Maximum run time of the gang."""
PREEMPTION_DELAY_KEY: Final = f"{GROUP}/preemption-delay-seconds"
"""Time that the gang waits before other gangs may be evicted for it."""
STALENESS_GRACE_PERIOD_KEY: Final = f"{GROUP}/staleness-grace-period-seconds"
"""Time for which the gang may stay below its minimum; negative: no limit."""
STAGE_TIMEOUT_KEY: Final = f"{GROUP}/stage-timeout-seconds"
"""Time for which the room of later stages is kept."""
DISRUPTION_MODE_KEY: Final = f"{GROUP}/disruption-mode"
"""The unit of eviction: Pod or Group."""
SKIP_GROUPER_KEY: Final = f"{GROUP}/skip-grouper"
"""With the value "true", the grouper ignores the pod, or all pods below the owner."""
KAI_SKIP_KEY: Final = "kai.scheduler/skip-podgrouper"
"""The same key of KAI-Scheduler. Operators write it beside a mark, so a mark has priority."""

DO_NOT_DISRUPT_ANNOTATION: Final = f"{GROUP}/do-not-disrupt"
"""Annotation of a pod: with "true", the pod is not moved."""
LAST_CHECKPOINT_ANNOTATION: Final = f"{GROUP}/last-checkpoint"
"""Annotation of a pod or a PodGroup: time of the last checkpoint, such as 2026-01-01T00:00:00Z."""
GPUS_IDLE_SINCE_ANNOTATION: Final = f"{GROUP}/gpus-idle-since"
"""Annotation of a bound pod: since when none of its GPUs is used, such as 2026-01-01T00:00:00Z.
The agent beside the kubelet writes it, and removes it when a GPU is used again."""
PROVISIONING_REQUEST_ANNOTATION: Final = f"{GROUP}/provisioning-request"
"""Annotation of a PodGroup, one of its pods or an owner: with "true", nodes are requested while the
gang lacks room; "false" disables the request. The PodGroup has priority."""

NUMA_DETAIL_ANNOTATION: Final = f"{GROUP}/numa-detail"
"""On a NodeResourceTopology of the node agent: JSON, see `bindery.api.numadetail`."""
NUMA_ZONES_ANNOTATION: Final = f"{GROUP}/numa-zones"
"""Annotation of a bound pod: the NUMA zones that the scheduler expects for it; JSON, see
`bindery.api.numaplacement`. The binder writes it at the binding."""
CONFIGURATION_ANNOTATION: Final = f"{GROUP}/configuration"
"""Annotation of a Lease: JSON with the hash and the changes of its holder's configuration."""
ROWS_ANNOTATION: Final = f"{GROUP}/rows"
"""Annotation of the grouper's Lease: JSON with the users' rows that the grouper uses."""
KEPT_ROOM_ANNOTATION: Final = f"{GROUP}/kept-room"
"""Annotation of a bound pod of a gang with stages: the nodes with room for later stages; JSON, see
`bindery.api.keptroom`. The binder writes it at the binding."""
EXCLUSIVE_DOMAINS_ANNOTATION: Final = f"{GROUP}/exclusive-domains"
"""Annotation of a bound pod: the levels at which it holds its node's domain exclusively for its
gang; JSON, see `bindery.api.exclusive`. The binder writes it at the binding."""

SCALES_FOR_ANNOTATION: Final = f"{GROUP}/scales-for"
"""On a scaling pod: the UIDs of the waiting pods whose GPUs it requests."""
SCALED_BY_LABEL: Final = f"{GROUP}/scaled-by"
"""Label of a scaling pod: the scheduler that wrote it."""
SCALING_GATE: Final = f"{GROUP}/scaling-pod"
"""The scheduling gate of scaling pods. It is never removed."""

CHARGED_QUEUE_ANNOTATION: Final = f"{GROUP}/charged-queue"
"""Annotation of a bound pod: the queue that is charged, written by the binder at the binding."""
CHARGED_GROUP_ANNOTATION: Final = f"{GROUP}/charged-pod-group"
"""Annotation of a bound pod: the UID of its PodGroup, written by the binder at the binding."""
CHARGED_PREEMPTIBILITY_ANNOTATION: Final = f"{GROUP}/charged-preemptibility"
"""Annotation of a bound pod: `Preemptible` or `NonPreemptible`. The binder writes it at the
binding, and the scheduler after a cycle has granted a change."""
VOID_BINDINGS_ANNOTATION: Final = f"{GROUP}/bindings-void-before"
"""Annotation of a pod that was planned and given up: bindings that were sent before this time have
no effect. Written by the binder, or by the scheduler when no binder answers."""
SPREAD_DEVICES_ANNOTATION: Final = f"{GROUP}/spread-devices"
"""Annotation of a pod: with "true", the pods of its job share no GPU with each other."""
GPU_INDEXES_ANNOTATION: Final = f"{GROUP}/gpu-indexes"
"""Annotation of a running pod: the observed indexes of its GPUs on the node, such as 0,3. Written
by an observer; without it a scheduler knows only the number of GPUs."""

# Finalizers
ROLL_BACK_FINALIZER: Final = f"{GROUP}/roll-back"
"""Finalizer of a BindRequest for which the binder may write to other objects. The scheduler sets
it; the binder removes it when the request is being deleted and is rolled back."""

# Node labels and resources
GPU_RESOURCE: Final = "nvidia.com/gpu"
MIG_PREFIX: Final = "nvidia.com/mig-"
"""Prefix of the resource names of MIG instances."""
GPU_MODEL_LABEL: Final = "nvidia.com/gpu.product"
GPU_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
"""MiB of one device."""
HAMI_REGISTER_ANNOTATION: Final = "hami.io/node-nvidia-register"
"""Annotation of a node whose device plugin shares GPUs with HAMi's protocol: its devices."""
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""On every namespace: its name."""
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
RACK_LABEL: Final = "topology.bindery.dev/rack"

DEFAULT_QUEUE: Final = "default"
"""The queue of pods and PodGroups that name none; unlimited without a Queue object."""

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
    """Return why no PodGroup can be called `name` (RFC 1123 subdomain); "" if one can."""
    if len(name) > _MOST_NAME:
        return f"a name has at most {_MOST_NAME} characters"
    if _NAME.fullmatch(name) is None:
        return "a name has lower case letters, digits, - and ., and no - or . at its ends"
    return ""
