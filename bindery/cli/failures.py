"""Describe an exception to the user: one line, and the exit code.

Imported by `main` when there is one: then what has raised it is imported already, while
`bindery --help` does not pay for it.
"""

from bindery.api.yamlfile import FileError
from bindery.cli.errors import CommandError, ExitCode
from bindery.kube.errors import ConfigurationError, ForbiddenError, KubeError, UnreachableError


def told(error: Exception) -> tuple[str, ExitCode]:
    """Return the error message and the exit code for `error`."""
    text = " ".join(str(error).split())  # a proxy may answer with a page
    if isinstance(error, FileError):
        return str(error), ExitCode.BAD_INPUT
    if isinstance(error, CommandError):
        return f"bindery: {error}", error.code
    if isinstance(error, UnreachableError) and not isinstance(error, ConfigurationError):
        return f"bindery: the cluster cannot be reached: {text}", ExitCode.NO_CLUSTER
    if isinstance(error, ForbiddenError):
        return f"bindery: {_refused(error, text)}", ExitCode.NO_CLUSTER
    if isinstance(error, KubeError):
        return f"bindery: {text}", ExitCode.NO_CLUSTER
    return f"bindery: this is a defect, please report it: {error!r}", ExitCode.DEFECT


def _refused(error: ForbiddenError, text: str) -> str:
    """Return what the user can do about a refusal."""
    if error.status == 401:
        return f"the cluster does not accept these credentials: {text}"
    return f"{text}; the chart's ClusterRole bindery-reader grants what the command reads"
