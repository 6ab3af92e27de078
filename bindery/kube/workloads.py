"""Jobs: the fields that decide the fate of their evicted pods."""

from typing import Final

import msgspec

from bindery.kube.objects import KubeObject
from bindery.kube.resources import Resource


class PodConditionPattern(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A condition of a failed pod that a rule is about."""

    type: str = ""
    status: str = "True"


class FailureRule(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One rule of a pod failure policy; the first that matches decides."""

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
    """How many failures have been counted."""

    failed: int = 0


class WorkloadJob(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A Job of `batch/v1`."""

    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


WORKLOAD_JOBS: Final = Resource("batch", "v1", "jobs", "Job", True, WorkloadJob)
