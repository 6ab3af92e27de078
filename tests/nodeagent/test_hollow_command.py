import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from bindery.cli.nodeagent import app


@pytest.fixture(autouse=True)
def _logs_of_the_command_end_with_it() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def refusal(*arguments: str) -> str:
    """Run the command with wrong input and return what it says, without its frame."""
    result = CliRunner().invoke(app, ["run", *arguments], env={"COLUMNS": "300"})
    assert result.exit_code == 2
    return " ".join(result.output.split())


def test_without_hollow_it_says_that_only_hollow_nodes_exist() -> None:
    assert "only hollow nodes exist so far" in refusal()


def test_a_number_and_a_file_exclude_each_other(tmp_path: Path) -> None:
    assert "exclude each other" in refusal("--hollow=3", f"--shapes={tmp_path}/nodes.yaml")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--memory=much", "'much' is not a Kubernetes quantity"),
        ("--name-prefix=A_", "--name-prefix"),
        ("--node-pool=a b", "--node-pool"),
        ("--zones=9", "9 zones need at least as many racks"),
        ("--hollow=200000", "--hollow"),
        ("--log-level=loud", "loud"),
    ],
)
def test_a_wrong_option_is_named(argument: str, message: str) -> None:
    assert message in refusal("--hollow=1", argument)


def test_a_mistake_in_a_file_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text("shapes:\n- count: 1\n  gpu: 2\n")

    assert "nodes.yaml:3: shapes[0].gpu" in refusal(f"--shapes={file}")


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "--kubeconfig" in refusal("--hollow=1", f"--kubeconfig={tmp_path}/none")


def test_a_health_port_that_is_taken_is_named(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: a,"
        " clusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}],"
        " contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}]}"
    )
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]

        said = refusal("--hollow=1", f"--kubeconfig={config}", f"--health-port={port}")

    assert "--health-port" in said
