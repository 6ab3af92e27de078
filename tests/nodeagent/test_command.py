from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commandline import CommandLine

Refusal = Callable[..., str]


@pytest.fixture
def refusal(command_line: CommandLine) -> Refusal:
    """Runs the command with wrong input and returns its message, in one line."""

    def run(*arguments: str) -> str:
        done = command_line("nodeagent", "run", *arguments, columns=300)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        return " ".join(done.stderr.split())

    return run


def test_a_start_without_hollow_is_refused_with_the_reason(refusal: Refusal) -> None:
    assert "--container-runtime-endpoint for this machine" in refusal()


def test_a_number_and_a_file_exclude_each_other(refusal: Refusal, tmp_path: Path) -> None:
    assert "exclude each other" in refusal("--hollow=3", f"--shapes={tmp_path}/nodes.yaml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cloud-node-file=a", "--cloud-node-url=http://b"), "exclude each other"),
        (
            ("--bootstrap-kubeconfig=a", "--node-label=node-role.kubernetes.io/worker="),
            "may not give itself node-role.kubernetes.io/worker",
        ),
    ],
)
def test_what_contradicts_the_identity_of_a_node_is_refused(
    refusal: Refusal, arguments: tuple[str, ...], message: str
) -> None:
    assert message in refusal("--container-runtime-endpoint=unix:///none", *arguments)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--memory=much", "'much' is not a Kubernetes quantity"),
        ("--name-prefix=A_", "--name-prefix"),
        ("--zones=9", "9 zones need at least as many racks"),
        ("--log-level=loud", "loud"),
    ],
)
def test_an_invalid_option_is_named(refusal: Refusal, argument: str, message: str) -> None:
    assert message in refusal("--hollow=1", argument)


def test_an_error_in_a_file_is_reported_with_its_line(refusal: Refusal, tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text("shapes:\n- count: 1\n  gpu: 2\n")

    assert "nodes.yaml:3: shapes[0].gpu" in refusal(f"--shapes={file}")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("numa.sockets", "'numa.sockets' is not KEY=VALUE"),
        ("numa.socket=2", "--set numa.socket: unknown key"),
        ("kubelet.topologyManagerPolicy=best", 'unknown policy: "best"'),
        ("cpu.cores=2", "cpu has no keys"),
        ("numa={", "the value is not YAML"),
        ("numa.devices.rdma/hca={7: 1}", "NUMA node 7 does not exist on this machine"),
    ],
)
def test_an_invalid_setting_is_named(refusal: Refusal, setting: str, message: str) -> None:
    said = refusal("--hollow=1", f"--set={setting}")

    assert message in said


def test_settings_do_not_change_the_shapes_of_a_file(refusal: Refusal, tmp_path: Path) -> None:
    said = refusal(f"--shapes={tmp_path}/nodes.yaml", "--set=cpu=3")

    assert "a shapes file has its own keys" in said
