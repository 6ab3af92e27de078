"""The `bindery` command as a user calls it: output, messages, exit codes."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.commandline import CommandLine

PASSES = """
name: passes
nodes: [{name: node0, gpus: 1}]
jobs: [{name: a, pods: [{gpus: 1}]}]
expect: {pods: {a-0: {state: Running}}}
"""
FAILS = PASSES.replace("passes", "fails").replace("gpus: 1}]}]", "gpus: 2}]}]")
MALFORMED = "name: wrong\njobs:\n- name: a\n  minMembers: 2\n"
UNSUPPORTED = "name: future\nconfig: {plugins: {tomorrow: {}}}\n"


def bindery(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).with_name("bindery")), *arguments]
    plain = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "COLUMNS": "100"}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**plain, **environment},
    )


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {"passes": PASSES, "fails": FAILS, "malformed": MALFORMED, "future": UNSUPPORTED}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text.lstrip())
    return {name: str(tmp_path / f"{name}.yaml") for name in texts}


def test_passed_scenarios_end_with_0(files: dict[str, str]) -> None:
    done = bindery("scenario", "run", files["passes"])

    assert done.returncode == 0
    assert done.stdout == f"ok  {files['passes']}: passes (1 cycle)\n1 ok, 0 failed\n"
    assert done.stderr == ""


def test_a_failed_expectation_ends_with_1_and_is_reported(
    command_line: CommandLine, files: dict[str, str]
) -> None:
    done = command_line("scenario", "run", files["passes"], files["fails"])

    assert done.returncode == 1
    assert f"FAILED  {files['fails']}: fails (1 cycle)" in done.stdout
    assert "    pod a-0: state is Pending, expected Running (Unschedulable: " in done.stdout
    assert done.stdout.endswith("1 ok, 1 failed\n")


def test_a_malformed_file_ends_with_2_and_the_others_are_run(
    command_line: CommandLine, files: dict[str, str]
) -> None:
    done = command_line("scenario", "run", files["malformed"], files["passes"], files["future"])

    assert done.returncode == 2
    assert f"ok  {files['passes']}: passes" in done.stdout
    first, second = done.stderr.splitlines()
    assert first.startswith(f"{files['malformed']}:4: jobs[0].minMembers: ")
    assert second == f"{files['future']}:2: not supported yet: config.plugins.tomorrow"


def test_json_is_one_object_a_line(command_line: CommandLine, files: dict[str, str]) -> None:
    done = command_line("scenario", "run", "--json", files["passes"], files["fails"])

    assert done.returncode == 1
    passes, fails = map(json.loads, done.stdout.splitlines())
    assert list(passes) == ["file", "name", "ok", "cycles", "pods", "queues", "failures"]
    assert (passes["name"], passes["ok"], passes["failures"]) == ("passes", True, [])
    assert (fails["name"], fails["ok"]) == ("fails", False)
    assert fails["pods"]["a-0"]["state"] == "Pending"


def test_a_folder_means_all_scenario_files_below_it_in_order(
    command_line: CommandLine, files: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "policies"
    for name in ("b.yaml", "a.yml", "deeper/c.yaml", "notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(PASSES)

    done = command_line("scenario", "run", "--json", files["passes"], str(folder))

    assert done.returncode == 0
    ran = [json.loads(line)["file"] for line in done.stdout.splitlines()]
    below = [str(folder / name) for name in ("a.yml", "b.yaml", "deeper/c.yaml")]
    assert ran == [files["passes"], *below]


def test_a_folder_without_scenario_files_ends_with_2_and_the_others_are_run(
    command_line: CommandLine, files: dict[str, str], tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    done = command_line("scenario", "run", str(empty), files["passes"])

    assert done.returncode == 2
    assert f"ok  {files['passes']}: passes" in done.stdout
    assert done.stderr == f"{empty}:1: there is no *.yaml or *.yml file in this folder\n"


def test_a_missing_cluster_is_one_clear_line(tmp_path: Path) -> None:
    done = bindery("--kubeconfig", str(tmp_path / "missing"), "get", "queues")

    assert done.returncode == 3
    assert done.stdout == ""
    missing = tmp_path / "missing"
    assert done.stderr == f"bindery: kubeconfig {missing}: No such file or directory\n"


def test_the_version_can_be_requested_by_an_option() -> None:
    done = bindery("--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"bindery {version('bindery')}\n"


def test_version_needs_no_cluster() -> None:
    done = bindery("version", "--client")

    assert done.returncode == 0
    assert done.stdout.startswith("client: 0.")


def test_an_unknown_kind_is_a_usage_error(command_line: CommandLine) -> None:
    done = command_line("get", "pods")

    assert done.returncode == 2
    assert "queues" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "version",
        "get",
        "queues",
        "explain",
        "whatif",
        "scenario run",
        "snapshot",
        "scheduler",
        "binder",
    ],
)
def test_every_command_has_help(command_line: CommandLine, command: str) -> None:
    done = command_line(*command.split(), "--help")

    assert done.returncode == 0, done.stderr
    assert "Usage: bindery" in done.stdout


def test_help_lists_every_command(command_line: CommandLine) -> None:
    done = command_line("--help")

    assert done.returncode == 0
    for command in (
        "get",
        "queues",
        "explain",
        "whatif",
        "scenario",
        "snapshot",
        "scheduler",
        "binder",
        "nodeagent",
    ):
        assert command in done.stdout
