"""Workloads submitted to a known cluster."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bindery.api.names import MADE_BY_GROUPER, MADE_BY_LABEL
from bindery.api.yamlfile import FileError, parse
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import Meta, OwnerReference, Pod
from bindery.scenario.manifests import Grouping, Surroundings, read_documents

AROUND = Surroundings(ClusterSnapshot(), "team", datetime(2026, 1, 1, tzinfo=UTC))
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 2
  completions: 2
  template: {spec: {schedulerName: bindery, containers: [{name: main}]}}
"""


def group_of(owner: str, *, namespace: str = "team", made_by: str = MADE_BY_GROUPER) -> PodGroup:
    reference = OwnerReference(api_version="batch/v1", kind="Job", name=owner, uid="1")
    return PodGroup(
        metadata=Meta(
            name="job-train-1",
            namespace=namespace,
            labels={MADE_BY_LABEL: made_by},
            owner_references=[reference],
        )
    )


def test_pods_have_no_group_without_a_grouper() -> None:
    alone = read_documents(parse(JOB, "job"), replace(AROUND, grouping=Grouping(None)))
    grouped = read_documents(parse(JOB, "job"), AROUND)

    assert [type(item) for item in alone.objects] == [Pod, Pod]
    assert [type(item) for item in grouped.objects] == [PodGroup, Pod, Pod]


def test_an_existing_workload_is_not_submitted_again() -> None:
    around = replace(AROUND, snapshot=ClusterSnapshot(groups=(group_of("train"),)))

    with pytest.raises(FileError, match="job:2: Job team/train already exists; use bindery exp"):
        read_documents(parse(JOB, "job"), around)


@pytest.mark.parametrize(
    "other",
    [
        group_of("other"),
        group_of("train", namespace="elsewhere"),
        group_of("train", made_by="somebody"),
    ],
)
def test_other_existing_workloads_do_not_prevent_a_submission(other: PodGroup) -> None:
    around = replace(AROUND, snapshot=ClusterSnapshot(groups=(other,)))

    assert len(read_documents(parse(JOB, "job"), around).objects) == 3


def test_only_the_pods_of_the_first_stage_exist_at_once() -> None:
    ring = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: ring, annotations: {scheduling.bindery.dev/min-member: "3"}}
spec:
  replicas: 4
  template: {spec: {schedulerName: bindery, containers: [{name: main}]}}
"""
    found = read_documents(parse(ring, "ring"), AROUND)

    now = [item.metadata.name for item in found.objects if isinstance(item, Pod)]
    assert now == ["ring-0", "ring-3"], "the pods above the minimum are no stage"
    assert [(each.pod.metadata.name, each.after) for each in found.arrivals] == [
        ("ring-1", (("pod-0", "Ready"),)),
        ("ring-2", (("pod-1", "Ready"),)),
    ]


def test_a_pod_without_a_spec_is_skipped_with_that_reason() -> None:
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: x}}"

    assert read_documents(parse(pod, "pod"), AROUND).passed_over == {
        "Pod/x": "it has no spec: add its containers"
    }
