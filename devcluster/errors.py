"""What can go wrong on the way to a running control plane.

Raised all over this package; the command line shows the text and ends with exit code 1. The one
invariant: each text names what the reader can do next.
"""


class ControlPlaneError(Exception):
    """No control plane is available, or a step failed; the text has the advice."""


class BuildError(ControlPlaneError):
    """A binary could not be built."""


class ProcessError(ControlPlaneError):
    """A process ended or did not become ready; the text ends with the last lines of its log."""


class UnsupportedError(ControlPlaneError):
    """The operation is not allowed on this control plane: its API server belongs to others."""
