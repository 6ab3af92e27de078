"""`bindery whatif` plans workloads by the grouper's table and the webhook's rules."""

import io
import json
import re
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.commandline import CommandLine

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

CLUSTER: dict[str, Any] = {
    "name": "cluster",
    "nodes": [{"name": "node{i}", "count": 8, "gpus": 8, "cpu": 64, "memory": "256Gi"}],
    "queues": [
        {"name": "research", "gpu": {"quota": 64}},
        {"name": "small-team", "gpu": {"quota": 8, "limit": 8}},
        {"name": "vision"},
    ],
    "namespaces": {
        "team": {"scheduling.bindery.dev/enabled": "true"},
        "named": {"scheduling.bindery.dev/queue": "vision"},
    },
}


class Desk:
    """Asks about manifests in a cluster that is a file."""

    def __init__(self, folder: Path, command_line: CommandLine) -> None:
        self.folder = folder
        self._bindery = command_line
        self.cluster = deepcopy(CLUSTER)

    def file(self, name: str, content: str | dict[str, Any]) -> str:
        """Write a file and return its path."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return str(path)

    def ask(self, *arguments: str) -> SimpleNamespace:
        """Return exit code, answer and errors, and the answer for programs."""
        cluster = self.file("cluster.yaml", self.cluster)
        asked = ("whatif", *arguments, "--file", cluster)
        done, wire = self._bindery(*asked), None
        if done.returncode < 2:
            wire = json.loads(self._bindery(*asked, "-o", "json").stdout)
        return SimpleNamespace(
            code=done.returncode, text=done.stdout, errors=done.stderr, wire=wire
        )


@pytest.fixture
def desk(tmp_path: Path, command_line: CommandLine) -> Desk:
    return Desk(tmp_path, command_line)


def job(size: int = 8, gpus: int = 8, **metadata: Any) -> dict[str, Any]:
    container = {"name": "worker", "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    spec = {"schedulerName": "bindery", "restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", **metadata},
        "spec": {"completions": size, "parallelism": size, "template": {"spec": spec}},
    }


def outcomes(answer: SimpleNamespace) -> list[tuple[str, str, bool, int]]:
    """Return workload, queue, verdict and number of placed pods of each gang."""
    jobs = answer.wire["jobs"]
    return [(each["workload"], each["queue"], each["runs"], len(each["pods"])) for each in jobs]


def test_the_queue_and_the_job_of_the_readme_are_one_gang_in_its_queue(desk: Desk) -> None:
    shown = re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert shown is not None
    desk.cluster["queues"] = []

    answer = desk.ask(desk.file("readme.yaml", shown[1]))

    assert answer.code == 0
    assert outcomes(answer) == [("Job/train", "research", True, 8)]


def test_a_job_that_does_not_fit_completely_waits_completely(desk: Desk) -> None:
    desk.cluster["nodes"] = [{"name": "node{i}", "count": 2, "gpus": 8}]

    answer = desk.ask(desk.file("job.yaml", job()))

    assert answer.code == 1
    assert "Job default/train (queue default) waits: 0 of 8 pods placed" in answer.text


def test_the_answer_is_the_same_if_the_scheduler_waits_for_pod_groups(desk: Desk) -> None:
    waits = desk.file("config.yaml", "grouper: {waitForGroups: true}\n")
    manifest = desk.file("job.yaml", job())

    assert desk.ask(manifest, "--config", waits).wire == desk.ask(manifest).wire


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        ("pytorchjob", [("PyTorchJob/pytorchjob", "research", False, 0)]),
        ("jobset", [("JobSet/simulation", "research", False, 0)]),
        ("rayjob", [("RayJob/fit", "research", True, 4)]),
        ("leaderworkerset", [("LeaderWorkerSet/serve", "research", True, 4)] * 2),
        ("deployment", [("Deployment/web", "small-team", True, 3)]),
        ("sparkapplication", [("SparkApplication/pi", "small-team", True, 5)]),
    ],
)
def test_a_workload_is_planned_as_the_gang_of_the_grouper(
    desk: Desk, example: str, expected: list[tuple[str, str, bool, int]]
) -> None:
    """There are two racks of four nodes, so a master and eight workers do not fit."""
    rack = "topology.bindery.dev/rack"
    desk.cluster["nodes"] = [
        {"name": f"{name}-{{i}}", "count": 4, "gpus": 8, "cpu": 64, "labels": {rack: name}}
        for name in ("a", "b")
    ]
    if example == "jobset":
        desk.cluster["nodes"][0]["count"] = 3  # one of its Jobs finds no rack

    answer = desk.ask(str(EXAMPLES / "workloads" / f"{example}.yaml"))

    assert outcomes(answer) == expected
    assert answer.code == (0 if expected[0][2] else 1)


def test_a_stage_after_the_end_of_another_is_reported_separately(desk: Desk) -> None:
    answer = desk.ask(str(EXAMPLES / "workloads" / "trainjob.yaml"))

    assert answer.code == 0
    assert "TrainJob default/fine-tune (queue research) runs: 1 of 1 pod placed" in answer.text
    later = "2 more pods (node.0) after the end of dataset-initializer: no room is kept"
    assert later in answer.text


def test_a_stage_waits_with_the_first_if_there_is_no_room_for_both(desk: Desk) -> None:
    desk.cluster["nodes"][0]["count"] = 3

    answer = desk.ask(str(EXAMPLES / "workloads" / "mpijob.yaml"))

    assert answer.code == 1
    assert "MPIJob default/mpijob (queue research) waits: 0 of 5 pods placed" in answer.text


def test_independent_pods_run_only_if_all_of_them_do(desk: Desk) -> None:
    web = yaml.safe_load((EXAMPLES / "workloads" / "deployment.yaml").read_text())
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/gpu": 4}
    }

    answer = desk.ask(desk.file("web.yaml", web))

    assert answer.code == 1
    assert "Deployment default/web (queue small-team) waits: 2 of 3 pods placed" in answer.text


def test_minimum_queue_user_and_class_equal_the_groupers(desk: Desk) -> None:
    asked = {
        "scheduling.bindery.dev/min-member": "1",
        "scheduling.bindery.dev/queue": "small-team",
        "scheduling.bindery.dev/user": "ada",
    }

    answer = desk.ask(desk.file("job.yaml", job(annotations=asked)))

    assert answer.code == 0
    assert outcomes(answer) == [("Job/train", "small-team", True, 1)]


@pytest.mark.parametrize(
    ("namespace", "labels", "code", "said"),
    [
        ("team", {}, 0, "Job team/train (queue default) runs: 8 of 8"),
        ("team", {"scheduling.bindery.dev/enabled": "false"}, 2, "default-scheduler"),
        ("default", {}, 2, "default-scheduler; write schedulerName: bindery"),
    ],
)
def test_only_enabled_pods_of_an_enabled_namespace_get_bindery_as_scheduler(
    desk: Desk, namespace: str, labels: dict[str, str], code: int, said: str
) -> None:
    plain = job()
    del plain["spec"]["template"]["spec"]["schedulerName"]
    plain["spec"]["template"]["metadata"] = {"labels": labels}

    answer = desk.ask(desk.file("job.yaml", plain), "-n", namespace)

    assert answer.code == code
    assert said in answer.text + answer.errors


def test_a_namespace_of_the_manifests_has_its_queue_and_is_enabled(desk: Desk) -> None:
    labels = {
        "scheduling.bindery.dev/enabled": "true",
        "scheduling.bindery.dev/queue": "research",
    }
    metadata = {"name": "new", "labels": labels}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    plain = job()
    del plain["spec"]["template"]["spec"]["schedulerName"]
    text = yaml.safe_dump_all([namespace, plain])

    answer = desk.ask(desk.file("all.yaml", text), "-n", "new")

    assert outcomes(answer) == [("Job/train", "research", True, 8)]


def test_the_queue_of_the_namespace_applies_to_workloads(desk: Desk) -> None:
    answer = desk.ask(desk.file("job.yaml", job()), "-n", "named")

    assert outcomes(answer) == [("Job/train", "vision", True, 8)]


def test_rows_of_users_create_gangs_of_their_kinds(desk: Desk) -> None:
    example = EXAMPLES / "workloads" / "own-kind"
    training, rows = str(example / "training.yaml"), str(example / "rows.yaml")

    unknown = desk.ask(training)
    as_option = desk.ask(training, "--rows", rows)
    as_manifest = desk.ask(training, rows)

    assert unknown.code == 2
    assert "Training/big: Bindery does not know which pods it creates" in unknown.errors
    assert outcomes(as_option) == [("Training/big", "research", True, 11)]
    assert as_manifest.wire == as_option.wire


def test_pods_marked_by_other_tools_are_one_gang(desk: Desk) -> None:
    """Two Jobs with Kueue's mark of one group."""
    marks = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "both"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "4"},
    }
    jobs = [job(size=2), job(size=2)]
    for name, each in zip(("a", "b"), jobs, strict=True):
        each["metadata"]["name"] = name
        each["spec"]["template"]["metadata"] = marks

    answer = desk.ask(desk.file("jobs.yaml", yaml.safe_dump_all(jobs)))

    (outcome,) = answer.wire["jobs"]
    assert outcome["job"]["name"] == "kueue-both"
    assert (outcome["runs"], len(outcome["pods"])) == (True, 4)


