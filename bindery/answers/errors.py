"""Questions without an answer. Raised by `source`, `subjects` and `submission`.

`bindery.cli.failures` chooses the exit code of a command.
"""


class NoAnswerError(Exception):
    """What is asked about does not exist or is ambiguous; the message says what the user can do."""


class BadInputError(NoAnswerError):
    """A configuration or a manifest cannot be used; the message says what the user can do."""
