"""Pods that the Job controller creates for evicted ones, as measured on Kubernetes 1.36."""

import msgspec
import pytest

from bindery.kube.objects.watched import Meta, OwnerReference, Pod
from bindery.kube.objects.workloads import WorkloadJob
from bindery.scheduler.insight.comeback import Comeback, Fate, comeback

POLICY = {
    "podFailurePolicy": {
        "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    }
}
INDEXED = {"completionMode": "Indexed", "backoffLimitPerIndex": 3}
PREFIX = "batch.kubernetes.io/job-index"


def evicted(spec: dict[str, object], together: int = 8, failed: int = 0, **marks: str) -> Comeback:
    body = {"metadata": {"uid": "job"}, "spec": spec, "status": {"failed": failed}}
    job = msgspec.convert(body, WorkloadJob)
    owner = OwnerReference(kind="Job", name="j", uid="job", controller=True)
    annotations = {f"{PREFIX}-{name.replace('_', '-')}-count": text for name, text in marks.items()}
    pod = Pod(metadata=Meta(annotations=annotations, owner_references=[owner]))
    return comeback(pod, {"job": job}, together)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, Comeback(Fate.JOB_FAILS)),
        ({"backoffLimit": 8}, Comeback(Fate.COMES_BACK, 600)),
        (POLICY, Comeback(Fate.COMES_BACK, 600)),
        (INDEXED, Comeback(Fate.COMES_BACK, 10)),
        ({**INDEXED, **POLICY}, Comeback(Fate.COMES_BACK, 10)),
        ({**INDEXED, "backoffLimitPerIndex": 0}, Comeback(Fate.INDEX_FAILS)),
        ({**INDEXED, **POLICY, "backoffLimitPerIndex": 0}, Comeback(Fate.COMES_BACK, 10)),
    ],
)
def test_the_comeback_of_eight_evicted_pods_follows_the_spec_of_the_job(
    spec: dict[str, object], expected: Comeback
) -> None:
    assert evicted(spec) == expected


def test_earlier_failures_count() -> None:
    assert evicted({}, together=1, failed=5) == Comeback(Fate.COMES_BACK, 10)
    assert evicted({}, together=1, failed=6) == Comeback(Fate.JOB_FAILS)


def test_the_backoff_of_an_index_doubles_with_each_eviction() -> None:
    both = {**INDEXED, **POLICY}
    found = [evicted(both, ignored_failure=str(count)).after_s for count in range(8)]

    assert found == [10, 20, 40, 80, 160, 320, 600, 600]


def test_only_pods_with_a_controller_come_back() -> None:
    owner = OwnerReference(kind="ReplicaSet", name="r", uid="r", controller=True)

    assert comeback(Pod(), {}, 1) == Comeback(Fate.GONE)
    of_set = Pod(metadata=Meta(owner_references=[owner]))
    assert comeback(of_set, {}, 1) == Comeback(Fate.COMES_BACK)
