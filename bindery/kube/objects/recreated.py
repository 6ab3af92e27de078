"""The pod that a controller creates in place of an evicted pod.

Used by all clusters in memory. Pure.
"""

from typing import Final

import msgspec

from bindery.api.podkeys import DEVICE_RECORDS, QUEUE_RECORDS, SHARE_RECORDS
from bindery.api.times import timestamp
from bindery.kube.objects.watched import Pod, PodStatus

_RECORDS: Final = (QUEUE_RECORDS, SHARE_RECORDS, DEVICE_RECORDS)
_ANNOTATIONS: Final = frozenset().union(*(records.annotations for records in _RECORDS))
_LABELS: Final = frozenset().union(*(records.labels for records in _RECORDS))
_LABEL_PREFIX: Final = SHARE_RECORDS.label_prefix


def recreated(pod: Pod, uid: str, at_s: float) -> Pod:
    """Return the pod `uid` that waits in place of `pod`, created `at_s` seconds after the epoch.

    The new pod has the claims of `pod`.
    """
    labels = {
        key: value
        for key, value in pod.metadata.labels.items()
        if key not in _LABELS and not key.startswith(_LABEL_PREFIX)
    }
    annotations = {
        key: value for key, value in pod.metadata.annotations.items() if key not in _ANNOTATIONS
    }
    meta = msgspec.structs.replace(
        pod.metadata,
        uid=uid,
        creation_timestamp=timestamp(at_s),
        deletion_timestamp=None,
        labels=labels,
        annotations=annotations,
    )
    spec = msgspec.structs.replace(pod.spec, node_name="")
    claims = pod.status.resource_claim_statuses
    status = PodStatus(phase="Pending", resource_claim_statuses=claims)
    return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=status)
