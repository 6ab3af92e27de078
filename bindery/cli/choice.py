"""The global options that select a cluster.

Created by `main`, read by `connection`. Separate from the code that connects, so that commands
without a cluster do not import that code.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ClusterChoice:
    """The global options that select a cluster."""

    kubeconfig: Path | None = None
    context: str | None = None
    lease_namespace: str = "kube-system"
    """The namespace of the components' Leases."""
