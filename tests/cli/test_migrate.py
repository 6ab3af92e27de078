"""`bindery migrate`: what other schedulers' objects become, what does not carry over, bad input."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from commandline import CommandLine

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.podgroup import PodGroup
from bindery.api.queue import Queue
from bindery.api.topology import HyperNode, Topology

GIVEN = Path(__file__).parent / "migrate"
GOLDEN = Path(__file__).parent / "golden"
SPECS: dict[str, Any] = {
    model.kind_info.kind: model.model_fields["spec"].annotation
    for model in (PodGroup, Queue, HyperNode, Topology)
}


def shortened(text: str) -> str:
    """Return `text` without the names of plugins, of which there are more and more."""
    return re.sub(r"^#     - name: \w+\n", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("peer", ["kai", "volcano"])
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
        SPECS[each["kind"]].model_validate(each["spec"])


def test_a_shard_becomes_values_of_the_chart(command_line: CommandLine, tmp_path: Path) -> None:
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


def test_a_file_without_such_objects_is_refused(command_line: CommandLine) -> None:
    done = command_line("migrate", "kai", str(GIVEN / "volcano.yaml"))

    assert done.returncode == 2
    assert "none is a Queue of scheduling.run.ai" in done.stderr


def test_what_is_no_queue_or_gang_is_counted(command_line: CommandLine, tmp_path: Path) -> None:
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


def test_an_unreadable_value_is_said_and_the_rest_is_translated(
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


@pytest.mark.parametrize("peer", ["kai", "volcano"])
def test_the_help_has_examples(command_line: CommandLine, peer: str) -> None:
    done = command_line("migrate", peer, "--help")

    assert done.returncode == 0
    assert f"bindery migrate {peer} | kubectl apply -f -" in done.stdout
