"""A failure is one line with advice, and an exit code for programs."""

import pytest

from bindery.answers.errors import BadInputError, NoAnswerError
from bindery.api.yamlfile import FileError
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.failures import described
from bindery.kube.errors import (
    ConfigurationError,
    ForbiddenError,
    MalformedAnswerError,
    OutcomeUnknownError,
    ServerError,
    UnreachableError,
)


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (FileError("a.yaml", 3, "unknown key"), "a.yaml:3: unknown key", ExitCode.BAD_INPUT),
        (CommandError("no such pod"), "bindery: no such pod", ExitCode.FAILURE),
        (NoAnswerError("there is no pod a"), "bindery: there is no pod a", ExitCode.FAILURE),
        (BadInputError("a.yaml: empty"), "bindery: a.yaml: empty", ExitCode.BAD_INPUT),
        (
            ConfigurationError("kubeconfig /dev/null: there is no current-context"),
            "bindery: kubeconfig /dev/null: there is no current-context",
            ExitCode.NO_CLUSTER,
        ),
        (
            UnreachableError("list pods: refused"),
            "bindery: the cluster cannot be reached: list pods: refused",
            ExitCode.NO_CLUSTER,
        ),
        (
            ForbiddenError(401, "Unauthorized", "no token"),
            "bindery: the cluster does not accept these credentials: 401 Unauthorized: no token",
            ExitCode.NO_CLUSTER,
        ),
        (
            ForbiddenError(403, "Forbidden", "pods is forbidden"),
            (
                "bindery: 403 Forbidden: pods is forbidden; "
                "the chart's ClusterRole bindery-reader grants what the command reads"
            ),
            ExitCode.NO_CLUSTER,
        ),
        (
            ServerError(502, "", "<html>\n<h1>Bad\tgateway</h1>\n</html>"),
            "bindery: 502 : <html> <h1>Bad gateway</h1> </html>",
            ExitCode.NO_CLUSTER,
        ),
        (OutcomeUnknownError("lost"), "bindery: lost", ExitCode.NO_CLUSTER),
        (MalformedAnswerError("no\nJSON"), "bindery: no JSON", ExitCode.NO_CLUSTER),
        (
            ZeroDivisionError("x"),
            "bindery: this is a defect, please report it: ZeroDivisionError('x')",
            ExitCode.DEFECT,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_every_failure_is_one_line(error: Exception, line: str, code: ExitCode) -> None:
    assert described(error) == (line, code)
