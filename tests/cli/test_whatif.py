"""`bindery whatif`: its predictions, its exit codes, and the input that it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bindery.cli.text.rehearsal import outcome_lines
from bindery.scheduler.insight.comeback import Comeback, Fate
from bindery.scheduler.insight.rehearsal import RehearsalOutcome, RehearsedEviction
from bindery.scheduler.insight.waiting import PlannedEviction
from bindery.scheduler.model.jobs import JobKey
from tests.commandline import CommandLine

CLUSTER = """
nodes: [{name: "node{i}", count: 2, gpus: 4}]
queues:
- {name: research, gpu: {quota: 4, weight: 1}}
- {name: vision, gpu: {quota: 4, weight: 1}}
- {name: small, gpu: {limit: 1}}
jobs:
- {name: "run{i}", count: 4, queue: research, pods: [{gpus: 1, state: Running, node: node0}]}
- {name: "over{i}", count: 2, queue: research, pods: [{gpus: 1, state: Running, node: node1}]}
- {name: once, queue: research, recreate: false, pods: [{gpus: 1, state: Running, node: node1}]}
"""

JOB = """
apiVersion: scheduling.bindery.dev/v1alpha1
kind: PodGroup
metadata: {name: tune}
spec: {queue: vision, minMember: 2}
---
apiVersion: batch/v1
kind: Job
metadata: {name: tune}
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {annotations: {scheduling.bindery.dev/pod-group: tune}}
    spec:
      schedulerName: bindery
      containers:
      - {name: main, image: busybox, resources: {limits: {nvidia.com/gpu: 1}}}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return str(path)


class Desk:
    """Where what is submitted is written, and the cluster that it is submitted to."""

    def __init__(self, folder: Path, cluster: str, command_line: CommandLine) -> None:
        self.file = folder / "submitted.yaml"
        self.cluster = cluster
        self._bindery = command_line

    def ask(self, text: str, *arguments: str) -> tuple[int, str, str]:
        """Return exit code, answer and errors."""
        self.file.write_text(text.lstrip())
        done = self._bindery("whatif", str(self.file), "--file", self.cluster, *arguments)
        return done.returncode, done.stdout, done.stderr

    def outcome(self, text: str, expected: int = 0) -> dict[str, Any]:
        """Return the answer for machines."""
        code, answer, errors = self.ask(text, "-o", "json")
        assert code == expected, errors
        outcome: dict[str, Any] = json.loads(answer)
        return outcome


@pytest.fixture
def desk(tmp_path: Path, cluster: str, command_line: CommandLine) -> Desk:
    return Desk(tmp_path, cluster, command_line)


def test_a_job_that_would_run_is_shown_with_its_nodes_and_victims(desk: Desk) -> None:
    code, answer, _ = desk.ask(JOB)

    assert code == 0
    assert "default/tune (queue vision) runs: 2 of 2 pods placed" in answer
    assert "node1: tune-0, tune-1" in answer
    assert "for default/tune" in answer
    gone = "and is gone: no controller creates it again"
    assert f"reclaim: default/once-0 leaves node1 (queue research) {gone}" in answer
    assert answer.endswith("Nothing has been changed.\n")


def test_json_has_the_same_answer(desk: Desk) -> None:
    outcome = desk.outcome(JOB)

    assert outcome["runs"] is True
    assert outcome["settled"] is True
    (job,) = outcome["jobs"]
    assert job["pods"] == [
        {"name": "tune-0", "node": "node1", "zones": []},
        {"name": "tune-1", "node": "node1", "zones": []},
    ]
    (eviction,) = outcome["evictions"]
    assert eviction["eviction"]["action"] == "reclaim"
    assert eviction["eviction"]["queue"] == "research"
    assert eviction["comesBack"] is False


def test_a_victim_with_a_controller_waits_again_after_its_eviction(desk: Desk) -> None:
    _, answer, _ = desk.ask(JOB.replace("gpu: 1", "gpu: 2"))

    assert "reclaim: default/over1-0 leaves node1 (queue research) and waits again" in answer


def test_an_unreachable_cluster_ends_with_3_without_an_answer(
    tmp_path: Path, command_line: CommandLine
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB)

    done = command_line("--kubeconfig", str(tmp_path / "none"), "whatif", str(job))

    assert (done.returncode, done.stdout) == (3, "")


def test_a_defect_ends_with_4_without_an_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("bindery.answers.submission.rehearse", fail)
    code, answer, errors = desk.ask(JOB)

    assert (code, answer) == (4, "")
    assert "Traceback" in errors
    assert errors.endswith("bindery: this is a defect, please report it: ZeroDivisionError()\n")


