"""The output of commands for a BindRequest with the Statements of several gangs."""

from dataclasses import replace

import msgspec
import pytest
import yaml

from bindery.answers.errors import NoAnswerError
from bindery.answers.explanation import explain
from bindery.answers.listings import request_rows
from bindery.answers.source import Source
from bindery.answers.subjects import subject
from bindery.api.names import STATEMENT_LABEL
from bindery.cli.tables import print_list
from bindery.cli.text.gang import job_lines
from bindery.kube.objects.bindrequests import (
    BindRequest,
    BindRequestSpec,
    BindRequestStatus,
    PodBinding,
    PodGroupReference,
    StatementSpec,
    StatementStatus,
    UnboundPod,
)
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import Meta
from tests.commandline import CommandLine
from tests.inlinescenarios import scenario_of, snapshot_of, source_of
from tests.scenario.snapshots import written

SCENARIO = scenario_of(
    """
    nodes: [{name: "node{i}", count: 4, cpu: "8"}]
    queues: [{name: research}]
    jobs:
    - {name: done, queue: research, pods: [{count: 2, cpu: "1", state: Running, node: node0}]}
    - {name: waits, queue: research, pods: [{count: 2, cpu: "1"}]}
    - {name: refused, queue: research, pods: [{count: 2, cpu: "1"}]}
    - {name: other, queue: research, pods: [{count: 1, cpu: "1"}]}
    """
)
NAME = "done-0f3a-1"
REASON = "VolumeNotBound"
MESSAGE = "claim scratch is not bound yet"


def statement(snapshot: ClusterSnapshot, gang: str, *nodes: str) -> StatementSpec:
    """Return the Statement that binds the pods of `gang` to `nodes`."""
    (group,) = [each for each in snapshot.groups if each.metadata.name == gang]
    pods = snapshot.pods_by_group["default", gang]
    bindings = [
        PodBinding(pod_name=pod.metadata.name, pod_uid=pod.metadata.uid, selected_node=node)
        for pod, node in zip(pods, nodes, strict=True)
    ]
    return StatementSpec(
        id=f"{gang}-1",
        pods=bindings,
        pod_group=PodGroupReference(name=gang, uid=group.metadata.uid),
    )


def shared(*left_out: str) -> Source:
    """Return the cluster with a request of three gangs: bound, being bound and refused.

    `left_out`: gangs that the request does not carry.
    """
    source = source_of(SCENARIO)
    snapshot = source.snapshot
    placed = {"done": ["node0"] * 2, "waits": ["node1", "node2"], "refused": ["node3"] * 2}
    statements = [
        statement(snapshot, gang, *nodes) for gang, nodes in placed.items() if gang not in left_out
    ]
    unbound = [
        UnboundPod(pod_name=pod.pod_name, pod_uid=pod.pod_uid, node="node3", reason="NodeGone")
        for each in statements
        for pod in each.pods
        if each.id == "refused-1"
    ]
    outcomes = [
        StatementStatus(id="done-1", phase="Succeeded", reason="Bound"),
        StatementStatus(id="waits-1", reason=REASON, message=MESSAGE, failed_attempts=2),
        StatementStatus(
            id="refused-1",
            phase="Failed",
            reason="NodeGone",
            message="node node3 is gone",
            unbound_pods=unbound,
        ),
    ]
    stored = BindRequest(
        metadata=Meta(
            name=NAME,
            namespace="default",
            uid="request",
            creation_timestamp=SCENARIO.now.isoformat(),
            labels={STATEMENT_LABEL: "x"},
        ),
        spec=BindRequestSpec(statements=statements, fencing_token=3),
        status=BindRequestStatus(statements=outcomes, phase="Binding"),
    )
    return replace(source, snapshot=replace(snapshot, statements=stored.each()))


def explained(source: Source, name: str) -> list[str]:
    return job_lines(explain(source, subject(source.snapshot, name, "default"), source.now))


def test_each_statement_has_its_own_line() -> None:
    rows = request_rows(shared().snapshot, SCENARIO.now)

    columns = ("name", "gang", "statement", "phase", "bound", "nodes", "attempts", "reason")
    assert [tuple(row[column] for column in columns) for row in rows] == [
        (NAME, "done", "done-1", "Succeeded", "2/2", "node0", 0, "Bound"),
        (NAME, "waits", "waits-1", "Pending", "0/2", "node1,node2", 2, f"{REASON}: {MESSAGE}"),
        (NAME, "refused", "refused-1", "Failed", "0/2", "node3", 0, "NodeGone: node node3 is gone"),
    ]