def test_pods_of_a_kubernetes_pod_group_are_planned_without_it_with_a_note(
    desk: Desk,
) -> None:
    upstream = job(size=2)
    upstream["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "theirs"}

    answer = desk.ask(desk.file("job.yaml", upstream))

    assert "warning: PodGroup theirs of scheduling.k8s.io is not read" in answer.errors


def test_refusals_of_the_webhook_are_reported(desk: Desk) -> None:
    desk.cluster["queues"] = [{"name": "closed", "namespaces": {"names": ["other"]}}]
    closed = job(labels={"scheduling.bindery.dev/queue": "closed"})
    closed["spec"]["template"]["metadata"] = {
        "annotations": {"scheduling.bindery.dev/min-members": "4"}
    }

    answer = desk.ask(desk.file("job.yaml", closed))

    assert answer.code == 1
    refused = "warning: the webhook, where it runs, refuses"
    assert f"{refused} Job/train: namespace default may not use queue closed" in answer.errors
    assert f"{refused} the pods of Job/train: annotation scheduling.bindery" in answer.errors
    assert "did you mean the annotation scheduling.bindery.dev/min-member?" in answer.errors


def test_problems_that_the_grouper_would_report_are_reported(desk: Desk) -> None:
    high = job(annotations={"scheduling.bindery.dev/min-member": "9"})

    answer = desk.ask(desk.file("job.yaml", high))

    assert answer.code == 1
    assert "warning: Job/train: the minimum is 9, and at most 8 pods exist" in answer.errors


def test_a_workload_with_unknown_pods_is_skipped_and_the_rest_is_planned(desk: Desk) -> None:
    chat = {
        "apiVersion": "apps.nvidia.com/v1alpha1",
        "kind": "NIMService",
        "metadata": {"name": "chat"},
    }

    answer = desk.ask(desk.file("all.yaml", yaml.safe_dump_all([chat, job()])))

    assert answer.code == 0
    assert answer.errors == "NIMService/chat is ignored: add what it creates\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"template": {"metadata": {"labels": {"a": 1}}}}, "Expected `str`, got `int`"),
        ({"template": {"spec": {"containers": "none"}}}, "Pod train-0: Expected"),
        ({"parallelism": "two"}, "spec.parallelism: a number of 0 or more is expected"),
        ({"parallelism": 60_000, "completions": 60_000}, "at most 50,000 pods are supported"),
        ({"template": None}, "spec.template: this key is required"),
    ],
)
def test_an_unusable_workload_is_an_error_with_its_place_and_reason(
    desk: Desk, changes: dict[str, Any], said: str
) -> None:
    wrong = job()
    for key, value in changes.items():
        if isinstance(value, dict):
            wrong["spec"][key].update(value)
        else:
            wrong["spec"][key] = value

    answer = desk.ask(desk.file("job.yaml", wrong))

    assert (answer.code, answer.text) == (2, "")
    assert said in answer.errors
    assert len(answer.errors.splitlines()) == 1


