"""Describes an exception to the user: one line, and the exit code.

Imported by `main` only after an exception, so that `bindery --help` does not import it.
"""

from bindery.answers.errors import BadInputError, NoAnswerError
from bindery.api.yamlfile import FileError
from bindery.cli.errors import CommandError, ExitCode
from bindery.kube.errors import ConfigurationError, ForbiddenError, KubeError, UnreachableError


def described(error: Exception) -> tuple[str, ExitCode]:
    """Return the error message and the exit code for `error`."""
    text = " ".join(str(error).split())  # a proxy may send a whole page
    if isinstance(error, FileError):
        return str(error), ExitCode.BAD_INPUT
    if isinstance(error, CommandError):
        return f"bindery: {error}", error.code
    if isinstance(error, NoAnswerError):
        is_input = isinstance(error, BadInputError)
        return f"bindery: {error}", ExitCode.BAD_INPUT if is_input else ExitCode.FAILURE
    if isinstance(error, KubeError):
        return f"bindery: {_unanswered(error, text)}", ExitCode.NO_CLUSTER
    return f"bindery: this is a defect, please report it: {error!r}", ExitCode.DEFECT


def _unanswered(error: KubeError, text: str) -> str:
    if isinstance(error, UnreachableError) and not isinstance(error, ConfigurationError):
        return f"the cluster cannot be reached: {text}"
    return _refused(error, text) if isinstance(error, ForbiddenError) else text


def _refused(error: ForbiddenError, text: str) -> str:
    """Return advice to the user about a refusal."""
    if error.status == 401:
        return f"the cluster does not accept these credentials: {text}"
    return f"{text}; the chart's ClusterRole bindery-reader grants what the command reads"
