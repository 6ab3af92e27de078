"""`bindery snapshot` with and without names, of a cluster in memory."""

from pathlib import Path
from typing import Any

import pytest

from bindery.answers.leaders import Leader, Leading
from bindery.answers.planner import Planner
from bindery.api.configuration import SchedulerConfiguration
from bindery.cli.options import Origin
from bindery.cli.reading import rawobjects
from bindery.cli.reading.scenariosource import read_with_history
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import ConfigMap, Meta
from bindery.scheduler.history.codec import Past, decode, encode
from bindery.scheduler.history.entries import Gang, HistoryEntry, HistoryKind
from tests.commandline import CommandLine

PAST = Past((HistoryEntry(HistoryKind.PLANNED, Gang("acme", "acme-train", "q", True), 1.0, 2.0),))
HISTORY = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "bindery-history", "namespace": "kube-system"},
    "data": {"history": encode(PAST, 2.0)},
}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "acme-7"}}


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command read a cluster with one node and a history."""

    def with_client(*_: Any) -> tuple[Planner, list[dict[str, Any]]]:
        leader = Leader("bindery-scheduler", "kube-system", Leading.LEADS)
        return Planner(SchedulerConfiguration(), leader), [NODE, HISTORY]

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


def test_the_history_comes_along_and_is_read_again(
    command_line: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.yaml"

    done = command_line("snapshot", "-o", str(path))
    source, text = read_with_history(path, Origin(path))

    assert done.returncode == 0
    assert decode(text).entries == PAST.entries
    assert [node.metadata.name for node in source.snapshot.nodes] == ["acme-7"]


def test_with_hidden_names_the_history_is_left_out(
    command_line: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.yaml"

    command_line("snapshot", "--hide-names", "-o", str(path))

    assert "ConfigMap" not in path.read_text()
    assert read_with_history(path, Origin(path))[1] == ""


async def test_the_history_of_the_node_pool_is_read_where_the_scheduler_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Records:
        async def get(self, _kind: Resource[Any], name: str, namespace: str) -> ConfigMap:
            if (namespace, name) != ("kube-system", "bindery-history-batch"):
                raise NotFoundError(404, "NotFound", name)
            return ConfigMap(metadata=Meta(name=name), data={"history": "text"})

    async def nothing(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(rawobjects, "served", nothing)
    monkeypatch.setattr(rawobjects, "_visible", nothing)
    pools = (SchedulerConfiguration(node_pool=pool) for pool in ("batch", ""))

    found = [await rawobjects.read_raw_objects(Records(), pool) for pool in pools]  # type: ignore[arg-type]

    assert [[item["metadata"]["name"] for item in items] for items in found] == [
        ["bindery-history-batch"],
        [],
    ]


def test_a_table_of_names_needs_hidden_names(command_line: CommandLine, tmp_path: Path) -> None:
    done = command_line("snapshot", "--names", str(tmp_path / "names.tsv"))

    assert done.returncode == 2
    assert "it needs --hide-names" in done.stderr
