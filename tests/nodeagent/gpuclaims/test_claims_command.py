"""`bindery nodeagent claims` with wrong input."""

import json
from pathlib import Path

import pytest

from tests.commandline import CommandLine


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("gpus: 3", "gpus"),
        (json.dumps({"gpus": [{"uuid": "GPU-a", "memoryMib": 1}]}), "less memory than 2 MiB"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(
    command_line: CommandLine, tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "gpus.yaml"
    if content is not None:
        file.write_text(content)

    done = command_line(
        "nodeagent", "claims", "--node-name=n", f"--gpus={file}", f"--cdi-root={tmp_path}/cdi",
        columns=300,
    )  # fmt: skip

    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "cdi").exists()


def test_the_name_of_the_node_is_needed(command_line: CommandLine, tmp_path: Path) -> None:
    done = command_line("nodeagent", "claims", f"--gpus={tmp_path}/gpus.yaml")

    assert done.returncode == 2
    assert "--node-name" in done.stderr