@pytest.mark.parametrize(
    ("gang", "shown"),
    [("waits", ["waits"]), ("pod/waits-1", ["waits"]), ("other", []), ("wait", [])],
)
def test_the_lines_of_one_gang_can_be_selected(gang: str, shown: list[str]) -> None:
    rows = request_rows(shared().snapshot, SCENARIO.now, gang)

    assert [row["gang"] for row in rows] == shown


def test_only_requests_can_be_selected_by_their_gang(command_line: CommandLine) -> None:
    done = command_line("get", "queues", "--gang", "waits")

    assert done.returncode == 2
    assert "--gang" in done.stderr


def test_the_rows_are_written_as_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    rows = request_rows(shared().snapshot, SCENARIO.now)

    print_list(rows, "yaml")

    assert yaml.safe_load(capsys.readouterr().out) == rows


def test_pods_without_a_gang_are_named() -> None:
    (request, *_) = shared().snapshot.statements
    alone = msgspec.structs.replace(
        request, spec=msgspec.structs.replace(request.spec, pod_group=None)
    )

    (row,) = request_rows(ClusterSnapshot(statements=(alone,)), SCENARIO.now)

    assert row["gang"] == "pod/done-0,pod/done-1"


def test_a_withdrawn_statement_is_shown_as_withdrawn_until_it_has_ended() -> None:
    requests = [msgspec.structs.replace(r, is_withdrawn=True) for r in shared().snapshot.statements]

    rows = request_rows(ClusterSnapshot(statements=tuple(requests)), SCENARIO.now)

    reasons = {row["gang"]: row["reason"] for row in rows}
    assert reasons["waits"] == "withdrawn by the scheduler"
    assert reasons["refused"] == "NodeGone: node node3 is gone"


def test_a_gang_names_its_request_while_it_is_bound() -> None:
    lines = explained(shared(), "waits")

    name = f"Its BindRequest {NAME} (shared with 2 other Statements)"
    assert lines[1:] == [
        f"{name} is Pending: 0 of 2 pods are bound. {REASON}: {MESSAGE}.",
        "None of its pods waits for the scheduler.",
    ]


def test_a_pod_names_the_request_of_its_gang() -> None:
    lines = explained(shared(), "pod/waits-0")

    assert lines[0] == "Pod default/waits-0 is being bound to node node1."
    assert lines[2].startswith(f"Its BindRequest {NAME} (shared ")


def test_a_refused_gang_names_the_failed_request() -> None:
    lines = explained(shared("done"), "refused")

    name = f"Its BindRequest {NAME} (shared with 1 other Statement)"
    text = f"{name} is Failed: 0 of 2 pods are bound. NodeGone: node node3 is gone."
    assert lines[1] == text


def test_a_bound_gang_names_no_request() -> None:
    assert not any("BindRequest" in line for line in explained(shared(), "done"))


def test_a_shared_request_shows_each_outcome_and_explains_the_first_waiting_gang() -> None:
    lines = explained(shared(), f"br/{NAME}")

    assert lines[:4] == [
        f"BindRequest default/{NAME} carries 3 Statements: 2 of 6 pods are bound.",
        "  done is Succeeded: 2 of 2 pods are bound. Bound.",
        f"  waits is Pending: 0 of 2 pods are bound. {REASON}: {MESSAGE}.",
        "  refused is Failed: 0 of 2 pods are bound. NodeGone: node node3 is gone.",
    ]
    assert lines[4].startswith("PodGroup default/waits ")
    assert not any(line.startswith("Its BindRequest") for line in lines)


def test_a_shared_request_with_only_bound_pods_explains_its_first_gang() -> None:
    lines = explained(shared("waits", "refused"), f"br/{NAME}")

    assert lines[0] == f"BindRequest default/{NAME} is Succeeded: 2 of 2 pods are bound. Bound."
    assert lines[1].startswith("PodGroup default/done ")


def test_a_shared_request_without_pods_shows_the_outcome_of_each_gang() -> None:
    source = shared()
    source = replace(source, snapshot=replace(source.snapshot, pods=()))

    with pytest.raises(NoAnswerError, match=r"carries 3 Statements(.|\n)*None of its pods exists"):
        explained(source, f"br/{NAME}")


def test_a_snapshot_keeps_the_statements_separate() -> None:
    source = shared()
    items = source.snapshot.everything()

    read = written(items, source.configuration, source.now.timestamp())

    found = [
        ([pod.pod_name for pod in each.spec.pods], each.status.phase, each.status.failed_attempts)
        for each in snapshot_of(read).statements
    ]
    assert found == [
        (["done-0", "done-1"], "Succeeded", 0),
        (["waits-0", "waits-1"], "Pending", 2),
        (["refused-0", "refused-1"], "Failed", 0),
    ]
