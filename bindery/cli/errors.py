"""Errors that the command line shows as one line, and its exit codes.

Raised by the commands, shown by `main`. A message contains advice to the user; no traceback is
printed.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of commands."""

    OK = 0
    FAILURE = 1
    """An expectation does not hold, something would wait, or an object does not exist."""
    BAD_INPUT = 2
    NO_CLUSTER = 3
    """The cluster refuses, does not answer, or has no Bindery, so there is no answer."""
    DEFECT = 4
    """A defect of Bindery itself."""


class CommandError(Exception):
    """A command cannot continue; the message contains advice to the user."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.code = code
