"""`bindery snapshot` with and without names, of a cluster in memory."""

from pathlib import Path
from typing import Any

import pytest

from bindery.answers.leaders import Leader, Leading
from bindery.answers.planner import Planner
from bindery.api.configuration import SchedulerConfiguration
from tests.commandline import CommandLine

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "acme-7"}}


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command read a cluster with one node."""

    def with_client(*_: Any) -> tuple[Planner, list[dict[str, Any]]]:
        leader = Leader("bindery-scheduler", "kube-system", Leading.LEADS)
        return Planner(SchedulerConfiguration(), leader), [NODE]

    monkeypatch.setattr("bindery.cli.connection.with_client", with_client)


def test_names_stay_by_default(command_line: CommandLine) -> None:
    done = command_line("snapshot")

    assert '"name":"acme-7"' in done.stdout


def test_names_are_hidden_on_request(command_line: CommandLine, tmp_path: Path) -> None:
    path, table = tmp_path / "cluster.yaml", tmp_path / "names.tsv"

    done = command_line("snapshot", "--hide-names", "-o", str(path), "--names", str(table))

    assert done.returncode == 0
    pseudonyms = dict(line.split("\t")[::-1] for line in table.read_text().splitlines())
    assert f'"name":"{pseudonyms["acme-7"]}"' in path.read_text()
    assert "acme" not in path.read_text()


def test_a_table_of_names_needs_hidden_names(command_line: CommandLine, tmp_path: Path) -> None:
    done = command_line("snapshot", "--names", str(tmp_path / "names.tsv"))

    assert done.returncode == 2
    assert "it needs --hide-names" in done.stderr
