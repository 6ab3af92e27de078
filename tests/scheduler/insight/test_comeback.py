"""What the Job controller makes of evicted pods, as measured on Kubernetes 1.36."""

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
def test_eight_pods_of_a_job_evicted_at_once(spec: dict[str, object], expected: Comeback) -> None:
    assert evicted(spec) == expected


def test_failures_before_count_too() -> None:
    assert evicted({}, together=1, failed=5) == Comeback(Fate.COMES_BACK, 10)
    assert evicted({}, together=1, failed=6) == Comeback(Fate.JOB_FAILS)


def test_the_backoff_of_an_index_doubles_with_each_eviction() -> None:
    both = {**INDEXED, **POLICY}
    found = [evicted(both, ignored_failure=str(count)).after_s for count in range(8)]

    assert found == [10, 20, 40, 80, 160, 320, 600, 600]


def test_a_pod_without_a_controller_is_gone_and_one_of_an_unknown_controller_comes_back() -> None:
    owner = OwnerReference(kind="ReplicaSet", name="r", uid="r", controller=True)

    assert comeback(Pod(), {}, 1) == Comeback(Fate.GONE)
    of_set = Pod(metadata=Meta(owner_references=[owner]))
    assert comeback(of_set, {}, 1) == Comeback(Fate.COMES_BACK)
