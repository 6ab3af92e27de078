"""Jobs: the fields that decide the fate of their evicted pods."""

from collections.abc import Iterable
from typing import Final

import msgspec

from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import Condition, KubeObject


class PodConditionPattern(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A condition of a failed pod that a rule is about."""

    type: str = ""
    status: str = "True"


class FailureRule(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A rule of a pod failure policy; the first rule that matches decides."""

    action: str = ""
    on_pod_conditions: list[PodConditionPattern] | None = None


class FailurePolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`batch/v1` PodFailurePolicy."""

    rules: list[FailureRule] = msgspec.field(default_factory=list)


class JobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How a Job counts failures."""

    completion_mode: str = "NonIndexed"
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    pod_failure_policy: FailurePolicy | None = None


class JobStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many failures have been counted, and whether the Job has ended."""

    failed: int = 0
    conditions: list[Condition] | None = None


class WorkloadJob(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A Job of `batch/v1`."""

    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


WORKLOAD_JOBS: Final = Resource("batch", "v1", "jobs", "Job", True, WorkloadJob)


def failure(group: PodGroup, jobs: Iterable[WorkloadJob]) -> str:
    """Return that the Job of `group` has failed for good, as text; "" if it has not."""
    owners = {each.uid for each in group.metadata.owner_references if each.kind == "Job"}
    for job in jobs:
        if job.metadata.uid not in owners:
            continue
        for said in job.status.conditions or ():
            if (said.type, said.status) == ("Failed", "True"):
                name = f"{job.metadata.namespace}/{job.metadata.name}"
                return f"Job {name} has failed ({said.reason}): its pods do not come back"
    return ""
