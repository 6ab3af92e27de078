"""`bindery simulate`: the report as text, JSON and files, and refused input."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commandline import CommandLine

TINY = Path(__file__).parents[1] / "simulation" / "traces" / "tiny"
GOLDEN = Path(__file__).parent / "golden"


def test_a_trace_is_reported_as_text(command_line: CommandLine) -> None:
    done = command_line("simulate", str(TINY))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (GOLDEN / "simulate.txt").read_text()


def test_two_configurations_are_shown_side_by_side(
    command_line: CommandLine, tmp_path: Path
) -> None:
    second = tmp_path / "spread.yaml"
    second.write_text(yaml.safe_dump({"actions": ["allocate"]}))

    done = command_line("simulate", str(TINY), "--against", str(second))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (GOLDEN / "simulate-against.txt").read_text()


def test_the_report_is_written_as_json(command_line: CommandLine) -> None:
    def answer(form: str) -> Any:
        done = command_line("simulate", str(TINY), "--load", "2", "--seed", "7", "-o", form)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout) if form == "json" else yaml.safe_load(done.stdout)

    found = answer("json")

    assert found == answer("json") == answer("yaml")
    report = found["reports"]["default"]
    assert report["trace"] == "tiny"
    assert report["startedJobs"] == report["jobs"] > 4
    assert report["allocation"]["gpuPeak"] == 1.0
    assert {each["queue"] for each in report["fairness"]} == {"default", "speech", "vision"}


def test_the_report_is_written_as_a_page_and_a_picture(
    command_line: CommandLine, tmp_path: Path
) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"

    done = command_line("simulate", str(TINY), "--html", str(page), "--png", str(picture))

    assert done.returncode == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "Simulation of tiny" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_no_job_ends_with_arrivals_only(command_line: CommandLine) -> None:
    done = command_line("simulate", str(TINY), "--arrivals-only", "--load", "1.3", "-o", "json")

    report = json.loads(done.stdout)["reports"]["default"]
    assert report["endedJobs"] == 0
    assert 0 < report["allocation"]["gpuAtEnd"] == report["allocation"]["gpuPeak"] <= 1.0


def test_longer_cycles_plan_more_jobs_at_once(command_line: CommandLine) -> None:
    def cycles(*options: str) -> int:
        done = command_line("simulate", str(TINY), "-o", "json", *options)
        count = json.loads(done.stdout)["reports"]["default"]["cycles"]
        assert isinstance(count, int)
        return count

    assert cycles("--cycle", "60") < cycles()


def test_a_snapshot_is_simulated(command_line: CommandLine, tmp_path: Path) -> None:
    scenario = tmp_path / "cluster.yaml"
    scenario.write_text(
        "queues: [{name: q, gpu: {weight: 1}}]\n"
        "nodes: [{name: n, gpus: 2}]\n"
        "jobs: [{name: waits, queue: q, pods: [{gpus: 2}]}]\n"
    )

    done = command_line("simulate", str(scenario), "--until", "60", "-o", "json")

    report = json.loads(done.stdout)["reports"]["default"]
    assert (report["trace"], report["startedJobs"], report["gpus"]) == ("cluster", 1, 2.0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("nodes.csv", "16000", "lots"), "nodes.csv:2:2: cpu_milli: 'lots' is not a whole number"),
        (("pods.csv", ",500,", ",5000,"), "pods.csv:4:5: gpu_milli: 5000 is not from 1 to 1000"),
        (("pods.csv", ",speech,", ",speech,a,b"), "pods.csv:5:14: 13 columns are expected"),
    ],
)
def test_a_malformed_trace_is_a_one_line_error_with_its_place(
    command_line: CommandLine, tmp_path: Path, change: tuple[str, str, str], problem: str
) -> None:
    for name in ("nodes.csv", "pods.csv"):
        text = (TINY / name).read_text()
        (tmp_path / name).write_text(
            text.replace(change[1], change[2]) if name == change[0] else text
        )

    done = command_line("simulate", str(tmp_path))

    assert done.returncode == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_unusable_input_is_an_error_without_a_traceback(
    command_line: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
    broken = tmp_path / "broken.yaml"
    broken.write_text("plugins: [{name: nothing}]\n")
    cases = {
        ("simulate", str(tmp_path / "missing")): "missing",
        ("simulate", str(TINY), "--config", str(broken)): "there is no plugin nothing; known: ",
        ("simulate", str(TINY), "--html", str(tmp_path / "no" / "x.html")): "cannot be written",
    }
    for arguments, problem in cases.items():
        done = command_line(*arguments)

        assert done.returncode != 0, arguments
        assert problem in done.stderr
        assert "Traceback" not in done.stderr


def test_manifests_without_nodes(command_line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(
        "apiVersion: scheduling.bindery.dev/v1alpha1\nkind: Queue\nmetadata: {name: q}\nspec: {}\n"
    )

    done = command_line("simulate", str(tmp_path))

    assert done.returncode == 2
    assert "it has no manifests of nodes" in done.stderr
