"""Live pods as the `pods` of a scenario's job.

Used by `cluster`; pure. A scenario's pod has one container, so the requests of all containers are
added up: the scheduler reads no more of them than the sum.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Final

import msgspec

from bindery.api import disruption, preemptibility, quantity
from bindery.api.disruption import Asks
from bindery.api.names import (
    CHARGED_GROUP_ANNOTATION,
    CHARGED_QUEUE_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    GPU_RESOURCE,
    LAST_CHECKPOINT_ANNOTATION,
    NODE_POOL_LABEL,
    PREEMPTIBLE_ANNOTATION,
    ROLE_LABEL,
    SCHEDULER_NAME,
)
from bindery.api.times import seconds
from bindery.kube.objects.declaredfeatures import required_features
from bindery.kube.objects.membership import Claims
from bindery.kube.objects.podspec import Container
from bindery.kube.objects.podtemplates import pod_spec
from bindery.kube.objects.watched import Meta, Pod, PodGroup, PodTemplate
from bindery.scenario.capture.charges import OwnerCharges
from bindery.scenario.capture.claims import claim_names
from bindery.scenario.capture.hami import pod_annotations
from bindery.scenario.capture.nodes import Entry, amount_text
from bindery.scenario.capture.rules import labels_of, ports_of, references_of, rules_of
from bindery.scenario.capture.shares import Indexes, share_keys
from bindery.scenario.capture.topology import exclusive_annotations, pod_labels
from bindery.scenario.capture.volumes import disks_of, volume_claims
from bindery.scenario.states import PodState
from bindery.scheduler.model.images import normalized
from bindery.scheduler.model.label_references import LabelReferences

_STUCK_AFTER_S: Final = 120.0
"""A pod that has been going for longer is not counted on; KAI-Scheduler's threshold."""


