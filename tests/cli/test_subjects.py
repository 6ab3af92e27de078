"""Lookup of the names on the command line: workloads, BindRequests and queues."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bindery.answers.errors import NoAnswerError
from bindery.answers.explanation import explain
from bindery.answers.subjects import named_queue, subject
from bindery.cli.text.gang import job_lines
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import Condition, OwnerReference, Pod
from tests.commandline import CommandLine
from tests.inlinescenarios import scenario_of, source_of

CLUSTER = """
nodes: [{name: node0, gpus: 4}]
queues:
- {name: org, gpu: {quota: 4}}
- {name: research, parent: org, gpu: {quota: 2, limit: 4}}
- {name: closed, parent: org, state: Closed}
jobs:
- {name: runs, queue: research, pods: [{count: 2, gpus: 2, state: Running, node: node0}]}
- {name: train, queue: research, pods: [{count: 3, gpus: 1}]}
- {name: huge, queue: research, pods: [{gpus: 8}]}
- {name: shut, queue: closed, pods: [{gpus: 1}]}
- {name: going, queue: research, pods: [{cpu: "1"}]}
bindRequests:
- {pods: [going-0], node: node0}
"""
SOURCE = source_of(scenario_of(CLUSTER))


def owned(pod: Pod, kind: str, name: str, **labels: str) -> Pod:
    owner = OwnerReference(kind=kind, name=name, controller=True)
    meta = msgspec.structs.replace(
        pod.metadata,
        owner_references=[owner],
        labels={key.replace("_", "-"): value for key, value in labels.items()},
    )
    return msgspec.structs.replace(pod, metadata=meta)


def look_with(kind: str, name: str, **labels: str) -> ClusterSnapshot:
    """Return the cluster in which the pods of `train` have another owner."""
    pods = tuple(
        owned(pod, kind, name, **labels) if pod.metadata.name.startswith("train-") else pod
        for pod in SOURCE.snapshot.pods
    )
    return replace(SOURCE.snapshot, pods=pods)


@pytest.mark.parametrize(
    ("asked", "owner", "labels"),
    [
        ("job/fit", ("Job", "fit"), {}),
        ("jobs/fit", ("Job", "fit"), {}),
        ("job.batch/fit", ("Job", "fit"), {}),
        ("cronjob/fit", ("Job", "fit-29384756"), {}),
        ("cj/fit", ("Job", "fit-29384756"), {}),
        ("deploy/fit", ("ReplicaSet", "fit-5d4f"), {"pod_template_hash": "5d4f"}),
        ("deployment.apps/fit", ("ReplicaSet", "fit-5d4f"), {"pod_template_hash": "5d4f"}),
        ("rs/fit-5d4f", ("ReplicaSet", "fit-5d4f"), {"pod_template_hash": "5d4f"}),
        ("sts/fit", ("StatefulSet", "fit"), {}),
        ("pytorchjob/fit", ("PyTorchJob", "fit"), {}),
        ("rayjobs.ray.io/fit", ("RayJob", "fit"), {}),
        ("fit", ("RayJob", "fit"), {}),
    ],
)
def test_a_workload_resolves_to_the_gang_of_its_pods(
    asked: str, owner: tuple[str, str], labels: dict[str, str]
) -> None:
    found = subject(look_with(*owner, **labels), asked, "default")

    assert found.key.name == "train"
    assert found.group is not None
    assert found.introduction.endswith(": 0 of 3 pods are bound.")


@pytest.mark.parametrize(
    ("asked", "owner"),
    [
        ("deploy/fit", ("ReplicaSet", "fit-5d4f")),
        ("cronjob/fit", ("Job", "fit-nightly")),
        ("deploy/fit", ("Job", "fit")),
    ],
)
def test_a_workload_that_the_pods_do_not_name_is_not_guessed(
    asked: str, owner: tuple[str, str]
) -> None:
    with pytest.raises(NoAnswerError, match="is not known: no pod and no PodGroup"):
        subject(look_with(*owner), asked, "default")


def group_of(kind: str, name: str) -> ClusterSnapshot:
    """Return the cluster in which the PodGroup `huge` was written for a workload, without pods."""
    owner = OwnerReference(kind=kind, name=name)
    groups = tuple(
        msgspec.structs.replace(
            group, metadata=msgspec.structs.replace(group.metadata, owner_references=[owner])
        )
        if group.metadata.name == "huge"
        else group
        for group in SOURCE.snapshot.groups
    )
    pods = tuple(pod for pod in SOURCE.snapshot.pods if pod.metadata.name != "huge-0")
    return replace(SOURCE.snapshot, groups=groups, pods=pods)


@pytest.mark.parametrize("asked", ["mine", "jobset/mine", "jobset.jobset.x-k8s.io/mine"])
def test_a_workload_without_pods_yet_resolves_to_its_podgroup(asked: str) -> None:
    found = subject(group_of("JobSet", "mine"), asked, "default")

    assert (found.key.name, found.introduction) == (
        "huge",
        "JobSet default/mine: 0 of 0 pods are bound.",
    )


def test_workloads_of_one_name_with_several_gangs_are_not_mixed() -> None:
    pods = tuple(
        owned(pod, "RayJob" if pod.metadata.name.startswith("train-") else "Job", "fit")
        for pod in SOURCE.snapshot.pods
    )

    with pytest.raises(NoAnswerError, match=r"several workloads .* write job/fit or rayjob/fit"):
        subject(replace(SOURCE.snapshot, pods=pods), "fit", "default")


def test_the_first_waiting_gang_of_several_is_explained() -> None:
    pods = tuple(owned(pod, "Job", "all") for pod in SOURCE.snapshot.pods)

    found = subject(replace(SOURCE.snapshot, pods=pods), "job/all", "default")

    assert found.key.name == "going"
    assert "they belong to 5 gangs, and this is the first that waits" in found.introduction


@pytest.mark.parametrize("asked", ["pg/train", "podgroup/train", "PodGroups/train", "gang/train"])
def test_kinds_have_the_names_that_kubectl_accepts(asked: str) -> None:
    assert subject(SOURCE.snapshot, asked, "default").key.name == "train"
    full = "podgroup.scheduling.bindery.dev/train"
    assert subject(SOURCE.snapshot, full, "default").key.name == "train"


def test_a_bind_request_resolves_to_the_gang_that_it_binds() -> None:
    (request,) = SOURCE.snapshot.statements

    found = subject(SOURCE.snapshot, f"br/{request.metadata.name}", "default")
    line, group, *_ = job_lines(explain(SOURCE, found, SOURCE.now))

    name = f"BindRequest default/{request.metadata.name}"
    assert line.startswith(f"{name} is Pending: 0 of 1 pods are bound.")
    assert group.startswith("PodGroup default/going ")


def test_json_has_the_requests_of_a_gang(command_line: CommandLine, cluster: str) -> None:
    done = command_line("explain", "going", "--file", cluster, "-o", "json")

    (request,) = json.loads(done.stdout)["requests"]
    assert (request["phase"], request["bound"], request["nodes"]) == ("Pending", "0/1", "node0")


@pytest.mark.parametrize("asked", ["queue/research", "queues/research", "bq/research"])
def test_a_queue_has_the_names_that_kubectl_accepts(asked: str) -> None:
    queue = named_queue(SOURCE.snapshot, asked)

    assert queue is not None
    assert queue.metadata.name == "research"


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return str(path)


def test_a_queue_is_explained_with_its_shares_and_its_waiting_gangs(
    command_line: CommandLine, cluster: str
) -> None:
    answer = command_line("explain", "queue/research", "--file", cluster).stdout.splitlines()

    assert answer[0] == "Queue research (under org, priority 100): 2 of its own gangs run, 2 wait."
    at = answer.index("Its queue and those above it, in GPUs:")
    assert [line.split()[0] for line in answer[at + 2 : at + 4]] == ["org", "research"]
    at = answer.index("Waiting, in the order in which they are tried:")
    waiting = answer[at + 1 :]
    assert waiting[0].startswith("  default/train: OverLimit: queue research holds 4 of its limit")
    assert any(line.startswith("  default/huge: ") for line in waiting[1:])
    assert not any("shut" in line for line in answer)


def test_an_unusable_queue_is_explained_with_advice(
    command_line: CommandLine, cluster: str
) -> None:
    answer = command_line("explain", "queue/closed", "--file", cluster).stdout

    assert "Its jobs are not scheduled: QueueClosed: " in answer
    assert answer.splitlines()[-1].startswith("What to do: Open the queue")


def test_a_parent_queue_is_explained_with_its_children_and_their_waiting_gangs(
    command_line: CommandLine, cluster: str
) -> None:
    answer = command_line("explain", "queue/org", "--file", cluster).stdout

    assert "Below it: closed, research." in answer
    assert "default/train (queue research): OverLimit" in answer


def test_json_has_the_same_answer_about_a_queue(command_line: CommandLine, cluster: str) -> None:
    done = command_line("explain", "queue/research", "--file", cluster, "-o", "json")

    answer = json.loads(done.stdout)
    assert (answer["queue"], answer["problem"]) == ("research", "")
    assert [share["name"] for share in answer["shares"]] == ["org", "research"]
    assert answer["waiting"][0]["job"] == {"namespace": "default", "name": "train"}


def test_a_missing_queue_ends_with_1_and_similar_names(
    command_line: CommandLine, cluster: str
) -> None:
    done = command_line("explain", "queue/reserch", "--file", cluster)

    assert done.returncode == 1
    assert done.stderr == "bindery: there is no Queue reserch; did you mean research?\n"


@pytest.mark.parametrize("asked", ["later", "job/later", "sts/later"])
def test_the_error_for_a_workload_without_pods_has_a_hint(asked: str) -> None:
    with pytest.raises(NoAnswerError, match="while it is suspended or scaled to 0 it has none"):
        subject(look_with("Job", "fit"), asked, "default")


def test_a_pod_that_waits_for_its_group_is_explained_by_its_condition() -> None:
    """Only the scheduler's configuration decides whether pods wait for PodGroups."""
    waits = Condition(
        type="PodScheduled", status="False", reason="WaitingForGroup", message="no PodGroup yet"
    )
    pods = tuple(
        msgspec.structs.replace(
            pod,
            metadata=msgspec.structs.replace(pod.metadata, annotations={}),
            status=msgspec.structs.replace(pod.status, conditions=[waits]),
        )
        if pod.metadata.name.startswith("train-")
        else pod
        for pod in look_with("Job", "fit").pods
    )
    source = replace(SOURCE, snapshot=replace(SOURCE.snapshot, pods=pods))

    about = subject(source.snapshot, "job/fit", "default")
    lines = list(job_lines(explain(source, about, source.now)))

    assert "The scheduler says: WaitingForGroup: no PodGroup yet" in lines
    assert lines[-1].startswith("What to do: Check that the grouper runs")
    assert not any("A cycle now would place" in line for line in lines)
