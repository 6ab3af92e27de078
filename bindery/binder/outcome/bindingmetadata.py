"""The labels and annotations that a pod gets in the write that binds it.

The API server copies the annotations of a Binding onto the pod when it sets the node, so a record
needs no further write and no pod is bound without its record. Since Kubernetes 1.35 it also copies
labels (feature gate PodTopologyLabelsAdmission); older servers ignore them. Assembled by
`plugins.chain` from the request and the plugins, sent by `api_server.api_adapter`. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bindery.api import exclusive, keptroom, preemptibility
from bindery.api.bindrequest import ReceivedResourceType
from bindery.api.gpushare import RECEIVED_TYPE_ANNOTATION
from bindery.api.names import (
    CHARGED_GROUP_ANNOTATION,
    CHARGED_PREEMPTIBILITY_ANNOTATION,
    CHARGED_QUEUE_ANNOTATION,
    EXCLUSIVE_DOMAINS_ANNOTATION,
    KEPT_ROOM_ANNOTATION,
    NODE_POOL_LABEL,
)
from bindery.kube.objects.bindrequests import CommittedStatement, PodBinding


@dataclass(frozen=True)
class BindingMetadata:
    """Labels and annotations written together with the pod's node."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


NOTHING: Final = BindingMetadata()


def recorded(statement: CommittedStatement, binding: PodBinding) -> BindingMetadata:
    """Return the binder's own record for the pod of `binding`, before plugins add to it."""
    annotations: dict[str, str] = {}
    received = binding.received_resource_type
    if binding.received_gpu is not None or received != ReceivedResourceType.REGULAR:
        annotations[RECEIVED_TYPE_ANNOTATION] = received
    if statement.spec.queue:
        charged_as = preemptibility.word(not binding.non_preemptible)
        annotations[CHARGED_QUEUE_ANNOTATION] = statement.spec.queue
        annotations[CHARGED_PREEMPTIBILITY_ANNOTATION] = charged_as
        if statement.spec.pod_group is not None:
            annotations[CHARGED_GROUP_ANNOTATION] = statement.spec.pod_group.uid
    room = keptroom.from_data(binding.plugin_data.get(keptroom.PLUGIN_DATA))
    if room is not None:
        annotations[KEPT_ROOM_ANNOTATION] = room.record(binding.pod_uid)
    held = exclusive.from_data(binding.plugin_data.get(exclusive.PLUGIN_DATA))
    if held is not None:
        annotations[EXCLUSIVE_DOMAINS_ANNOTATION] = held.record(binding.pod_uid)
    pool = statement.metadata.labels.get(NODE_POOL_LABEL)
    labels = {NODE_POOL_LABEL: pool} if pool else {}
    return BindingMetadata(labels, annotations) if labels or annotations else NOTHING