def test_the_help_lists_every_exit_code(command_line: CommandLine) -> None:
    told = " ".join(command_line("whatif", "--help").stdout.split())

    assert "0 if all of it would run, 1 if some of it would wait, 2 if FILE cannot be used" in told
    assert "3 if the cluster does not answer, 4 if Bindery itself fails" in told


def test_a_job_that_would_wait_ends_with_1_with_the_reason_and_advice(desk: Desk) -> None:
    code, answer, _ = desk.ask(JOB.replace("queue: vision", "queue: small"))

    assert code == 1
    assert "default/tune (queue small) waits: 0 of 2 pods placed" in answer
    assert "OverLimit: queue small holds 0 of its limit of 1 nvidia.com/gpu" in answer
    assert "raise the limit" in answer


def test_jobs_of_a_scenario_are_accepted_and_the_older_is_first(desk: Desk) -> None:
    outcome = desk.outcome(
        """
        jobs:
        - {name: first, queue: small, pods: [{gpus: 1}]}
        - {name: a-second, queue: small, pods: [{gpus: 1}]}
        """,
        expected=1,
    )

    jobs = outcome["jobs"]
    assert isinstance(jobs, list)
    assert {job["job"]["name"]: job["runs"] for job in jobs} == {"first": True, "a-second": False}


def test_more_nodes_and_changed_queues_can_be_tried(desk: Desk) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node9"}}
    room = {"cpu": 8, "memory": "8Gi", "pods": 10, "nvidia.com/gpu": 8}
    queue = {
        "apiVersion": "scheduling.bindery.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "small"},
        "spec": {"resources": {"gpu": {"limit": 8}}},
    }
    more = yaml.safe_dump_all([{**node, "status": {"allocatable": room}}, queue])

    big = JOB.replace("queue: vision", "queue: small").replace("gpu: 1", "gpu: 4")

    outcome = desk.outcome(f"{more}---{big}")

    (job,) = outcome["jobs"]
    assert {pod["node"] for pod in job["pods"]} == {"node9"}
    assert outcome["evictions"] == []


def test_jobs_that_would_wait_instead_are_named(desk: Desk) -> None:
    Path(desk.cluster).write_text(
        CLUSTER + '- {name: patient, queue: small, pods: [{gpus: 1, cpu: "1"}]}\n'
    )

    _, answer, _ = desk.ask(
        "jobs: [{name: urgent, queue: small, priority: build-preemptible, pods: [{gpus: 1}]}]"
    )

    assert "default/urgent (queue small) runs" in answer
    assert "1 running gang would wait instead: default/patient" in answer


GANG_ON_LOAN = """
nodes: [{name: n0, gpus: 8}]
queues:
- {name: lent, gpu: {quota: 6, weight: 1}}
- {name: owed, gpu: {quota: 2, weight: 1}}
jobs:
- {name: whole, queue: lent, pods: [{count: 4, gpus: 2, state: Running, node: n0}]}
"""


def test_an_evicted_gang_that_does_not_fit_again_is_counted_and_named(desk: Desk) -> None:
    Path(desk.cluster).write_text(GANG_ON_LOAN)

    code, answer, _ = desk.ask("jobs: [{name: claim, queue: owed, pods: [{gpus: 2}]}]")

    assert code == 0
    assert "default/whole-0 leaves n0 (queue lent) and waits again" in answer
    assert "1 running gang would wait instead: default/whole" in answer


def test_queues_that_cause_evictions_are_answered_with_the_evicted_pods(desk: Desk) -> None:
    Path(desk.cluster).write_text(
        GANG_ON_LOAN.replace("quota: 2", "quota: 0")
        + "- {name: claim, queue: owed, priority: 10, pods: [{gpus: 2}]}\n"
    )
    queue = {
        "apiVersion": "scheduling.bindery.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "owed"},
        "spec": {"resources": {"gpu": {"quota": 4}}},
    }

    _, answer, _ = desk.ask(yaml.safe_dump(queue))

    assert "1 gang would start, 1 would wait, 4 pods would go" in answer
    assert "1 running gang would wait instead: default/whole" in answer