def test_pods_get_unused_names(desk: Desk) -> None:
    desk.cluster["jobs"] = [
        {"name": "train", "pods": [{"gpus": 1, "state": "Running", "node": "node0"}]}
    ]

    answer = desk.ask(desk.file("job.yaml", job(size=2, gpus=1)))

    assert outcomes(answer) == [("Job/train", "default", True, 2)]
    (outcome,) = answer.wire["jobs"]
    assert "train-0" not in {pod["name"] for pod in outcome["pods"]}


def test_pods_in_the_same_input_as_their_workload_are_not_duplicated(desk: Desk) -> None:
    template = job()["spec"]["template"]["spec"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"train-{index}", "ownerReferences": [{**owner, "uid": "1-2"}]},
            "spec": template,
        }
        for index in range(2)
    ]
    partly = job(size=2)

    answer = desk.ask(desk.file("all.yaml", yaml.safe_dump_all([partly, *pods])))

    assert outcomes(answer) == [("Job/train", "default", True, 2)]


# ---- files, folders, stdin ----------------------------------------------------------------------


def test_several_files_and_folders_are_one_submission(desk: Desk) -> None:
    desk.cluster["queues"] = []
    desk.file("queues/research.yaml", (EXAMPLES / "queues.yaml").read_text())
    desk.file("queues/notes.txt", "no manifest")
    train = desk.file(
        "train.json", json.dumps(job(labels={"kueue.x-k8s.io/queue-name": "research"}))
    )

    answer = desk.ask("-f", str(desk.folder / "queues"), "--filename", train)

    assert outcomes(answer) == [("Job/train", "research", True, 8)]
    assert desk.ask(train, "-f", str(desk.folder / "queues")).wire["runs"] is True


