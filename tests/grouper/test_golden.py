"""For every row: PodGroups planned from owners and pods."""

import pytest

from bindery.api import names
from bindery.grouper.table import load, plan
from bindery.grouper.table.loading import Table
from bindery.grouper.table.rows import Row
from tests.grouper import goldens

TABLE = load()
NEARER = ("cronjob", "unknown-kind-with-minimum")
"""Golden files with the annotation at a lower owner or a template."""


@pytest.mark.parametrize("name", goldens.names())
def test_a_workload_becomes_the_groups_of_its_golden_file(name: str) -> None:
    golden = goldens.load_golden(name)

    found = plan(golden.owners, golden.pods, TABLE)

    assert [goldens.shown(group) for group in found.groups] == golden.groups
    problems = [f"{each.object} {each.reason}: {each.message}" for each in found.problems]
    assert problems == golden.problems
    assert [f"{each.kind}/{each.name}" for each in found.wanted] == golden.wanted


def test_every_row_has_a_golden_file() -> None:
    seen = {id(row) for name in goldens.names() for row in rows_of(goldens.load_golden(name))}

    missing = [row.kind for row in TABLE if id(row) not in seen]
    assert missing == []


@pytest.mark.parametrize("name", goldens.names())
def test_the_annotation_of_the_minimum_works_on_every_kind(name: str) -> None:
    """On the highest owner, unless a nearer owner has it."""
    golden = goldens.load_golden(name)
    for item in golden.owners.values():
        if "ownerReferences" not in item["metadata"]:
            item["metadata"].setdefault("annotations", {})[names.MIN_MEMBER_KEY] = "1"

    found = plan(golden.owners, golden.pods, TABLE)

    for group in found.groups:
        owner = golden.owners.get(group.owner.uid)
        if owner is None or name in NEARER:
            continue
        parts = group.spec.sub_groups
        inner = {part.parent for part in parts}
        leaves = [part.min_member or 0 for part in parts if part.name not in inner]
        assert group.spec.min_member == 1
        assert not leaves or sum(leaves) == 1


def rows_of(golden: goldens.Golden, table: Table = TABLE) -> list[Row]:
    """Return the rows of the objects and pods of `golden`."""
    kinds = [
        (item["apiVersion"], item["kind"], item["metadata"].get("labels", {}))
        for item in golden.owners.values()
    ]
    kinds += [("v1", "Pod", dict(pod.labels)) for pod in golden.pods]
    found = (
        table.row(version.rpartition("/")[0], version.rpartition("/")[2], kind, labels)
        for version, kind, labels in kinds
    )
    return [row for row in found if row is not None]


KINDS = """
v1 Pod
apps/v1 Deployment ReplicaSet StatefulSet
batch/v1 Job CronJob
jobset.x-k8s.io/v1alpha2 JobSet
trainer.kubeflow.org/v1alpha1 TrainJob
argoproj.io/v1alpha1 Workflow
run.ai/v2alpha1 TrainingWorkload InteractiveWorkload DistributedWorkload
run.ai/v2alpha1 InferenceWorkload DistributedInferenceWorkload
run.ai/v1 RunaiJob
nvidia.com/v1alpha1 DynamoGraphDeployment
kubeflow.org/v1 TFJob XGBoostJob JAXJob MPIJob PyTorchJob PaddleJob
kubeflow.org/v2beta1 MPIJob
kubeflow.org/v1beta1 Notebook
kubeflow.org/v1alpha1 ScheduledWorkflow
ray.io/v1 RayCluster RayJob RayService
ray.io/v1alpha1 RayCluster RayJob RayService
serving.knative.dev/v1 Service
leaderworkerset.x-k8s.io/v1 LeaderWorkerSet
grove.io/v1alpha1 PodCliqueSet PodGangSet
amlarc.azureml.com/v1alpha1 AmlJob
egx.nvidia.io/v1 SPOTRequest
machinelearning.seldon.io/v1 SeldonDeployment
machinelearning.seldon.io/v1alpha2 SeldonDeployment
kubevirt.io/v1 VirtualMachineInstance
workspace.devfile.io/v1alpha2 DevWorkspace
tekton.dev/v1 PipelineRun TaskRun
sparkoperator.k8s.io/v1beta2 SparkApplication
workload.codeflare.dev/v1beta2 AppWrapper
sagemaker.amazonaws.com/v1 HyperPodPyTorchJob
batch.volcano.sh/v1alpha1 Job
"""
"""What KAI-Scheduler, Kueue and Volcano know."""


@pytest.mark.parametrize("line", KINDS.strip().splitlines())
def test_the_kinds_of_other_schedulers_have_rows(line: str) -> None:
    version, *kinds = line.split()
    group = version.rpartition("/")[0]

    missing = [kind for kind in kinds if TABLE.row(group, version.rpartition("/")[2], kind) is None]
    assert missing == []
