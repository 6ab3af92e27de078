"""What a person can do about a job that waits, by the scheduler's reason."""

from collections.abc import Mapping
from typing import Final

_BY_REASON: Final[Mapping[str, str]] = {
    "QueueDoesNotExist": "Create the queue, or name another in spec.queue (bindery queues).",
    "QueueClosed": "Open the queue (spec.state: Open), or name another in spec.queue.",
    "QueueInvalid": "Mend the Queue object that the message names.",
    "OverLimit": "Wait until others in the queue finish, raise the limit, or use another queue.",
    "NonPreemptibleOverQuota": "Let it be preemptible (a priority below 100, or spec.preemptibility"
    "), raise the quota, or use another queue.",
    "NotEnoughPods": "Create the missing pods, or lower spec.minMember.",
    "BelowMinimum": "See why its other pods have ended (kubectl get pods); they count again when "
    "their controller has made them anew. Or lower spec.minMember.",
    "SchedulingGated": "Remove the scheduling gates of the pods.",
    "PodGroupDoesNotExist": "Create the PodGroup that the pods' annotation names.",
    "PriorityClassDoesNotExist": "Create the PriorityClass, or name another in the PodGroup.",
    "Invalid": "Mend the PodGroup's spec.",
    "NotSupported": "Remove from the pod what is not supported yet.",
    "CommitUnderWay": "Wait: its BindRequest is being carried out (bindery get requests).",
    "CommitFailed": "Wait: it is tried again soon.",
    "NotTriedYet": "Wait: the scheduler needs several cycles to try every job that waits.",
    "WaitsForRelease": "Wait: it is placed when the pods that are being deleted are gone.",
    "VolumesUnknown": "Wait: the scheduler has not read the pod's volumes yet.",
    "VolumesNotReady": "Create or mend the PersistentVolumeClaim or StorageClass that the message "
    "names (kubectl describe pvc).",
    "ResourceClaimNotReady": "Create or mend the ResourceClaim that the message names "
    "(kubectl describe resourceclaim).",
    "InvalidGpuShare": "Correct the pod's annotations about parts of GPUs.",
    "InvalidDeviceRequest": "Correct what the pod asks of HAMi's devices.",
    "InternalError": "Report this as a defect of Bindery; the scheduler's log has more.",
    "Unschedulable": "Free or add nodes, or let the pods ask for less or for other nodes; "
    "a lower spec.minMember lets a part start.",
}

_OF_SINGLE_PODS: Final[Mapping[str, str]] = {
    "QueueDoesNotExist": "Create the queue, or name another in the pod's label "
    "scheduling.bindery.dev/queue (bindery queues).",
    "QueueClosed": "Open the queue (spec.state: Open), or name another in the pod's label "
    "scheduling.bindery.dev/queue.",
    "NonPreemptibleOverQuota": "Let it be preemptible (a priority below 100, or the annotation "
    'scheduling.bindery.dev/preemptible: "true"), raise the quota, or use another queue.',
    "PriorityClassDoesNotExist": "Create the PriorityClass, or name another in the pod.",
    "Unschedulable": "Free or add nodes, or let the pod ask for less or for other nodes.",
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
