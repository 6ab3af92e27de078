"""`bindery queues`: the tree, its bars and marks, and the output for programs."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

import pytest
import yaml

from bindery.cli.lists.queuetree import ASCII, UNICODE, bar
from bindery.scheduler.insight.shares import ResourceShare
from tests.cli.test_command import bindery
from tests.commandline import CommandLine

CLUSTER = """
nodes: [{name: "node{i}", count: 2, gpus: 8}]
queues:
- {name: org, gpu: {quota: 12}}
- {name: vision, parent: org, gpu: {quota: 8, weight: 1, limit: 12}, cpu: {limit: "10"}}
- {name: speech, parent: org, gpu: {quota: 4, weight: 1}}
- {name: shut, state: Closed}
jobs:
- {name: train, queue: vision, pods: [{count: 6, gpus: 1, cpu: "1", state: Running, node: node0}]}
- {name: talk, queue: speech, pods: [{count: 2, gpus: 1, state: Running, node: node1}]}
- {name: more, queue: vision, pods: [{count: 12, gpus: 1}]}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return str(path)


Lines = Callable[..., list[str]]


@pytest.fixture
def lines(command_line: CommandLine) -> Lines:
    """What `bindery queues` draws."""

    def drawn(*arguments: str, columns: int = 100) -> list[str]:
        done = command_line("queues", *arguments, columns=columns)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return drawn


class Amounts(TypedDict, total=False):
    """Fields of a `ResourceShare`."""

    quota: float | None
    weight: float
    fair_share: float
    allocated: float
    non_preemptible: float
    requested: float
    limit: float | None


def share(**amounts: Unpack[Amounts]) -> ResourceShare:
    """Return a share that holds nothing, but for `amounts`."""
    nothing = ResourceShare(
        quota=None,
        weight=1.0,
        fair_share=0.0,
        allocated=0.0,
        non_preemptible=0.0,
        requested=0.0,
        limit=None,
    )
    return replace(nothing, **amounts)


def test_the_tree_shows_every_queue_below_its_parent_with_its_numbers(
    lines: Lines, cluster: str
) -> None:
    title, heading, *rows = lines("--file", cluster)

    assert title == "GPUs: 16 in all, 8 allocated, 12 more asked for"
    assert heading.split()[:6] == ["QUEUE", "HELD", "ASKED", "FAIR", "QUOTA", "LIMIT"]
    assert [row.split()[:7] for row in rows[:4]] == [
        ["org", "8", "20", "12", "12", "-", rows[0].split()[6]],
        ["├─", "speech", "2", "2", "2", "4", "-"],
        ["└─", "vision", "6", "18", "10", "8", "12"],
        ["shut", "0", "0", "0", "0", "-", rows[3].split()[6]],
    ]
    assert rows[4] == "shut: QueueClosed: queue shut is closed"


@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_line_is_wider_than_the_terminal_and_bars_use_the_remaining_width(
    lines: Lines, cluster: str, width: int
) -> None:
    drawn = lines("--file", cluster, columns=width)

    assert max(map(len, drawn)) == width


