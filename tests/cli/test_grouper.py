"""`bindery grouper rows`, `plan` and `import-karta`: offline, for people and for programs."""

import json
from pathlib import Path

import pytest
import yaml

from bindery.grouper.table import load
from tests.commandline import CommandLine

JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: train, labels: {scheduling.bindery.dev/queue: research}}
spec: {parallelism: 4, completions: 4, template: {spec: {}}}
"""
THING = "{apiVersion: example.com/v1, kind: Thing, metadata: {name: it}, spec: {nodes: 3}}\n"
ROWS = """apiVersion: scheduling.bindery.dev/v1alpha1
kind: GrouperTable
rows:
- match: {group: example.com, kind: Thing}
  min: spec.nodes
"""
KARTA = """apiVersion: run.ai/v1alpha1
kind: Karta
spec:
  structureDefinition:
    rootComponent: {name: thing, kind: {group: example.com, version: v1, kind: Thing}}
    childComponents:
    - {name: node, scaleDefinition: {replicasPath: .spec.nodes}}
    - {name: odd, scaleDefinition: {replicasPath: .spec.nodes * 2}}
  instructions:
    gangScheduling: {podGroup: {subGroups: [{componentName: node}, {componentName: odd}]}}
"""


def written(folder: Path, text: str, name: str = "file.yaml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_the_table_of_kinds_can_be_read(command_line: CommandLine) -> None:
    done = command_line("grouper", "rows")

    assert done.returncode == 0
    assert done.stdout.splitlines()[0].split() == ["KIND", "GROUP", "MINIMUM", "STAGES", "CLASS"]
    assert "Job.batch" in done.stdout
    assert "executor after driver (Ready)" in done.stdout


def test_the_rows_are_written_for_programs(command_line: CommandLine, tmp_path: Path) -> None:
    mine = written(tmp_path, ROWS)

    as_json = command_line("grouper", "rows", "--rows", mine, "-o", "json")
    as_yaml = command_line("grouper", "rows", "--rows", mine, "-o", "yaml")

    rows = json.loads(as_json.stdout)
    assert {"match": {"group": "example.com", "kind": "Thing"}, "min": ["spec.nodes"]} in rows
    assert yaml.safe_load(as_yaml.stdout) == rows


def test_a_manifest_is_translated_to_its_pod_group(
    command_line: CommandLine, tmp_path: Path
) -> None:
    done = command_line("grouper", "plan", written(tmp_path, JOB))

    (group,) = yaml.safe_load_all(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert group["kind"] == "PodGroup"
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (4, "research")


def test_a_row_of_the_user_can_be_tried(command_line: CommandLine, tmp_path: Path) -> None:
    thing, rows = written(tmp_path, THING, "thing.yaml"), written(tmp_path, ROWS, "rows.yaml")

    without = command_line("grouper", "plan", thing)
    done = command_line("grouper", "plan", thing, "--rows", rows)

    assert "note: Thing/it UnknownKind: there is no row for Thing.example.com" in without.stderr
    assert (done.returncode, done.stderr) == (0, "")
    assert yaml.safe_load(done.stdout)["spec"]["minMember"] == 3


def test_missing_objects_and_unknown_pods_are_reported(
    command_line: CommandLine, tmp_path: Path
) -> None:
    wrapper = "{apiVersion: apps.nvidia.com/v1alpha1, kind: NIMService, metadata: {name: chat}}"
    pod = """{apiVersion: v1, kind: Pod, metadata: {name: p, ownerReferences: [
      {apiVersion: batch/v1, kind: Job, name: gone, uid: x, controller: true}]}}"""

    done = command_line(
        "grouper", "plan", written(tmp_path, wrapper, "a.yaml"), written(tmp_path, pod, "b.yaml")
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "note: the pods of NIMService/chat are not known: add what it creates" in done.stderr
    assert "warning: Job/gone is not in the files: add it" in done.stderr


def test_a_row_or_minimum_that_does_not_fit_its_object_is_reported_on_the_object(
    command_line: CommandLine, tmp_path: Path
) -> None:
    lost = "{apiVersion: amlarc.azureml.com/v1alpha1, kind: AmlJob, metadata: {name: lost}}"
    high = """{apiVersion: batch/v1, kind: Job, metadata: {name: high, annotations:
      {scheduling.bindery.dev/min-member: "9"}}, spec: {parallelism: 2, completions: 2}}"""

    done = command_line(
        "grouper", "plan", written(tmp_path, lost, "a.yaml"), written(tmp_path, high, "b.yaml")
    )

    assert done.stdout.count("kind: PodGroup") == 2, "nothing else stops"
    lines = done.stderr.splitlines()
    assert "AmlJob/lost PathNotFound" in lines[0]
    assert "nothing is at spec.job.options.envs.AZUREML_NODE_COUNT" in lines[0]
    assert "Job/high MinimumTooHigh: the minimum is 9, and at most 2 pods exist" in lines[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rows", "--rows", "rows.yaml", "--rows", "again.yaml"], "again.yaml:4"),
        (["run", "--config", "run.yaml"], "again.yaml"),
        (["plan", "rows.yaml", "--rows", "broken.yaml"], "broken.yaml:5: rows[0].mim: unknown key"),
        (["rows", "--rows", "absent.yaml"], "cannot be read"),
        (["plan", "list.yaml"], "list.yaml:1: this is no Kubernetes object"),
        (["import-karta", "rows.yaml"], "has no object of kind Karta"),
        (["import-karta", "karta.yaml"], "karta.yaml:1: spec.structureDefinition"),
    ],
)
def test_bad_input_ends_with_code_2(
    command_line: CommandLine, tmp_path: Path, arguments: list[str], message: str
) -> None:
    written(tmp_path, ROWS, "rows.yaml")
    written(tmp_path, ROWS.replace("  min:", "  mim:"), "broken.yaml")
    written(tmp_path, ROWS, "again.yaml")
    row_files = f"rowFiles: [{tmp_path}/rows.yaml, {tmp_path}/again.yaml]"
    kind = "{apiVersion: scheduling.bindery.dev/v1alpha1, kind: GrouperConfiguration"
    written(tmp_path, f"{kind}, {row_files}}}", "run.yaml")
    written(tmp_path, "[1, 2]", "list.yaml")
    written(tmp_path, "{apiVersion: run.ai/v1alpha1, kind: Karta}", "karta.yaml")
    files = [str(tmp_path / each) if each.endswith(".yaml") else each for each in arguments]

    done = command_line("grouper", *files)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_karta_objects_become_rows_that_can_be_loaded(
    command_line: CommandLine, tmp_path: Path
) -> None:
    done = command_line("grouper", "import-karta", written(tmp_path, KARTA))

    assert done.returncode == 0
    assert "warning: Thing: the component odd is left out" in done.stderr
    row = load([Path(written(tmp_path, done.stdout, "rows.yaml"))]).row(
        "example.com", "v1", "Thing"
    )
    assert row is not None
    assert row.count == ("spec.nodes",)