@dataclass(frozen=True)
class Around:
    """What the rest of a snapshot decides about the entries of pods."""

    devices: Indexes
    """Which device of its node each GPU group stands on in the scenario."""
    references: LabelReferences
    """The labels to which rules of pods refer."""
    images: Collection[str] = ()
    """The images that pods of this scheduler use and nodes have."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """PriorityClass -> its value."""
    zones: Mapping[str, list[int]] = field(default_factory=dict)
    """Pod UID -> NUMA zones."""


def capture_pods(
    pods: Sequence[Pod], owner: PodGroup | Pod, queue: str, now: datetime, around: Around
) -> list[Entry]:
    """Return the entries of `pods`, which are the job of `owner`; equal neighbours together.

    `queue`: the queue of the job.
    """
    charges = OwnerCharges(owner, around.priorities)
    claims = Claims([owner] if isinstance(owner, PodGroup) else ())
    entries = [
        {
            **_entry(pod, now, around.references, around.images),
            **_written({"numa": around.zones.get(pod.metadata.uid)}),
            **_written({"subGroup": claims.of(pod).sub_group}),
            **_written({"chargedQueue": _charged_elsewhere(pod, owner, queue)}),
            **charges.of(pod, claims.of(pod).sub_group),
            **_written(share_keys(pod, around.devices)),
        }
        for pod in pods
    ]
    captured = []
    for entry, equal in groupby(entries):
        count = len(list(equal))
        captured.append({"count": count, **entry} if count > 1 else entry)
    return captured


def capture_template(template: PodTemplate, now: datetime) -> Entry:
    """Return the entry of the pods that `template` describes, which is readable."""
    meta = Meta(labels=template.metadata.labels, annotations=template.metadata.annotations)
    pod = Pod(metadata=meta, spec=pod_spec(template))
    references = references_of([pod])
    return {**_entry(pod, now, references, ()), **_written(share_keys(pod, {}))}


def state_of(pod: Pod, now: datetime) -> PodState | None:
    """Return the state of `pod`; None for one that is going and never had a node."""
    if pod.status.phase in (PodState.SUCCEEDED, PodState.FAILED):
        return PodState(pod.status.phase)
    deleted = pod.metadata.deletion_timestamp
    if not pod.spec.node_name:
        if deleted is not None:
            return None
        return PodState.GATED if pod.spec.scheduling_gates else PodState.PENDING
    if deleted is None:
        return PodState.RUNNING if pod.status.phase == "Running" else PodState.BOUND
    going_s = (now - datetime.fromisoformat(deleted)).total_seconds()
    return PodState.STUCK_IN_RELEASING if going_s > _STUCK_AFTER_S else PodState.RELEASING


def _charged_elsewhere(pod: Pod, owner: PodGroup | Pod, queue: str) -> str:
    """Return the queue that `pod` is charged to; empty for `queue`, that of its job."""
    annotations = pod.metadata.annotations
    recorded = annotations.get(CHARGED_QUEUE_ANNOTATION, "") if pod.spec.node_name else ""
    # A PodGroup whose queue was changed by somebody who may takes its own pods along.
    is_assigned = isinstance(owner, PodGroup) and bool(owner.status.queue)
    if is_assigned and annotations.get(CHARGED_GROUP_ANNOTATION) == owner.metadata.uid:
        return ""
    return recorded if recorded != queue else ""


def _entry(pod: Pod, now: datetime, references: LabelReferences, images: Collection[str]) -> Entry:
    local = [volume.name for volume in pod.spec.volumes or () if volume.has_local_data]
    asked = disruption.asks(pod.metadata.annotations, local)
    started = seconds(pod.status.start_time)
    if now.timestamp() >= disruption.asks_until(pod.metadata.annotations, started):
        asked &= ~Asks.BY_ANNOTATION
    spec = pod.spec
    node_affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    rules = rules_of(pod)
    pool = pod.metadata.labels.get(NODE_POOL_LABEL)
    state = state_of(pod, now) or PodState.PENDING
    of_pod = (spec.resources.requests if spec.resources else None) or {}
    entry: Entry = {
        **_request(spec.containers, spec.overhead, of_pod),
        "images": _images(spec.containers, images),
        "initContainers": [
            {
                **_request([container], spec.overhead, dict.fromkeys(of_pod, "0")),
                "restartPolicy": container.restart_policy or "",
                **_written({"hostPorts": ports_of([container])}),
                **_written({"images": _images([container], images)}),
            }
            for container in spec.init_containers or ()
        ],
        "qos": "Guaranteed" if _is_guaranteed(pod) else "",
        "labels": labels_of(pod, references)
        | pod_labels(pod)
        | ({NODE_POOL_LABEL: pool} if pool else {}),
        "annotations": pod_annotations(pod)
        | exclusive_annotations(pod)
        | _about_evictions(pod, asked),
        "state": "" if state is PodState.PENDING else state.value,
        "node": spec.node_name,
        **_of_another_scheduler(pod),
        "nodeSelector": spec.node_selector,
        **rules,
        "affinity": _plain({"nodeAffinity": node_affinity}) | rules.get("affinity", {}),
        "hostPorts": ports_of(spec.containers),
        "requiredFeatures": list(required_features(spec)),
        "tolerations": [_plain(toleration) for toleration in spec.tolerations or ()],
        "claims": claim_names(pod),
        "volumes": [*volume_claims(pod), *disks_of(pod)],
        "localData": Asks.LOCAL_DATA in asked,
    }
    says = preemptibility.said(pod.metadata.annotations.get(PREEMPTIBLE_ANNOTATION, ""))
    entry |= {
        "role": pod.metadata.labels.get(ROLE_LABEL),
        "preemptionPolicy": "Never" if spec.preemption_policy == "Never" else None,
    }
    written = _written(entry)
    return written if says is None else {**written, "preemptible": says}


def _is_guaranteed(pod: Pod) -> bool:
    """Return whether limits are requests, of CPU and memory: of the pod, else of all containers."""
    containers = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    by_container = [each.resources for each in containers]
    return all(
        (limits := (each.limits if each else None) or {}).get(name)
        and ((each and each.requests) or limits).get(name) == limits[name]
        for each in ([pod.spec.resources] if pod.spec.resources else by_container)
        for name in ("cpu", "memory")
    )


def _about_evictions(pod: Pod, asked: Asks) -> dict[str, str]:
    """Return the annotations of `pod` about its eviction."""
    said = pod.metadata.annotations
    kept = {key: said[key] for key in (LAST_CHECKPOINT_ANNOTATION,) if key in said}
    return kept | ({DO_NOT_DISRUPT_ANNOTATION: "true"} if Asks.BY_ANNOTATION in asked else {})


def _of_another_scheduler(pod: Pod) -> Entry:
    if pod.spec.scheduler_name == SCHEDULER_NAME:
        return {}
    nominated = "" if pod.spec.node_name else pod.status.nominated_node_name
    name = pod.spec.scheduler_name or "default-scheduler"
    return {"schedulerName": name, "nominatedNode": nominated}


def _written(entry: Entry) -> Entry:
    return {key: value for key, value in entry.items() if value}


def _images(containers: Iterable[Container], known: Collection[str]) -> list[str]:
    """Return the images of `containers`, if a node has one of them."""
    images = [container.image for container in containers]
    return images if any(normalized(image) in known for image in images) else []


def _request(
    containers: Iterable[Container], overhead: dict[str, str] | None, of_pod: Mapping[str, str]
) -> Entry:
    """Return what `containers` ask for together, with the pod's overhead.

    `of_pod`: the requests of the pod itself, which replace those of its containers (KEP-2837).
    """
    amounts: dict[str, int] = {}
    asked = [c.resources.requests or c.resources.limits or {} for c in containers if c.resources]
    by_container = ({k: v for k, v in each.items() if k not in of_pod} for each in asked)
    for requests in (*by_container, of_pod, overhead or {}):
        for resource, text in requests.items():
            amounts[resource] = amounts.get(resource, 0) + quantity.parse(text, resource)
    entry: Entry = {}
    if gpus := amounts.pop(GPU_RESOURCE, 0):
        entry["gpus"] = gpus // quantity.scale(GPU_RESOURCE)
    for resource in ("cpu", "memory"):
        if amount := amounts.pop(resource, 0):
            entry[resource] = amount_text(amount, resource)
    others = {name: amount_text(amount, name) for name, amount in amounts.items() if amount}
    return {**entry, "resources": others} if others else entry


def _plain(item: object) -> Entry:
    """Return `item` as YAML writes it, without what is empty."""
    pruned = _pruned(msgspec.to_builtins(item))
    return pruned if isinstance(pruned, dict) else {}


def _pruned(item: object) -> object:
    if isinstance(item, dict):
        return {k: _pruned(v) for k, v in item.items() if v not in (None, "", [], {})}
    return [_pruned(part) for part in item] if isinstance(item, list) else item
