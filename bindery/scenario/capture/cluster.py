"""Write a snapshot of a live cluster as a scenario.

Called by `bindery snapshot`; pure. Invariant: `bindery scenario run` can read the result. The key
`needs` names what neither the format nor the scheduler can express yet.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Final

import msgspec

from bindery.api import preemptibility
from bindery.api.bindrequest import Phase
from bindery.api.gpushare import is_reservation
from bindery.api.names import (
    CHARGED_QUEUE_ANNOTATION,
    DEFAULT_QUEUE,
    NODE_POOL_LABEL,
    SCHEDULER_NAME,
)
from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.ownernames import Workload, makers
from bindery.kube.objects.queueaccess import has_rules
from bindery.kube.objects.snapshot import ClusterSnapshot, is_bound
from bindery.kube.objects.watched import Pod, PodGroup, Queue, QueueResource, QueueSpec
from bindery.scenario.capture.claims import capture_claims, templates_without_claim
from bindery.scenario.capture.nodes import Entry, capture_nodes
from bindery.scenario.capture.numa import Captured, capture_numa
from bindery.scenario.capture.others import others_by_job
from bindery.scenario.capture.pods import Around, capture_pods, capture_template, state_of
from bindery.scenario.capture.readable import readable, valid
from bindery.scenario.capture.rules import namespaces_of, references_of, written
from bindery.scenario.capture.shares import as_granted, device_indexes, spreads_devices
from bindery.scenario.capture.topology import capture_constraint, capture_trees
from bindery.scenario.capture.volumes import capture_volumes
from bindery.scenario.capture.workload import capture_workload
from bindery.scenario.fields import format_duration
from bindery.scenario.format import BUILT_IN_PRIORITIES
from bindery.scheduler.model.images import image_names, normalized
from bindery.scheduler.model.resources import ResourceAxis, pod_amounts
from bindery.scheduler.model.shapes import ShapeBook
from bindery.scheduler.model.users import user_of

_NUMBER: Final = re.compile(r"\d+")


@dataclass
class _Jobs:
    """What has been captured of jobs so far."""

    around: Around
    numa: Captured
    """NUMA zones."""
    entries: list[Entry] = field(default_factory=list)
    pod_names: dict[str, str] = field(default_factory=dict)
    """Pod UID -> its name in the scenario."""
    names: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    """UIDs of the captured pods of other schedulers, beside members of PodGroups."""


def capture(snapshot: ClusterSnapshot, now: datetime, node_pool: str = "") -> Entry:
    """Return `snapshot` as a scenario for the scheduler of `node_pool`."""
    snapshot, left_out = readable(snapshot)
    snapshot = replace(snapshot, pods=as_granted(snapshot.pods))
    jobs = _capture_jobs(snapshot, now)
    classes = {item.metadata.name: item.value for item in snapshot.priority_classes}
    queues = sorted(snapshot.queues, key=_age_and_name)
    scenario: Entry = {
        "name": f"snapshot of {now.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        "config": _config(snapshot, node_pool),
        "needs": list(_inexpressible(snapshot, jobs)),
        "now": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "nodes": capture_nodes(
            snapshot.nodes, _taken_by_others(snapshot, jobs), jobs.around.images, jobs.numa.nodes
        ),
        "queues": [_queue_entry(queue) for queue in queues],
        "priorityClasses": {
            name: value for name, value in classes.items() if BUILT_IN_PRIORITIES.get(name) != value
        },
        "namespaces": _namespaces(snapshot, jobs),
        **capture_claims(snapshot.further),
        **capture_volumes(snapshot.further),
        **capture_trees(snapshot.further),
        "jobs": jobs.entries,
        "bindRequests": [
            entry for request in snapshot.requests for entry in _request_entries(request, jobs, now)
        ],
    }
    kept, refused = valid(scenario)
    kept["needs"] = [*left_out, *refused, *scenario["needs"]]
    return {key: value for key, value in kept.items() if value}


def _config(snapshot: ClusterSnapshot, node_pool: str) -> Entry:
    workload = capture_workload(snapshot, node_pool)
    return {
        **({"nodePool": node_pool} if node_pool else {}),
        **({"plugins": {"fragmentation": {"workload": workload}}} if workload else {}),
    }


def _age_and_name(item: Queue | PodGroup | Pod) -> tuple[str, str, str]:
    meta = item.metadata
    return meta.creation_timestamp or "", meta.namespace, meta.name


def _natural(pod: Pod) -> str:
    """Return a key that sorts worker-10 after worker-9."""
    return _NUMBER.sub(lambda number: number[0].zfill(12), pod.metadata.name)


# ---- jobs -----------------------------------------------------------------------------------


def _capture_jobs(snapshot: ClusterSnapshot, now: datetime) -> _Jobs:
    references = references_of(snapshot.pods)
    others = others_by_job(snapshot, references)
    ours = (
        pod
        for pod in snapshot.pods
        if pod.spec.scheduler_name == SCHEDULER_NAME and pod.status.phase not in ENDED_POD_PHASES
    )
    numa = capture_numa(snapshot.nodes, [*ours, *chain(*others.values())], snapshot.further)
    priorities = {item.metadata.name: item.value for item in snapshot.priority_classes}
    around = Around(
        device_indexes(snapshot.pods), references, _images(snapshot), priorities, numa.pods
    )
    jobs = _Jobs(around, numa)
    singles = [
        pod
        for pod in snapshot.pods
        if pod.spec.scheduler_name == SCHEDULER_NAME and not snapshot.claims.of(pod).group
    ]
    fair = ((queue.metadata.name, queue.spec.fair_users) for queue in snapshot.queues)
    users = {name: users.label for name, users in fair if users is not None}
    owners: list[PodGroup | Pod] = [*snapshot.groups, *singles]
    for owner in sorted(owners, key=_age_and_name):
        if isinstance(owner, Pod):
            entry = _in_queue(snapshot.queue_of(owner), users, owner, [owner])
            _capture_job(jobs, owner, [owner], entry, now)
            continue
        members = snapshot.pods_by_group.get((owner.metadata.namespace, owner.metadata.name), [])
        entry = _in_queue(snapshot.queue_of_group(owner), users, owner, members)
        if owner.spec.priority_class_name in _priority_names(snapshot):
            entry["priority"] = owner.spec.priority_class_name
        if owner.spec.min_member >= 0:
            entry["minMember"] = owner.spec.min_member
        _capture_job(jobs, owner, members, {**entry, **_gang_entry(owner, now)}, now)
    _capture_others(jobs, others, now)
    return jobs


def _capture_others(
    jobs: _Jobs, others: Mapping[tuple[str, int], list[Pod]], now: datetime
) -> None:
    """Add the pods of other schedulers that matter, one job for a namespace and a priority."""
    for (namespace, priority), found in others.items():
        pods = [pod for pod in found if pod.metadata.uid not in jobs.pod_names]
        if not pods:
            continue
        pods.sort(key=_natural)
        jobs.others.update(pod.metadata.uid for pod in pods)
        name = f"others-{namespace}-{priority}"
        while name in jobs.names:
            name += "-"
        jobs.names.add(name)
        entries = capture_pods(pods, PodGroup(), "", now, jobs.around)
        entry = {"name": name, "namespace": namespace, "priority": priority, "minMember": 0}
        jobs.entries.append({**entry, "recreate": False, "pods": entries})


def _images(snapshot: ClusterSnapshot) -> frozenset[str]:
    used = {
        name
        for pod in snapshot.pods
        if pod.spec.scheduler_name == SCHEDULER_NAME
        for name in image_names(pod.spec)
    }
    had = (image for node in snapshot.nodes for image in node.status.images or ())
    return frozenset(used.intersection(normalized(name) for image in had for name in image.names))


def _in_queue(
    queue: str, users: Mapping[str, str], owner: PodGroup | Pod, members: Iterable[Pod]
) -> Entry:
    """Return the queue of the job of `owner`, and the label with its user if it counts there.

    `users`: queue -> label with the users, for queues that are fair between them.
    """
    entry: Entry = {"queue": queue} if queue != DEFAULT_QUEUE else {}
    label = users.get(queue)
    if label is not None:
        of_group = owner.metadata.labels if isinstance(owner, PodGroup) else {}
        user = user_of(label, of_group, (pod.metadata.labels for pod in members))
        entry |= {"labels": {label: user}} if user else {}
    return entry


def _namespaces(snapshot: ClusterSnapshot, jobs: _Jobs) -> dict[str, dict[str, str]]:
    """Return the labels of the namespaces, if rules of pods or queues select namespaces."""
    selects = jobs.around.references.select_namespaces
    if not selects and not any(has_rules(queue.spec) for queue in snapshot.queues):
        return {}
    return namespaces_of(snapshot.namespaces)


def _priority_names(snapshot: ClusterSnapshot) -> set[str]:
    return {item.metadata.name for item in snapshot.priority_classes} | set(BUILT_IN_PRIORITIES)


def _capture_job(
    jobs: _Jobs, owner: PodGroup | Pod, members: list[Pod], entry: Entry, now: datetime
) -> None:
    """Add the job of `owner`, which has `members` and the keys of `entry`, to `jobs`."""
    meta = owner.metadata
    name = meta.name if meta.name not in jobs.names else f"{meta.name}.{meta.namespace}"
    jobs.names.add(name)
    pods = sorted((pod for pod in members if _has_state(pod, now)), key=_natural)
    for index, pod in enumerate(pods):
        jobs.pod_names[pod.metadata.uid] = f"{name}-{index}"
    captured: Entry = {"name": name, "namespace": meta.namespace, **entry, **_times(pods, now)}
    if owners := _owners(owner, pods):
        captured["owners"] = owners
    if "priority" not in entry:
        captured["priority"] = max((pod.spec.priority or 0 for pod in pods), default=0)
    if not any(reference.controller for pod in pods for reference in pod.metadata.owner_references):
        captured["recreate"] = False
    if spreads_devices(pods):
        captured["spreadDevices"] = True
    queue = entry.get("queue", DEFAULT_QUEUE)
    entries = capture_pods(pods, owner, queue, now, jobs.around)
    jobs.entries.append({**captured, "pods": entries})


def _owners(owner: PodGroup | Pod, pods: Iterable[Pod]) -> list[Entry]:
    """Return the workloads of the job of `owner`, which has `pods`."""
    of_group = owner.metadata.owner_references if isinstance(owner, PodGroup) else ()
    found = dict.fromkeys(Workload(each.kind, each.name) for each in of_group)
    for pod in pods:
        found |= dict.fromkeys(makers(pod))
    return [{"kind": each.kind, "name": each.name} for each in found]


def _has_state(pod: Pod, now: datetime) -> bool:
    """Return whether a scenario can begin with `pod`."""
    if state_of(pod, now) is None:
        return False
    is_ours = pod.spec.scheduler_name == SCHEDULER_NAME
    return is_ours or bool(pod.spec.node_name or pod.status.nominated_node_name)


def _request_entries(statement: CommittedStatement, jobs: _Jobs, now: datetime) -> Iterator[Entry]:
    """Yield one entry a node of `request`: the format knows requests to one node."""
    if statement.status.phase == Phase.SUCCEEDED:
        return
    by_node: defaultdict[str, list[str]] = defaultdict(list)
    for pod in statement.spec.pods:
        if pod.pod_uid in jobs.pod_names:
            by_node[pod.selected_node].append(jobs.pod_names[pod.pod_uid])
    created = statement.metadata.creation_timestamp
    age_s = (now - datetime.fromisoformat(created)).total_seconds() if created else 0.0
    for node, pods in by_node.items():
        yield {
            "pods": pods,
            "node": node,
            "phase": Phase(statement.status.phase or Phase.PENDING).value,
            "failedAttempts": statement.status.failed_attempts,
            "backoffLimit": statement.backoff_limit,
            "nodePool": statement.metadata.labels.get(NODE_POOL_LABEL, ""),
            "age": f"{max(0.0, age_s):.0f}s",
        }


# ---- queues, and what is left out -----------------------------------------------------------


def _queue_entry(queue: Queue) -> Entry:
    spec = queue.spec
    entry: Entry = {"name": queue.metadata.name, "priority": spec.priority, "state": spec.state}
    if spec.parent:
        entry["parent"] = spec.parent
    if not spec.reclaimable:
        entry["reclaimable"] = False
    if spec.fair_users is not None:
        entry["fairUsers"] = {"label": spec.fair_users.label}
    for key, least_s in (
        ("preemptMinRuntime", spec.preempt_min_runtime_seconds),
        ("reclaimMinRuntime", spec.reclaim_min_runtime_seconds),
        ("maxRunTime", spec.max_run_time_seconds),
    ):
        if least_s is not None:
            entry[key] = format_duration(least_s)
    axis = ResourceAxis()
    others: Entry = {}
    for name, resource in spec.resources.items():
        full_name = axis.names[axis.index(name)]
        known = {"cpu": "cpu", "memory": "memory", axis.names[axis.index("gpu")]: "gpu"}
        target = entry if full_name in known else others
        target[known.get(full_name, full_name)] = _share_entry(resource)
    models = {name: _share_entry(resource) for name, resource in spec.models.items()}
    rest = {"resources": others, "models": models, **_access(spec)}
    return entry | {key: value for key, value in rest.items() if value}


def _access(spec: QueueSpec) -> Entry:
    """Return the rules of a queue about namespaces."""
    rules = (spec.namespaces, spec.priority_classes, spec.non_preemptible)
    names = ("namespaces", "priorityClasses", "nonPreemptible")
    # An empty rule takes no namespace, so it is written.
    return {name: written(rule) for name, rule in zip(names, rules, strict=True) if rule}


def _share_entry(resource: QueueResource) -> Entry:
    entry = {
        "quota": resource.quota,
        "weight": resource.over_quota_weight,
        "limit": resource.limit,
    }
    return {key: value for key, value in entry.items() if value is not None}


def _gang_entry(group: PodGroup, now: datetime) -> Entry:
    """Return what a gang asks for beside its queue, priority and minimum."""
    spec = group.spec
    entry: Entry = {
        "roles": spec.roles,
        "topology": capture_constraint(spec.topology),
        "minSubGroup": spec.min_sub_group,
        "disruptionMode": spec.disruption_mode,
        "preemptionPolicy": spec.preemption_policy,
        "preemptible": preemptibility.read(spec.preemptibility or ""),
        "subGroups": [
            {
                key: value
                for key, value in (
                    ("name", part.name),
                    ("parent", part.parent),
                    ("minMember", part.min_member),
                    ("minSubGroup", part.min_sub_group),
                    ("topology", capture_constraint(part.topology)),
                    ("after", [msgspec.to_builtins(each) for each in part.after] or None),
                    ("template", part.template and capture_template(part.template, now)),
                )
                if value is not None
            }
            for part in spec.sub_groups
        ],
    }
    for key, value in (
        ("preemptionDelay", spec.preemption_delay_seconds or None),
        ("expectedRuntime", spec.expected_runtime_seconds),
        ("runTimeLimit", spec.run_time_limit_seconds),
        ("ran", group.status.ran_seconds or None),
        ("stageTimeout", spec.stage_timeout_seconds),
        ("stalenessGrace", spec.staleness_grace_period_seconds),
    ):
        if value is not None:
            entry[key] = format_duration(value)
    return {key: value for key, value in entry.items() if value not in (None, {}, [])}


def _times(pods: list[Pod], now: datetime) -> Entry:
    """Return how long `pods` have run, and how long those have waited that wait."""
    entry: Entry = {}
    bound = [
        condition.last_transition_time
        for pod in pods
        for condition in pod.status.conditions or ()
        if (condition.type, condition.status) == ("PodScheduled", "True")
    ]
    created = [p.metadata.creation_timestamp for p in pods if not p.spec.node_name]
    if starts := [text for text in bound if text]:
        entry["runtime"] = _age(min(starts), now)
    if waits := [text for text in created if text]:
        entry["pendingFor"] = _age(max(waits), now)
    return entry


def _age(text: str, now: datetime) -> str:
    return format_duration(max(0.0, (now - datetime.fromisoformat(text)).total_seconds()))


def _taken_by_others(snapshot: ClusterSnapshot, jobs: _Jobs) -> dict[str, dict[str, int]]:
    """Return node -> resource -> what pods hold there that are in no job of the scenario."""
    taken: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for pod in snapshot.pods:
        meta = pod.metadata
        if is_reservation(meta.namespace, meta.labels):
            continue  # the shares of its group stand for it
        if is_bound(pod) and meta.uid not in jobs.pod_names and meta.uid not in jobs.others:
            held = taken[pod.spec.node_name]
            for resource, amount in pod_amounts(pod.spec).items():
                held[resource] = held.get(resource, 0) + amount
    return dict(taken)


def _inexpressible(snapshot: ClusterSnapshot, jobs: _Jobs) -> Iterator[str]:
    """Yield what the scenario leaves out: objects' specs, and what its pods ask for."""
    for queue in snapshot.queues:
        if queue.unreadable:
            yield f"queue {queue.metadata.name}: {queue.unreadable}"
    for group in snapshot.groups:
        if group.unreadable:
            yield f"PodGroup {group.metadata.name}: {group.unreadable}"
    yield from _orphans(snapshot, jobs)
    yield from jobs.numa.problems
    shapes = ShapeBook(ResourceAxis())
    for pod in snapshot.pods:
        name = jobs.pod_names.get(pod.metadata.uid)
        if name is None or pod.spec.scheduler_name != SCHEDULER_NAME:
            continue
        shape = shapes.of(pod)
        if shape.refusal is not None:
            yield f"{name}: {shape.refusal}"
        for problem in shape.share_problems:
            yield f"{name}: {problem}"
        for template in templates_without_claim(pod):
            yield f"{name}: no claim has been made of ResourceClaimTemplate {template}"


def _orphans(snapshot: ClusterSnapshot, jobs: _Jobs) -> Iterator[str]:
    """Yield the running pods without a PodGroup: the nodes have less room, the queues do not."""
    for pod in snapshot.pods:
        charged = pod.metadata.annotations.get(CHARGED_QUEUE_ANNOTATION)
        if charged and is_bound(pod) and pod.metadata.uid not in jobs.pod_names:
            name = pod.metadata.name
            yield f"{name}: charged to queue {charged}, and its PodGroup does not exist"
