"""Traces in openb's format: reading, and the position of reported errors."""

import math
from pathlib import Path

import pytest

from bindery.simulation.openb import read_trace
from bindery.simulation.trace import TraceError
from tests.simulation.tracefiles import NODES, PODS, TINY, task, write_trace

NODE = "n,8000,8192,2,A10\n"


def test_tasks_of_a_gang_arrive_together_with_their_group() -> None:
    trace = read_trace(TINY)

    gang = trace.arrivals[0]
    assert gang.group is not None
    assert (gang.group.metadata.name, gang.group.spec.min_member) == ("train", 2)
    assert [pod.metadata.name for pod in gang.pods] == ["train-0", "train-1"]
    assert (gang.at_s, gang.runtime_s, gang.gpus) == (0.0, 100.0, 4.0)


def test_times_are_relative_to_the_first_task() -> None:
    trace = read_trace(TINY)

    assert [arrival.at_s for arrival in trace.arrivals] == [0.0, 10.0, 20.0, 20.0]
    assert [arrival.gpus for arrival in trace.arrivals] == [4.0, 0.5, 1.0, 0.0]
    assert trace.capacity_gpus == 4.0


def test_a_task_without_an_end_runs_for_ever(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path, NODE, task("a")))

    assert trace.arrivals[0].runtime_s == math.inf


@pytest.mark.parametrize(
    ("nodes", "pods", "where", "problem"),
    [
        ("n,eight,8192,2,A10\n", "", "nodes.csv:2:2", "'eight' is not a whole number"),
        ("n,8000,8192,-2,A10\n", "", "nodes.csv:2:4", "'-2' is not a whole number"),
        ("n,8000,8192\n", "", "nodes.csv:2:4", "5 columns are expected, 3 found"),
        (NODE + NODE, "", "nodes.csv:3:1", "n is also in line 2"),
        ("", "", "nodes.csv:1", "it has no nodes"),
        (NODE, task("a", milli=0), "pods.csv:2:5", "0 is not from 1 to 1000"),
        (NODE, task("a", milli=1500), "pods.csv:2:5", "1500 is not from 1 to 1000"),
        (NODE, task("a", gpus=2, milli=500), "pods.csv:2:5", "several GPUs are always whole"),
        (NODE, task("a") + task("a"), "pods.csv:3:1", "a is also in line 2"),
        (NODE, task("a", at=9, until=5), "pods.csv:2:10", "deleted before it starts"),
        (NODE, "a,1,1,1,1000,,LS,Running,soon,,\n", "pods.csv:2:9", "'soon' is not a time"),
        (NODE, "a,1,1,1,1000,,LS,Running,nan,,\n", "pods.csv:2:9", "'nan' is not a time"),
    ],
)
def test_an_error_has_its_file_line_and_column(
    tmp_path: Path, nodes: str, pods: str, where: str, problem: str
) -> None:
    with pytest.raises(TraceError) as raised:
        read_trace(write_trace(tmp_path, nodes, pods))

    assert f"{where}:" in str(raised.value)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("nodes", "pods", "problem"),
    [
        (None, PODS, "nodes.csv: cannot be read"),
        (NODES + NODE, None, "pods.csv: cannot be read"),
        (NODES + NODE, "name,cpu_milli\n", "pods.csv:1: the column memory_mib is missing"),
        (NODES + NODE, "", "pods.csv:1: the column cpu_milli is missing"),
    ],
)
def test_an_unusable_file_is_named_in_the_error(
    tmp_path: Path, nodes: str | None, pods: str | None, problem: str
) -> None:
    for name, text in (("nodes.csv", nodes), ("pods.csv", pods)):
        if text is not None:
            (tmp_path / name).write_text(text)

    with pytest.raises(TraceError, match=problem):
        read_trace(tmp_path)
