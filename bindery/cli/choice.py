"""The global options that select a cluster.

Made by `main`, read by `connection`. It stands apart from the code that connects, so that commands
which need no cluster do not import it.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ClusterChoice:
    """The global options that select a cluster."""

    kubeconfig: Path | None = None
    context: str | None = None
    lease_namespace: str = "kube-system"
    """Where the Leases of the components are."""