def test_folders_below_a_folder_are_read_on_request(desk: Desk) -> None:
    folder = desk.folder / "all"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "job.yml").write_text(yaml.safe_dump(job()))

    flat = desk.ask(str(folder))

    assert flat.code == 2
    assert "this folder has no *.yaml, *.yml or *.json file; -R looks in" in flat.errors
    assert outcomes(desk.ask("-R", str(folder))) == [("Job/train", "default", True, 8)]


def test_manifests_are_read_from_stdin(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def give(text: str) -> None:
        stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
        monkeypatch.setattr("sys.stdin", stdin)

    cluster = desk.file("cluster.yaml", desk.cluster)
    give(yaml.safe_dump(job()))
    done = desk._bindery("whatif", "-", "--file", cluster)
    give("")
    nothing = desk._bindery("whatif", "-f", "-", "--file", cluster)

    assert done.returncode == 0
    assert "Job default/train (queue default) runs: 8 of 8 pods placed" in done.stdout
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert "stdin:1: the file is empty" in nothing.stderr


def test_the_usage_is_shown_without_a_file(desk: Desk, command_line: CommandLine) -> None:
    done = command_line("whatif", "--file", desk.file("cluster.yaml", desk.cluster))

    assert done.returncode == 2
    assert "a FILE is needed; - reads from stdin" in done.stderr