def test_devices_of_resource_claims_are_gpus(lines: Lines, tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text("""
nodes: [{name: n, gpus: 1}]
queues: [{name: q, gpu: {quota: 2}}]
deviceClasses: [{kind: DeviceClass, metadata: {name: gpu.nvidia.com}}]
resourceSlices:
- kind: ResourceSlice
  metadata: {name: n}
  spec: {driver: d, nodeName: n, pool: {name: n}, devices: [{name: gpu-0}, {name: gpu-1}]}
resourceClaims:
- kind: ResourceClaim
  metadata: {name: held}
  spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}]}}
  status: {allocation: {devices: {results: [{request: r, driver: d, pool: n, device: gpu-0}]}}}
- kind: ResourceClaim
  metadata: {name: wanted}
  spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}]}}
jobs:
- {name: a, queue: q, pods: [{claims: [held], state: Running, node: n}]}
- {name: b, queue: q, pods: [{claims: [wanted]}]}
""")

    title, _, row, *_ = lines("--file", str(path))

    assert title == "GPUs: 3 in all, 1 allocated, 1 more asked for"
    assert row.split()[:5] == ["q", "1", "2", "2", "2"]


def test_cores_are_drawn_on_request(lines: Lines, cluster: str) -> None:
    drawn = lines("--file", cluster, "--resource", "cpu")

    assert drawn[0] == "CPU cores: 40 in all, 6 allocated, 0 more asked for"
    assert drawn[4].split()[1:7] == ["vision", "6", "6", "6", "-", "10"]


def test_wide_adds_weight_priority_and_gangs(lines: Lines, cluster: str) -> None:
    _, heading, *rows = lines("--file", cluster, "-o", "wide", columns=140)

    assert heading.split()[6:10] == ["WEIGHT", "PRIORITY", "RUNNING", "WAITING"]
    assert rows[2].split()[7:11] == ["1", "100", "1", "1"]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_json_has_all_resources_of_all_queues(
    command_line: CommandLine, cluster: str, form: str
) -> None:
    done = command_line("queues", "--file", cluster, "-o", form)

    answer = json.loads(done.stdout) if form == "json" else yaml.safe_load(done.stdout)
    assert answer["total"]["gpu"] == 16
    (vision,) = (queue for queue in answer["queues"] if queue["name"] == "vision")
    assert vision["parent"] == "org"
    assert vision["resources"]["gpu"] == {
        "quota": 8,
        "weight": 1,
        "fairShare": 10,
        "allocated": 6,
        "nonPreemptible": 0,
        "requested": 18,
        "limit": 12,
        "kept": 0,
    }
    assert vision["resources"]["cpu"]["quota"] is None


def test_an_unknown_resource_is_answered_with_the_existing_ones(
    command_line: CommandLine, cluster: str
) -> None:
    done = command_line("queues", "--file", cluster, "--resource", "tpu")

    assert done.returncode == 2
    assert done.stderr == ("bindery: no queue and no node has tpu; known: cpu, gpu, memory\n")


def test_a_terminal_without_unicode_gets_ascii_characters(cluster: str) -> None:
    drawn = bindery("queues", "--file", cluster, PYTHONIOENCODING="ascii").stdout.splitlines()

    assert all(line.isascii() for line in drawn)
    assert any("#" in line and "^" in line for line in drawn)


def test_watch_redraws_when_the_cluster_changes(cluster: str) -> None:
    command = [str(Path(sys.executable).with_name("bindery")), "queues", "--watch"]
    with subprocess.Popen([*command, "--file", cluster], stdout=subprocess.PIPE, text=True) as seen:
        assert seen.stdout is not None
        first = seen.stdout.readline()
        fewer = CLUSTER.replace("count: 2, gpus: 8", "count: 1, gpus: 24")
        Path(cluster).write_text(fewer.replace("node1", "node0"))
        later = next(line for line in seen.stdout if line.startswith("GPUs:") and line != first)
        seen.send_signal(signal.SIGINT)
        seen.stdout.read()

    assert (first[:10], later[:10]) == ("GPUs: 16 i", "GPUs: 24 i")
    assert seen.returncode == 0


@pytest.mark.parametrize(
    ("of", "drawn"),
    [
        (share(), "··········"),
        (share(allocated=5, requested=5), "█████·····"),
        (share(allocated=5, requested=8), "█████░░░··"),
        (share(allocated=0.1, requested=0.2), "█░········"),
        (share(allocated=10, requested=99), "██████████"),
        (share(quota=4, fair_share=6, limit=9), "···|·◆··]·"),
        (share(quota=6, fair_share=6), "·····◆····"),
        (share(quota=99), "··········"),
    ],
)
def test_a_bar_shows_allocated_and_waiting_amounts_and_the_marks(
    of: ResourceShare, drawn: str
) -> None:
    assert bar(of, 10.0, 10) == drawn


def test_a_queue_that_gangs_name_and_that_does_not_exist_is_marked(
    tmp_path: Path, lines: Lines
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "nodes: [{name: n, gpus: 8}]\nqueues: [{name: real}]\n"
        "jobs: [{name: a, queue: nowhere, pods: [{gpus: 1}]}]\n"
    )

    drawn = lines("--file", str(path))

    assert any(line.startswith("nowhere (missing)") for line in drawn)
    assert not any(line.startswith("real (missing)") for line in drawn)
    assert "nowhere: QueueDoesNotExist: queue nowhere does not exist" in drawn


def test_all_marks_of_a_bar_differ() -> None:
    for marks in (UNICODE, ASCII):
        signs = (marks.held, marks.wanted, marks.nothing, marks.quota, marks.fair, marks.limit)
        assert len(set(signs)) == len(signs)


def test_room_that_is_kept_for_a_later_stage_has_a_column(tmp_path: Path, lines: Lines) -> None:
    path = tmp_path / "stages.yaml"
    path.write_text(
        """
nodes: [{name: node0, gpus: 4}]
queues: [{name: org}, {name: team, parent: org, gpu: {quota: 4}}]
jobs:
- name: set
  queue: team
  subGroups:
  - {name: first, minMember: 1}
  - {name: later, minMember: 2, after: [{subGroup: first, condition: Ready}], template: {gpus: 1}}
  pods:
  - {gpus: 1, subGroup: first, state: Running, node: node0}
"""
    )

    title, heading, *rows = lines("--file", str(path))

    assert title == "GPUs: 4 in all, 1 allocated, 2 kept beside pods, 0 more asked for"
    assert heading.split()[:4] == ["QUEUE", "HELD", "KEPT", "ASKED"]
    assert [row.split()[:3] for row in rows[:2]] == [["org", "1", "2"], ["└─", "team", "1"]]
