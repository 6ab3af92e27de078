"""What the controller of an evicted pod does next.

Called by `rehearsal`. The arithmetic is the Job controller's of Kubernetes 1.36: an evicted pod is
a failed pod with the condition DisruptionTarget. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bindery.kube.objects.watched import Pod
from bindery.kube.objects.workloads import WorkloadJob

FIRST_BACKOFF_S: Final = 10.0
LONGEST_BACKOFF_S: Final = 600.0
_INDEX_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
_INDEX_IGNORED: Final = "batch.kubernetes.io/job-index-ignored-failure-count"
_MOST_DOUBLINGS: Final = 6
"""After this many doublings, ten seconds exceed the longest backoff."""


class Fate(StrEnum):
    """What the controller of an evicted pod does."""

    GONE = "Gone"
    """There is no controller that creates the pod again."""
    COMES_BACK = "ComesBack"
    INDEX_FAILS = "IndexFails"
    """The eviction exceeds the Job's limit of failures for the pod's index."""
    JOB_FAILS = "JobFails"
    """The evictions exceed the Job's limit of failures, which ends all of its pods."""


@dataclass(frozen=True, slots=True)
class Comeback:
    """The fate of one evicted pod, and how long its controller waits."""

    fate: Fate
    after_s: float = 0.0
    """Backoff before the pod is created again."""


def comeback(pod: Pod, jobs: Mapping[str, WorkloadJob], together: int) -> Comeback:
    """Return the fate of `pod` after its eviction.

    `jobs`: UID -> known Job. `together`: how many pods of the same controller one plan evicts,
    `pod` included.
    """
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    if owner is None:
        return Comeback(Fate.GONE)
    job = jobs.get(owner.uid)
    if job is None:  # another kind of controller: it replaces the pod at once
        return Comeback(Fate.COMES_BACK)
    is_ignored = _ignores_disruptions(job)
    if job.spec.completion_mode == "Indexed" and job.spec.backoff_limit_per_index is not None:
        failures, ignored = _count(pod, _INDEX_FAILURES), _count(pod, _INDEX_IGNORED)
        if not is_ignored and failures >= job.spec.backoff_limit_per_index:
            return Comeback(Fate.INDEX_FAILS)
        return Comeback(Fate.COMES_BACK, _backoff_s(failures + ignored))
    if not is_ignored and job.status.failed + together > job.spec.backoff_limit:
        return Comeback(Fate.JOB_FAILS)
    return Comeback(Fate.COMES_BACK, _backoff_s(together - 1))


def _ignores_disruptions(job: WorkloadJob) -> bool:
    policy = job.spec.pod_failure_policy
    for rule in policy.rules if policy is not None else ():
        patterns = rule.on_pod_conditions or ()
        if any((p.type, p.status) == ("DisruptionTarget", "True") for p in patterns):
            return rule.action == "Ignore"
    return False


def _count(pod: Pod, annotation: str) -> int:
    text = pod.metadata.annotations.get(annotation, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _backoff_s(earlier_failures: int) -> float:
    doublings = min(earlier_failures, _MOST_DOUBLINGS)
    return float(min(FIRST_BACKOFF_S * 2**doublings, LONGEST_BACKOFF_S))
