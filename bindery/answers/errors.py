"""Questions without an answer. Raised by `source`, `subjects` and `submission`.

`bindery.cli.failures` chooses the exit code of a command.
"""


class NoAnswerError(Exception):
    """The requested object does not exist or is ambiguous; the message contains advice."""


class BadInputError(NoAnswerError):
    """A configuration or a manifest cannot be used; the message contains advice."""
