"""Errors that the command line shows as one line, and its exit codes.

Raised by the commands, shown by `main`. A message names what the user can do; nothing else
is printed, so no traceback hides it.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ends."""

    OK = 0
    FAILURE = 1
    """An expectation does not hold, something would wait, or what is asked about is not there."""
    BAD_INPUT = 2
    NO_CLUSTER = 3
    """The cluster refuses, does not answer, or has no Bindery: there is no answer either."""
    DEFECT = 4
    """A fault of Bindery itself."""


class CommandError(Exception):
    """A command cannot go on; the message names what the user can do."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.code = code
