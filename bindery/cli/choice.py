"""Which cluster the user means: the global options, apart from the code that connects."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ClusterChoice:
    """The global options `--kubeconfig` and `--context`."""

    kubeconfig: Path | None = None
    context: str | None = None
