"""The advice for a waiting job, by the scheduler's reason."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Final

from bindery.api import names
from bindery.kube.objects.queueaccess import AccessReason
from bindery.scheduler.model.reasons import ABOVE_LIMIT_ALONE
from bindery.scheduler.model.reasons import JobReason as Reason
from bindery.scheduler.model.starts import StartReason


class Changed(Enum):
    """The object in which a user changes a job."""

    POD_GROUP = "PodGroup"
    """A PodGroup that a user wrote."""
    WORKLOAD = "workload"
    """The workload of a PodGroup that the grouper wrote, and would write again."""
    POD = "pod"
    """A pod without a PodGroup."""


@dataclass(frozen=True, slots=True)
class _Fields:
    """How the fields of a job are called in the object in which a user changes it."""

    queue: str
    minimum: str
    preemptible: str
    run_time: str
    priority_class: str
    topology: str
    spec: str


_FIELDS: Final[Mapping[Changed, _Fields]] = {
    Changed.POD_GROUP: _Fields(
        queue="spec.queue",
        minimum="spec.minMember",
        preemptible="spec.preemptibility",
        run_time="spec.runTimeLimitSeconds",
        priority_class="the PodGroup",
        topology="spec.topology of the PodGroup",
        spec="the spec of the PodGroup",
    ),
    Changed.WORKLOAD: _Fields(
        queue=f"the label {names.QUEUE_KEY} of the workload",
        minimum=f"the annotation {names.MIN_MEMBER_KEY} of the workload",
        preemptible=f'the annotation {names.PREEMPTIBLE_ANNOTATION}: "true" of the workload',
        run_time=f"the annotation {names.RUN_TIME_LIMIT_KEY} of the workload",
        priority_class=f"the annotation {names.PRIORITY_CLASS_KEY} of the workload",
        topology=f"the annotations of the workload such as {names.TOPOLOGY_REQUIRED_KEY}",
        spec="the annotations of the workload",
    ),
    Changed.POD: _Fields(
        queue=f"the pod's label {names.QUEUE_KEY}",
        minimum="the minimum",
        preemptible=f'the annotation {names.PREEMPTIBLE_ANNOTATION}: "true"',
        run_time="the limit of its run time",
        priority_class="the pod",
        topology="its topology constraint",
        spec="the pod",
    ),
}


def changed_object(labels: Mapping[str, str], *, is_group: bool) -> Changed:
    """Return the object in which a user changes a job. `labels`: of its PodGroup, if `is_group`."""
    if not is_group:
        return Changed.POD
    is_made = labels.get(names.MADE_BY_LABEL) == names.MADE_BY_GROUPER
    return Changed.WORKLOAD if is_made else Changed.POD_GROUP


_DEAD_NODE: Final = (
    "Mend the node (kubectl describe node); its kubelet then goes on with its pods. If the machine "
    "is off for good, delete the node (kubectl delete node), or taint it with "
    "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, and Kubernetes removes its pods. "
    "A single pod goes with kubectl delete pod --force, but its containers may still run."
)

_BY_REASON: Final[Mapping[str, str]] = {
    Reason.QUEUE_DOES_NOT_EXIST: "Create the queue, or set another in {queue} (bindery queues).",
    Reason.QUEUE_CLOSED: "Open the queue (spec.state: Open), or set another in {queue}.",
    Reason.QUEUE_INVALID: "Correct the Queue object in the message.",
    Reason.OVER_LIMIT: (
        "Wait until other jobs of the queue finish, raise the limit, or use another queue."
    ),
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: (
        "Make it preemptible (a priority below 100, or {preemptible}), raise the quota, or use "
        "another queue."
    ),
    AccessReason.NAMESPACE_NOT_ALLOWED: (
        "Use another queue, or ask an administrator to add the namespace to the queue."
    ),
    AccessReason.PRIORITY_CLASS_NOT_ALLOWED: (
        "Use another PriorityClass or queue, or ask an administrator to allow it in the queue."
    ),
    AccessReason.NON_PREEMPTIBLE_NOT_ALLOWED: (
        "Make it preemptible (a priority below 100, or {preemptible}), use another queue, or ask "
        "an administrator to allow it in the queue."
    ),
    Reason.RUN_TIME_EXCEEDED: (
        "Delete the workload, for example the Job, and create it again; or raise {run_time} or the "
        "limit of the queue."
    ),
    Reason.NOT_ENOUGH_PODS: "Create the missing pods, or lower {minimum}.",
    Reason.BELOW_MINIMUM: (
        "Check why its other pods ended (kubectl get pods); their replacements count when "
        "the controller has created them. Or lower {minimum}."
    ),
    Reason.PODS_NOT_DELETED: _DEAD_NODE,
    StartReason.NODE_NOT_READY: _DEAD_NODE,
    StartReason.IMAGE_NOT_PULLED: (
        "Correct the image or its pull secret, or see why the node cannot pull it "
        "(kubectl describe pod)."
    ),
    StartReason.CONTAINER_NOT_STARTED: (
        "See the log of the container and its events (kubectl logs --previous, kubectl describe "
        "pod)."
    ),
    StartReason.BEING_PREPARED: "See the events of the pod (kubectl describe pod).",
    StartReason.NOT_ACCEPTED: "See whether the kubelet of the node works (kubectl describe node).",
    Reason.GATED: "Remove the scheduling gates of the pods.",
    Reason.WAITING_FOR_GROUP: (
        "Check that the grouper runs and can read the pod's controller. A pod with the annotation "
        'scheduling.bindery.dev/skip-grouper: "true" needs no PodGroup.'
    ),
    Reason.POD_GROUP_DOES_NOT_EXIST: "Create the PodGroup in the annotation of the pods.",
    Reason.PRIORITY_CLASS_DOES_NOT_EXIST: (
        "Create the PriorityClass, or set another in {priority_class}."
    ),
    Reason.INVALID: "Correct {spec}.",
    Reason.INVALID_REQUEST: (
        "Correct the value in the message, in the requests of the pod or its template."
    ),
    Reason.NOT_SUPPORTED: "Remove the unsupported fields from the pod, or configure the plugin.",
    Reason.TOO_MANY_DIFFERENT_PODS: (
        "Wait, or give the pods of the namespace equal requests, selectors and rules; pods that "
        "differ by intent can go into several namespaces."
    ),
    Reason.COMMIT_UNDER_WAY: "Wait: the binder is binding its pods (bindery get requests).",
    Reason.COMMIT_FAILED: "Wait: the scheduler tries again soon.",
    Reason.PLANNING_TOOK_TOO_LONG: (
        "Wait: the scheduler tries again at that time and plans for longer. Fewer sub-groups and "
        "rules about other pods help, or a higher attemptSeconds."
    ),
    Reason.NOT_TRIED_YET: "Wait: the scheduler needs several cycles to try all waiting jobs.",
    Reason.WAITS_FOR_RELEASE: "Wait: it is placed when the deleted pods are gone.",
    Reason.VOLUMES_UNKNOWN: "Wait: the scheduler has not read the pod's volumes yet.",
    Reason.TOPOLOGY: (
        "Correct {topology}, create the Topology or HyperNodes that it names, or label the nodes."
    ),
    Reason.EXCLUSIVE_DOMAIN_FORBIDDEN: (
        "Take exclusive out of {topology}, or ask an administrator to allow it in the queue "
        "(exclusiveDomains)."
    ),
    Reason.VOLUMES_NOT_READY: (
        "Create or correct the PersistentVolumeClaim or StorageClass in the message "
        "(kubectl describe pvc)."
    ),
    Reason.RESOURCE_CLAIM_NOT_READY: (
        "Create or correct the ResourceClaim in the message (kubectl describe resourceclaim)."
    ),
    Reason.INVALID_GPU_SHARE: "Correct the annotations of the pod for shared GPUs.",
    Reason.INVALID_DEVICE_REQUEST: "Correct the HAMi devices that the pod requests.",
    Reason.INTERNAL_ERROR: "Report this as a bug of Bindery; the log of the scheduler has details.",
    Reason.FITS_NO_NODE: (
        "To wait for the queue does not help alone: no node would take its pods, even if it were "
        "empty. Let them request less or other nodes, or mend or add nodes."
    ),
    Reason.UNSCHEDULABLE: (
        "Free or add nodes, or let the pods request less or other nodes; "
        "if {minimum} is lower, a part can start."
    ),
}

_ABOVE_LIMIT_ALONE: Final = (
    "It does not help to wait: raise the limit, let the job request less, or use another queue."
)

_OF_SINGLE_POD: Final = "Free or add nodes, or let the pod request less or other nodes."

_NOTHING_TO_LOWER: Final = "Free or add nodes, or let the pods request less or other nodes."

_BUDGET: Final = (
    "Wait until the disruption budget allows an eviction (kubectl get pdb), or relax the budget."
)


_LABELS: Final = "labels"
_AFFINITY: Final = "pod affinity"
_ANTI_AFFINITY: Final = "pod anti-affinity"
_KINDS: Final = (
    ("do not match node selector", _LABELS),
    ("do not match node affinity", _LABELS),
    ("have no domain for its pod affinity", _AFFINITY),
    ("did not match pod affinity rules", _AFFINITY),
    ("did not match pod anti-affinity rules", _ANTI_AFFINITY),
    ("had untolerated taint", "taint"),
    ("are not ready", "state"),
    ("are cordoned", "state"),
    ("have no ", "size"),
    ("have less ", "size"),
)
"""The beginning of a reason against nodes, and its kind; the first that fits."""

_BY_KINDS: Final[Mapping[frozenset[str], str]] = {
    frozenset({_LABELS}): (
        "No node has the labels that the pods require: correct their node selector or node "
        "affinity, or label nodes."
    ),
    frozenset({_AFFINITY}): (
        "The pod affinity selects no pod on any node that may take them: start the pods that it "
        "selects first, or relax the affinity."
    ),
    frozenset({_ANTI_AFFINITY}): (
        "The pod anti-affinity leaves no node: add nodes, remove pods that it excludes, or relax "
        "the anti-affinity."
    ),
    frozenset({_AFFINITY, _ANTI_AFFINITY}): (
        "The pod affinity and the pod anti-affinity together leave no node: relax one of them."
    ),
    frozenset({"taint"}): "Add a toleration to the pods, or remove the taint from nodes.",
    frozenset({"state"}): "Make nodes ready, or uncordon them (kubectl get nodes).",
    frozenset({"size"}): (
        "No node is large enough, even if it is empty: let the pods request less, or add larger "
        "nodes."
    ),
}
"""The advice if all nodes are closed for reasons of these kinds."""


def node_advice(against: Collection[str]) -> str:
    """Return the advice if `against` are the reasons of all nodes; empty if none is better."""
    kinds = {
        next((kind for start, kind in _KINDS if reason.startswith(start)), "") for reason in against
    }
    return _BY_KINDS.get(frozenset(kinds), "")


def advice(
    reason: str, message: str = "", *, where: Changed, min_member: int, budget_blocks: bool
) -> str:
    """Return the advice for a job that waits for `reason`; empty if there is none.

    `message`: of the scheduler, with the reason. `where`: the object in which a user changes it;
    `budget_blocks`: whether only a disruption budget prevents evictions for it.
    """
    text = _BY_REASON.get(reason, "")
    if reason == Reason.OVER_LIMIT and ABOVE_LIMIT_ALONE in message:
        return _ABOVE_LIMIT_ALONE
    if reason == Reason.UNSCHEDULABLE and where is Changed.POD:
        text = _OF_SINGLE_POD
    elif reason == Reason.UNSCHEDULABLE and (min_member <= 1 or message.startswith("0 of ")):
        text = _NOTHING_TO_LOWER
    text = text.format(**asdict(_FIELDS[where]))
    return f"{_BUDGET} {text}".strip() if budget_blocks else text
