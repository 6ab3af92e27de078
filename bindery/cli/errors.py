"""Errors that the command line shows as one line, and its exit codes.

Raised by the commands, shown by `main`. A message says what the user can do; nothing else is
printed, so no traceback hides it.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ends."""

    OK = 0
    FAILURE = 1
    """An expectation does not hold, or the cluster refuses or does not answer."""
    BAD_INPUT = 2


class CommandError(Exception):
    """A command cannot go on; the message says what to do."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.code = code
