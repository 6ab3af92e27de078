"""What a person can do about a gang that waits, by the scheduler's reason."""

from collections.abc import Mapping
from typing import Final

ADVICE: Final[Mapping[str, str]] = {
    "QueueDoesNotExist": "Create the queue, or name another in spec.queue (bindery queues).",
    "QueueClosed": "Open the queue (spec.state: Open), or name another in spec.queue.",
    "QueueInvalid": "Mend the Queue object that the message names.",
    "OverLimit": "Wait until others in the queue finish, raise the limit, or use another queue.",
    "NonPreemptibleOverQuota": "Let it be preemptible (a priority below 100, or spec.preemptibility"
    "), raise the quota, or use another queue.",
    "NotEnoughPods": "Create the missing pods, or lower spec.minMember.",
    "SchedulingGated": "Remove the scheduling gates of the pods.",
    "PodGroupDoesNotExist": "Create the PodGroup that the pods' annotation names.",
    "PriorityClassDoesNotExist": "Create the PriorityClass, or name another in the PodGroup.",
    "Invalid": "Mend the PodGroup's spec.",
    "NotSupported": "Remove from the pod what is not supported yet.",
    "CommitUnderWay": "Wait: its BindRequest is being carried out (bindery get requests).",
    "NotTriedYet": "Wait: the scheduler needs several cycles to try every job that waits.",
    "WaitsForRelease": "Wait: it is placed when the pods that are being deleted are gone.",
    "Unschedulable": "Free or add nodes, or let the pods ask for less or for other nodes; "
    "a lower spec.minMember lets a part start.",
}
