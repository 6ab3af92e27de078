"""Errors of starting a control plane.

Raised in this whole package; the command line shows the text and ends with exit code 1. Each text
names the next step for the reader.
"""


class ControlPlaneError(Exception):
    """No control plane is available, or a step failed; the text contains advice."""


class BuildError(ControlPlaneError):
    """A binary could not be built."""


class ProcessError(ControlPlaneError):
    """A process ended or did not become ready; the text ends with the last lines of its log."""


class UnsupportedError(ControlPlaneError):
    """The operation is not allowed on this control plane: its API server belongs to others."""
