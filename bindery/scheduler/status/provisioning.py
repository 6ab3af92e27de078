"""Computes the ProvisioningRequests to create or delete after a cycle. Pure; `provisioning_writer`
writes.

A gang gets one request while it waits because its pods do not fit on the nodes. The request is
deleted when the gang is placed, or waits for another reason.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import API_VERSION
from bindery.api.provisioning import PLUGIN, ProvisioningArguments
from bindery.api.times import seconds
from bindery.kube.objects.provisioning import (
    MOST_POD_SETS,
    PROVISIONING_REQUESTS,
    ProvisioningRequest,
)
from bindery.kube.objects.watched import Meta, Pod
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.defects import DefectStage, of_job
from bindery.scheduler.model.jobs import Job, JobKey, Task
from bindery.scheduler.model.reasons import LACKS_ROOM, JobReason
from bindery.scheduler.planning.reports import CycleReport, JobReport
from bindery.scheduler.status.podtemplates import TemplateDraft, templates

_UNDECIDED: Final = frozenset(
    {JobReason.NOT_TRIED_YET, JobReason.COMMIT_UNDER_WAY, JobReason.INTERNAL_ERROR}
)
"""Reasons for which a request is neither created nor deleted."""
_NAME_LENGTH: Final = 200


@dataclass(frozen=True)
class ProvisioningRequestDraft:
    """A ProvisioningRequest to create, and its PodTemplates."""

    group: Meta
    templates: Sequence[TemplateDraft]
    class_name: str
    parameters: Mapping[str, str]

    @property
    def counts(self) -> dict[str, int]:
        """Name of a PodTemplate -> number of its pods."""
        return {template_name(self.group, each.digest): each.count for each in self.templates}

    def to_object(self) -> dict[str, Any]:
        """Return the ProvisioningRequest."""
        sets = [{"podTemplateRef": {"name": n}, "count": c} for n, c in self.counts.items()]
        spec: dict[str, Any] = {"provisioningClassName": self.class_name, "podSets": sets}
        if self.parameters:
            spec["parameters"] = dict(self.parameters)
        return {
            "apiVersion": PROVISIONING_REQUESTS.api_version,
            "kind": PROVISIONING_REQUESTS.kind,
            "metadata": self._metadata(self.group.name),
            "spec": spec,
        }

    def template_objects(self) -> Iterator[dict[str, Any]]:
        """Yield the PodTemplates."""
        for each in self.templates:
            yield {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": self._metadata(template_name(self.group, each.digest)),
                "template": {"metadata": {"labels": each.labels}, "spec": each.spec},
            }

    def _metadata(self, name: str) -> dict[str, Any]:
        owner = {
            "apiVersion": API_VERSION,
            "kind": "PodGroup",
            "name": self.group.name,
            "uid": self.group.uid,
        }
        return {"name": name, "namespace": self.group.namespace, "ownerReferences": [owner]}

    def is_written_as(self, request: ProvisioningRequest) -> bool:
        """Return whether `request` has the same content."""
        spec = request.spec
        counts = {each.pod_template_ref.name: each.count for each in spec.pod_sets}
        asked = (spec.provisioning_class_name, spec.parameters or {}, counts)
        return asked == (self.class_name, dict(self.parameters), self.counts)


@dataclass(frozen=True)
class Impossible:
    """A gang requests nodes, but no ProvisioningRequest can be made for it."""

    group: Meta
    problem: str


@dataclass(frozen=True)
class ProvisioningChange:
    """One change: create `draft`, delete `old`, or report `problem`."""

    group: Meta
    draft: ProvisioningRequestDraft | None = None
    old: ProvisioningRequest | None = None
    problem: str = ""

    @property
    def is_known_as(self) -> tuple[str, str, tuple[tuple[str, int], ...], str]:
        """A key that equal steps share."""
        old = self.old.metadata.uid if self.old is not None else ""
        counts = self.draft.counts if self.draft is not None else {}
        return self.group.uid, old, tuple(sorted(counts.items())), self.problem


def template_name(group: Meta, digest: str) -> str:
    """Return the name of the PodTemplate with `digest`; it is the gang's own."""
    return f"{group.name[:_NAME_LENGTH].rstrip('.-')}-{group.uid[:8]}-{digest}"


def arguments_of(configuration: SchedulerConfiguration) -> ProvisioningArguments | None:
    """Return the arguments of the plugin; None if it is not configured."""
    for plugin in configuration.plugins:
        if plugin.name == PLUGIN:
            return ProvisioningArguments.model_validate(plugin.arguments)
    return None