@pytest.mark.parametrize(
    ("comeback", "runs_again", "text"),
    [
        (Comeback(Fate.COMES_BACK, 10.0), True, "comes back after 10 s, the backoff of its Job"),
        (
            Comeback(Fate.COMES_BACK, 10.0),
            False,
            "waits again, created after 10 s, the backoff of its Job",
        ),
        (Comeback(Fate.COMES_BACK), True, "runs again"),
        (Comeback(Fate.COMES_BACK), False, "waits again"),
        (Comeback(Fate.GONE), False, "is gone: no controller creates it again"),
    ],
)
def test_a_pod_comes_back_only_if_it_is_placed_again(
    comeback: Comeback, runs_again: bool, text: str
) -> None:
    claimant, victim = JobKey("a", "claim", True), JobKey("a", "gone", True)
    eviction = PlannedEviction("reclaim", "a", "gone-0", victim, "lent", "n0", "", claimant)
    told = RehearsedEviction(1, eviction, True, comeback, runs_again)
    outcome = RehearsalOutcome(1, True, (), (told,), (), ())

    assert f"a/gone-0 leaves n0 (queue lent) and {text}" in "\n".join(outcome_lines(outcome))


def test_only_effects_of_the_submitted_jobs_are_reported(desk: Desk) -> None:
    Path(desk.cluster).write_text(CLUSTER + "- {name: due, queue: vision, pods: [{gpus: 2}]}\n")

    outcome = desk.outcome('jobs: [{name: light, queue: small, pods: [{cpu: "1"}]}]')

    assert outcome["evictions"] == []
    assert outcome["wouldRunToo"] == []


def test_pods_of_other_node_pools_are_not_planned(desk: Desk) -> None:
    label = "{labels: {scheduling.bindery.dev/node-pool: other}, gpus: 1}"
    Path(desk.cluster).write_text(f"{CLUSTER}- {{name: theirs, pods: [{label}]}}\n")

    outcome = desk.outcome(JOB)

    assert outcome["runs"] is True
    assert outcome["wouldRunToo"] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (JOB.replace("minMember", "minMembers"), "submitted.yaml:4: spec.minMembers: unknown key"),
        ("a: [", "submitted.yaml:1: not YAML"),
        ("", "the file is empty"),
        (JOB.replace("schedulerName: bindery", "priority: 5"), "is planned by default-scheduler"),
        (JOB.replace("parallelism: 2", "parallelism: two"), "spec.parallelism: a number"),
        (
            JOB.replace("schedulerName:", "priorityClassName: none\n      schedulerName:"),
            "none does",
        ),
        ("jobs: [{name: a, pod: []}]", "submitted.yaml:1: jobs[0].pod: unknown key"),
        ("kind: Pod\nmetadata: {name: a}", "submitted.yaml:1: apiVersion: this key is required"),
        ("jobs: [{name: run0, pods: [{cpu: 1}]}]", "run0 already exists; use bindery explain"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}", "metadata.name: this key is required"),
    ],
)
def test_an_object_that_the_api_server_would_refuse_ends_with_2(
    desk: Desk, text: str, message: str
) -> None:
    code, answer, errors = desk.ask(text)

    assert code == 2
    assert answer == ""
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_objects_irrelevant_to_scheduling_are_skipped_and_reported(desk: Desk) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---"

    code, _, errors = desk.ask(service + JOB)

    assert code == 0
    assert errors == "Service/web is ignored: Bindery does not know which pods it creates\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: web}",
            "nothing in it is scheduled (Service/web: Bindery does not know which pods it creates)",
        ),
        (JOB.partition("---")[0], "submitted.yaml: it has PodGroups but no pods that name them"),
    ],
)
def test_a_file_without_relevant_objects_ends_with_2(desk: Desk, text: str, message: str) -> None:
    code, answer, errors = desk.ask(text)

    assert (code, answer) == (2, "")
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_a_job_of_another_scheduler_is_skipped_and_the_rest_is_planned(desk: Desk) -> None:
    _, _, ours = JOB.partition("---")
    foreign = ours.replace("name: tune", "name: web").replace("schedulerName: bindery", "x: y")

    code, answer, errors = desk.ask(f"{JOB}---{foreign}")

    assert code == 0
    assert "default/tune (queue vision) runs: 2 of 2 pods placed" in answer
    assert "web" not in answer
    assert errors == (
        "Job/web is left out: pod web-0 is planned by default-scheduler; "
        "write schedulerName: bindery\n"
    )


def test_a_bound_pod_of_another_scheduler_holds_room(desk: Desk) -> None:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    running = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "other"},
        "spec": {"nodeName": "node1", "containers": [container]},
        "status": {"phase": "Running"},
    }

    outcome = desk.outcome(f"{yaml.safe_dump(running)}---{JOB}")

    assert [job["job"]["name"] for job in outcome["jobs"]] == ["tune"]
    assert len(outcome["evictions"]) == 2


