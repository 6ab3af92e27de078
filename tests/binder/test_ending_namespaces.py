"""The pods of a terminating namespace that the binder releases."""

from dataclasses import dataclass, field

import pytest

from bindery.api.times import timestamp
from bindery.binder.api_server.ending_namespaces import FINALIZER, is_stuck
from bindery.kube.objects.watched import KubeObject, Meta, OwnerReference

NOW_S = 1_800_000_000.0
JOB = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="job", controller=True)


@dataclass(frozen=True)
class Case:
    deleted_s: float | None = NOW_S - 60
    finalizers: list[str] = field(default_factory=lambda: [FINALIZER])
    owners: list[OwnerReference] = field(default_factory=lambda: [JOB])

    @property
    def pod(self) -> KubeObject:
        deleted = None if self.deleted_s is None else timestamp(self.deleted_s)
        meta = Meta(
            name="train-0",
            deletion_timestamp=deleted,
            finalizers=self.finalizers,
            owner_references=self.owners,
        )
        return KubeObject(metadata=meta)


@pytest.mark.parametrize("case", [Case(), Case(finalizers=["example.com/other", FINALIZER])])
def test_a_failed_pod_kept_by_the_job_controller_is_released(case: Case) -> None:
    assert is_stuck(case.pod, NOW_S)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(deleted_s=None), id="it is not being deleted"),
        pytest.param(Case(deleted_s=NOW_S - 5), id="the Job controller has had no time"),
        pytest.param(Case(deleted_s=NOW_S + 20), id="its grace period has not ended"),
        pytest.param(Case(finalizers=["example.com/other"]), id="another finalizer keeps it"),
        pytest.param(Case(owners=[]), id="it has no controller"),
    ],
)
def test_other_pods_are_not_changed(case: Case) -> None:
    assert not is_stuck(case.pod, NOW_S)
