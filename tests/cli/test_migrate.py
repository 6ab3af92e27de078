"""`bindery migrate`: translation of other schedulers' objects, unsupported fields, bad input."""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.objects.models import model_of
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.topology import HyperNode, Topology
from bindery.kube.objects.watched import CustomResource
from tests.commandline import CommandLine

GIVEN = Path(__file__).parent / "migrate"
GOLDEN = Path(__file__).parent / "golden"
KINDS: dict[str, type[CustomResource]] = {
    kind.kind_info.kind: kind for kind in (PodGroup, Queue, HyperNode, Topology)
}


def shortened(text: str) -> str:
    """Return `text` without the names of plugins, of which there are more and more."""
    return re.sub(r"^#     - name: \w+\n", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("peer", ["kai", "volcano", "kueue"])
def test_a_file_of_objects_is_translated(command_line: CommandLine, peer: str) -> None:
    done = command_line("migrate", peer, str(GIVEN / f"{peer}.yaml"))

    assert done.returncode == 0
    assert shortened(done.stdout) == (GOLDEN / f"migrate-{peer}.yaml").read_text()
    assert done.stderr == (GOLDEN / f"migrate-{peer}.txt").read_text()


@pytest.mark.parametrize("peer", ["kai", "volcano"])
def test_every_translated_object_is_valid(command_line: CommandLine, peer: str) -> None:
    done = command_line("migrate", peer, "--owned", str(GIVEN / f"{peer}.yaml"))

    documents = list(yaml.safe_load_all(done.stdout))
    assert {each["kind"] for each in documents} >= {"Queue", "PodGroup"}
    for each in documents:
        model_of(KINDS[each["kind"]]).model_validate({"spec": each["spec"]})


def test_a_shard_is_translated_to_values_of_the_chart(
    command_line: CommandLine, tmp_path: Path
) -> None:
    done = command_line("migrate", "kai", str(GIVEN / "kai.yaml"), "--values", str(tmp_path))

    assert done.returncode == 0
    assert "# " not in done.stdout
    written = {path.name: yaml.safe_load(path.read_text()) for path in tmp_path.iterdir()}
    assert set(written) == {"values-default.yaml", "values-a100.yaml"}
    configurations = {
        name: SchedulerConfiguration.model_validate(values["scheduler"]["configuration"])
        for name, values in written.items()
    }
    a100 = configurations["values-a100.yaml"]
    assert (a100.node_pool, a100.cycle_seconds, a100.usage.k_value) == ("a100", 2.0, 0.5)
    assert "consolidation" not in a100.actions
    assert "podaffinity" not in [plugin.name for plugin in a100.plugins]


def test_standard_input_is_read(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (GIVEN / "volcano.yaml").read_text()
    monkeypatch.setattr("sys.stdin", io.StringIO(text))

    done = command_line("migrate", "volcano", "-")

    assert done.stdout == (GOLDEN / "migrate-volcano.yaml").read_text()


def test_a_file_without_objects_to_migrate_is_refused(command_line: CommandLine) -> None:
    done = command_line("migrate", "kai", str(GIVEN / "volcano.yaml"))

    assert done.returncode == 2
    assert "; Queue.scheduling.run.ai or " in done.stderr


def test_objects_other_than_queues_and_gangs_are_counted(
    command_line: CommandLine, tmp_path: Path
) -> None:
    others = (
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: volcano-scheduler-configmap}\n"
        "---\napiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: train}\n"
    )
    file = tmp_path / "all.yaml"
    file.write_text((GIVEN / "volcano.yaml").read_text() + others)

    done = command_line("migrate", "volcano", str(file))

    assert done.stdout == (GOLDEN / "migrate-volcano.yaml").read_text()
    assert "Left out, as they are no queues or gangs: 1 ConfigMap, 1 Job.batch.volcano.sh." in (
        done.stderr
    )


def test_an_unreadable_value_is_reported_and_the_rest_is_translated(
    command_line: CommandLine, tmp_path: Path
) -> None:
    body = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "odd"},
        "spec": {
            "preemptMinRuntime": "soon",
            "resources": {"gpu": {"quota": "many", "limit": 4}},
        },
    }
    file = tmp_path / "odd.yaml"
    file.write_text(yaml.safe_dump(body))

    done = command_line("migrate", "kai", str(file))

    assert done.returncode == 0
    assert yaml.safe_load(done.stdout)["spec"]["resources"]["gpu"]["limit"] == 4
    lines = [line.split() for line in done.stderr.splitlines()]
    assert ["Queue", "odd", "spec.preemptMinRuntime", "soon"] in [line[:4] for line in lines]
    assert ["Queue", "odd", "spec.resources.gpu.quota", "many"] in [line[:4] for line in lines]