def steps(
    cluster: Cluster, report: CycleReport, arguments: ProvisioningArguments, now: float
) -> Iterator[ProvisioningChange]:
    """Yield the changes after the cycle of `report`. `now`: seconds since the epoch."""
    existing: dict[str, ProvisioningRequest] = {}
    for request in cluster.observers.every(ProvisioningRequest):
        key = JobKey(request.metadata.namespace, request.group.name, is_group=True)
        group = cluster.groups.get(key)
        if group is None or group.metadata.uid != request.group.uid:
            continue  # of another scheduler, or collected with its PodGroup
        existing[group.metadata.uid] = request
        if request.metadata.deletion_timestamp is None and _is_over(
            cluster, report.jobs.get(key), request, arguments, now
        ):
            yield ProvisioningChange(group.metadata, old=request)
    for job_report in report.jobs.values():
        if job_report.uid not in existing:
            wanted = _wanted(cluster, job_report, arguments)
            if isinstance(wanted, ProvisioningRequestDraft):
                yield ProvisioningChange(wanted.group, draft=wanted)
            if isinstance(wanted, Impossible):
                yield ProvisioningChange(wanted.group, problem=wanted.problem)


def _wanted(
    cluster: Cluster, report: JobReport, arguments: ProvisioningArguments
) -> ProvisioningRequestDraft | Impossible | None:
    """Return the request for the gang of `report`; None if the gang needs none."""
    # An error in one gang's pods must not affect the requests of other gangs.
    with cluster.defects.held_to(DefectStage.REPORT, of_job(report.key), lambda _: None):
        return _asked(cluster, report, arguments)
    return None


def _is_over(
    cluster: Cluster,
    report: JobReport | None,
    request: ProvisioningRequest,
    arguments: ProvisioningArguments,
    now: float,
) -> bool:
    """Return whether to delete `request`; a new one may replace it then."""
    if report is not None and not report.satisfied and report.reason in _UNDECIDED:
        return False
    wanted = _wanted(cluster, report, arguments) if report is not None else None
    if not isinstance(wanted, ProvisioningRequestDraft) or not wanted.is_written_as(request):
        return True
    ended = request.ended()
    if ended is None:
        return False
    return now >= (seconds(ended.last_transition_time) or 0.0) + arguments.retry_seconds


def _asked(
    cluster: Cluster, report: JobReport, arguments: ProvisioningArguments
) -> ProvisioningRequestDraft | Impossible | None:
    if not report.key.is_group or report.satisfied or report.reason not in LACKS_ROOM:
        return None
    job, group = cluster.state.jobs.get(report.key), cluster.groups.get(report.key)
    if job is None or group is None or group.metadata.deletion_timestamp is not None:
        return None
    tasks = needed(job)
    pods = [(task, pod) for task in tasks if (pod := cluster.pods.get(task.uid)) is not None]
    annotations = (each.annotations for each in (group.metadata, *(p.metadata for _, p in pods)))
    if not tasks or not arguments.is_asked(annotations):
        return None
    return _made(group.metadata, pods, arguments)


def _made(
    group: Meta, pods: Sequence[tuple[Task, Pod]], arguments: ProvisioningArguments
) -> ProvisioningRequestDraft | Impossible | None:
    """Return the request for `pods`; None if no pod is left."""
    if any(task.shares_gpu for task, _ in pods):
        return Impossible(group, "some of its pods request a share of a GPU")
    alike: defaultdict[object, list[Pod]] = defaultdict(list)
    for task, pod in pods:
        # Pods with special needs, such as volumes of their own, differ within one shape.
        alike[task.uid if task.shape.needs else task.shape].append(pod)
    found = templates(alike.values())
    if len(found) > MOST_POD_SETS:
        problem = f"its pods have {len(found)} shapes, and a request has at most {MOST_POD_SETS}"
        return Impossible(group, problem)
    if not found:
        return None
    return ProvisioningRequestDraft(group, found, arguments.class_name, arguments.parameters)


def needed(job: Job) -> list[Task]:
    """Return the waiting pods without which the gang cannot start.

    These are the pods missing for the minimum; all waiting pods if roles or sub-groups have
    minimums.
    """
    waiting = sorted(job.pending.values(), key=lambda task: task.order)
    if job.tree is not None or job.roles:
        return waiting
    return waiting[: max(job.min_member - job.placed.total - job.succeeded.total, 0)]
