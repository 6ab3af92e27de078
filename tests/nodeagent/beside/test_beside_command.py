"""`bindery nodeagent beside` with wrong input."""

import pytest

from tests.commandline import CommandLine


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--node-name"),
        (("--node-name=n", "--shares", "--claims"), "both would give the same memory"),
        (("--node-name=n", "--devices=gpus.yaml"), "--observe, --shares or --claims"),
        (("--node-name=n", "--dcgm-exporter=http://x"), "--observe, --shares or --claims"),
        (("--node-name=n", "--observe", "--dcgm-exporter=x:9400"), "it is no address of http"),
        (("--node-name=n", "--observe", "--idle-threshold=0"), "--idle-threshold"),
    ],
)
def test_options_that_do_not_fit_are_refused_with_the_reason(
    command_line: CommandLine, arguments: tuple[str, ...], message: str
) -> None:
    done = command_line("nodeagent", "beside", *arguments, columns=300)

    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