VOLCANO_QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}


def migrated_queues(
    command_line: CommandLine, directory: Path, *bodies: Mapping[str, Any], peer: str = "volcano"
) -> tuple[dict[str, Any], list[list[str]]]:
    """Return the specs of the migrated queues by name, and the words of the printed lines."""
    file = directory / "queues.yaml"
    file.write_text(yaml.safe_dump_all(bodies))
    done = command_line("migrate", peer, str(file))
    assert done.returncode == 0, done.stderr
    found = {each["metadata"]["name"]: each["spec"] for each in yaml.safe_load_all(done.stdout)}
    return found, [line.split() for line in done.stderr.splitlines()]


@pytest.mark.parametrize("weight", ["three", -2, 2.5, True, float("nan"), [4]])
def test_an_unreadable_weight_of_volcano_is_reported_and_counts_as_1(
    command_line: CommandLine, tmp_path: Path, weight: object
) -> None:
    odd = {**VOLCANO_QUEUE, "metadata": {"name": "odd"}, "spec": {"weight": weight}}
    plain = {**VOLCANO_QUEUE, "metadata": {"name": "plain"}, "spec": {"weight": 3}}

    queues, lines = migrated_queues(command_line, tmp_path, odd, plain)

    assert queues["odd"]["resources"]["gpu"]["overQuotaWeight"] == 1
    assert queues["plain"]["resources"]["gpu"]["overQuotaWeight"] == 3
    assert [line[:3] for line in lines if "spec.weight" in line] == [
        ["Queue", "odd", "spec.weight"]
    ]


@pytest.mark.parametrize("weights", ["1/x/4", "1/nan/4", "1/-2/4", "1/inf/4", "1//4"])
def test_an_unreadable_weight_in_the_annotation_of_volcano_is_reported(
    command_line: CommandLine, tmp_path: Path, weights: str
) -> None:
    marks = {"volcano.sh/hierarchy": "root/eng/dev", "volcano.sh/hierarchy-weights": weights}
    body = {**VOLCANO_QUEUE, "metadata": {"name": "dev", "annotations": marks}, "spec": {}}

    queues, lines = migrated_queues(command_line, tmp_path, body)

    assert queues["eng"]["resources"]["gpu"]["overQuotaWeight"] == 1
    assert queues["dev"]["resources"]["gpu"]["overQuotaWeight"] == 4
    assert [line[3] for line in lines if line[:2] == ["Queue", "dev"]] == [weights]


@pytest.mark.parametrize(
    ("peer", "api_version"),
    [("volcano", "scheduling.volcano.sh/v1beta1"), ("kai", "scheduling.run.ai/v2")],
)
def test_an_unreadable_priority_of_a_queue_is_reported_and_omitted(
    command_line: CommandLine, tmp_path: Path, peer: str, api_version: str
) -> None:
    body = {"apiVersion": api_version, "kind": "Queue", "metadata": {"name": "odd"}}
    odd = {**body, "spec": {"priority": "high"}}

    queues, lines = migrated_queues(command_line, tmp_path, odd, peer=peer)

    assert queues["odd"].get("priority", 0) == 0
    assert ["Queue", "odd", "spec.priority", "high"] in [line[:4] for line in lines]


def test_an_amount_of_kai_that_is_no_number_is_reported(
    command_line: CommandLine, tmp_path: Path
) -> None:
    body = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "odd"},
        "spec": {"resources": {"gpu": {"quota": float("nan"), "limit": float("inf")}}},
    }

    queues, lines = migrated_queues(command_line, tmp_path, body, peer="kai")

    assert queues["odd"]["resources"]["gpu"]["quota"] == 0
    assert ["Queue", "odd", "spec.resources.gpu.quota", "nan"] in [line[:4] for line in lines]


@pytest.mark.parametrize("peer", ["kai", "volcano", "kueue"])
def test_the_help_has_examples(command_line: CommandLine, peer: str) -> None:
    done = command_line("migrate", peer, "--help")

    assert done.returncode == 0
    assert f"bindery migrate {peer} | kubectl apply -f -" in done.stdout
