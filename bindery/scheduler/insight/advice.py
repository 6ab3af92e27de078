"""What a person can do about a job that waits, by the scheduler's reason."""

from collections.abc import Mapping
from typing import Final

from bindery.scheduler.model.reasons import JobReason as Reason

_BY_REASON: Final[Mapping[str, str]] = {
    Reason.QUEUE_DOES_NOT_EXIST: (
        "Create the queue, or name another in spec.queue (bindery queues)."
    ),
    Reason.QUEUE_CLOSED: "Open the queue (spec.state: Open), or name another in spec.queue.",
    Reason.QUEUE_INVALID: "Mend the Queue object that the message names.",
    Reason.OVER_LIMIT: (
        "Wait until others in the queue finish, raise the limit, or use another queue."
    ),
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: (
        "Let it be preemptible (a priority below 100, or spec.preemptibility"
        "), raise the quota, or use another queue."
    ),
    Reason.NOT_ENOUGH_PODS: "Create the missing pods, or lower spec.minMember.",
    Reason.BELOW_MINIMUM: (
        "See why its other pods have ended (kubectl get pods); they count again when "
        "their controller has created them again. Or lower spec.minMember."
    ),
    Reason.GATED: "Remove the scheduling gates of the pods.",
    Reason.POD_GROUP_DOES_NOT_EXIST: "Create the PodGroup that the pods' annotation names.",
    Reason.PRIORITY_CLASS_DOES_NOT_EXIST: (
        "Create the PriorityClass, or name another in the PodGroup."
    ),
    Reason.INVALID: "Mend the PodGroup's spec.",
    Reason.NOT_SUPPORTED: "Remove from the pod what is not supported yet.",
    Reason.COMMIT_UNDER_WAY: "Wait: its BindRequest is being carried out (bindery get requests).",
    Reason.COMMIT_FAILED: "Wait: it is tried again soon.",
    Reason.NOT_TRIED_YET: "Wait: the scheduler needs several cycles to try every job that waits.",
    Reason.WAITS_FOR_RELEASE: "Wait: it is placed when the pods that are being deleted are gone.",
    Reason.VOLUMES_UNKNOWN: "Wait: the scheduler has not read the pod's volumes yet.",
    Reason.VOLUMES_NOT_READY: (
        "Create or mend the PersistentVolumeClaim or StorageClass that the message "
        "names (kubectl describe pvc)."
    ),
    Reason.RESOURCE_CLAIM_NOT_READY: (
        "Create or mend the ResourceClaim that the message names (kubectl describe resourceclaim)."
    ),
    Reason.INVALID_GPU_SHARE: "Correct the pod's annotations about parts of GPUs.",
    Reason.INVALID_DEVICE_REQUEST: "Correct what the pod asks of HAMi's devices.",
    Reason.INTERNAL_ERROR: "Report this as a defect of Bindery; the scheduler's log has more.",
    Reason.UNSCHEDULABLE: (
        "Free or add nodes, or let the pods ask for less or for other nodes; "
        "a lower spec.minMember lets a part start."
    ),
}

_OF_SINGLE_PODS: Final[Mapping[str, str]] = {
    Reason.QUEUE_DOES_NOT_EXIST: (
        "Create the queue, or name another in the pod's label "
        "scheduling.bindery.dev/queue (bindery queues)."
    ),
    Reason.QUEUE_CLOSED: (
        "Open the queue (spec.state: Open), or name another in the pod's label "
        "scheduling.bindery.dev/queue."
    ),
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: (
        "Let it be preemptible (a priority below 100, or the annotation "
        'scheduling.bindery.dev/preemptible: "true"), raise the quota, or use another queue.'
    ),
    Reason.PRIORITY_CLASS_DOES_NOT_EXIST: "Create the PriorityClass, or name another in the pod.",
    Reason.UNSCHEDULABLE: "Free or add nodes, or let the pod ask for less or for other nodes.",
}
"""Where the advice to a pod without a PodGroup is another."""

_NOTHING_TO_LOWER: Final = "Free or add nodes, or let the pods ask for less or for other nodes."

_BUDGET: Final = (
    "Wait until the disruption budget allows an eviction (kubectl get pdb), or let it allow more."
)


def advice(reason: str, *, is_group: bool, min_member: int, budget_blocks: bool) -> str:
    """Return what helps a job that waits for `reason`; empty if nobody knows.

    `is_group`: whether it has a PodGroup; `budget_blocks`: whether others would make room for it
    but for a disruption budget.
    """
    text = _BY_REASON.get(reason, "")
    if not is_group:
        text = _OF_SINGLE_PODS.get(reason, text)
    elif reason == "Unschedulable" and min_member <= 1:
        text = _NOTHING_TO_LOWER
    return f"{_BUDGET} {text}".strip() if budget_blocks else text