def test_pods_of_another_node_pool_are_skipped_and_reported(desk: Desk) -> None:
    label = "{labels: {scheduling.bindery.dev/node-pool: x}}"

    code, answer, errors = desk.ask(f"jobs: [{{name: b, pods: [{label}, {{cpu: 1}}]}}]")

    assert code == 1
    assert "default/b (queue default) waits: 0 of 1 pod placed" in answer
    assert "pod b-0 belongs to node pool 'x'; the plan is for node pool ''" in errors


def queue(name: str, **resources: dict[str, Any]) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "scheduling.bindery.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"resources": resources},
        }
    )


def test_a_limit_below_the_running_amount_is_explained(desk: Desk) -> None:
    code, answer, _ = desk.ask(queue("research", gpu={"quota": 4, "limit": 3}))

    assert code == 0
    assert "queue research would exceed its limit: 7 GPUs of a limit of 3" in answer
    assert "A limit evicts nothing: running pods continue." in answer
    assert "Room would be made" not in answer


def test_a_limit_above_the_running_amount_has_no_note(desk: Desk) -> None:
    _, answer, _ = desk.ask(queue("research", gpu={"quota": 4, "limit": 7}))

    assert "would hold more" not in answer


def test_an_unusable_queue_is_reported(desk: Desk) -> None:
    text = queue("below").replace("resources: {}", "parent: nowhere")

    assert "queue below: QueueDoesNotExist: queue nowhere does not exist" in desk.ask(text)[1]


CRON = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      parallelism: 3
      completions: 5
      template:
        spec:
          schedulerName: bindery
          containers:
          - {name: main, image: busybox, resources: {limits: {cpu: 1}}}
"""


def test_a_cron_job_is_planned_as_one_run_of_it(desk: Desk) -> None:
    code, answer, _ = desk.ask(CRON)

    assert code == 0
    assert "Job default/nightly (queue default) runs: 3 of 3 pods placed" in answer


def test_a_suspended_cron_job_creates_no_pods(desk: Desk) -> None:
    code, _, errors = desk.ask(CRON.replace("schedule:", "suspend: true\n  schedule:"))

    assert code == 2
    assert "CronJob/nightly: it is suspended" in errors


def test_a_cron_job_without_a_template_is_refused_at_its_line(desk: Desk) -> None:
    code, _, errors = desk.ask(CRON.replace("template:", "templates:"))

    assert code == 2
    assert "submitted.yaml:7: spec.jobTemplate.spec.template: this key is required" in errors


def test_the_items_of_a_list_from_kubectl_are_accepted(desk: Desk) -> None:
    items = list(yaml.safe_load_all(JOB))

    outcome = desk.outcome(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))

    assert outcome["runs"] is True


def test_the_examples_of_the_project_are_accepted(desk: Desk) -> None:
    examples = Path(__file__).parents[2] / "examples"
    texts = [(examples / name).read_text() for name in ("queues.yaml", "never-fits.yaml")]

    code, answer, _ = desk.ask("\n---\n".join(texts))

    assert code == 1
    assert "in all than requested" in answer or "insufficient" in answer


def test_queues_alone_are_answered_with_the_changes_for_each_gang(desk: Desk) -> None:
    Path(desk.cluster).write_text(
        CLUSTER + "- {name: due, count: 1, queue: small, pods: [{gpus: 1}, {gpus: 1}]}\n"
    )

    code, answer, _ = desk.ask(queue("small", gpu={"quota": 2, "limit": 2}))

    assert code == 0
    assert "1 gang would start, 0 would wait, 1 pod would go" in answer
    assert "Queues that change, in GPUs:" in answer
    table = [line.split("  ") for line in answer.splitlines() if line.startswith("  small ")]
    (numbers,) = ([part.strip() for part in parts if part.strip()] for parts in table)
    assert numbers == ["small", "0 -> 2", "0 -> 2", "0 -> 2", "2", "1 -> 2"]
    assert "1 waiting gang would run too: default/due" in answer


def test_a_queue_without_an_effect_is_reported_as_such(desk: Desk) -> None:
    code, answer, _ = desk.ask(queue("unused", gpu={"quota": 0, "limit": 1}))

    assert code == 0
    assert "no gang would start, wait or be evicted for it" in answer


def test_json_has_the_shares_of_queues(desk: Desk) -> None:
    outcome = desk.outcome(queue("research", gpu={"quota": 2, "overQuotaWeight": 1}))

    (change,) = [c for c in outcome["shares"] if (c["queue"], c["resource"]) == ("research", "gpu")]
    assert (change["before"]["quota"], change["after"]["quota"]) == (4, 2)
