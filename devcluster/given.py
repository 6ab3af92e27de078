"""Existing control planes: an explicit kubeconfig, or a kind cluster.

Made by `find`. Bindery's processes still run on this machine and reach the API server at the
kubeconfig's address.
"""

import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Final

from devcluster.build import Report
from devcluster.plane import ControlPlane, Tools
from devcluster.processes import Detached

_KIND_TIMEOUT_SECONDS: Final = 600.0
"""Kind may have to fetch its node image first."""


class GivenControlPlane(ControlPlane):
    """The cluster of a kubeconfig that the user named; it is never started or stopped."""

    def __init__(self, kubeconfig: Path, tools: Tools, *, state_dir: Path | None = None) -> None:
        """Use the current context of `kubeconfig`."""
        self._temporary = state_dir is None
        state_dir = state_dir or Path(tempfile.mkdtemp(prefix="bindery-controlplane-"))
        super().__init__(tools, state_dir, kubeconfig)

    @property
    def is_shared(self) -> bool:
        """True: the cluster exists independently of this process."""
        return True

    def start(self) -> None:
        """Check that the API server is ready.

        Raises:
            ControlPlaneError: the API server is not ready.
        """
        self.kubectl("get", "--raw=/readyz", timeout_s=30)

    def detach(self) -> Detached:
        """Leave the cluster as it is."""
        return Detached(())

    def stop(self) -> None:
        """Leave the cluster as it is."""
        if self._temporary:
            shutil.rmtree(self.state_dir, ignore_errors=True)


class KindControlPlane(ControlPlane):
    """A kind cluster with a name and a kubeconfig file of its own."""

    def __init__(
        self,
        kind: Path,
        tools: Tools,
        *,
        state_dir: Path | None = None,
        report: Report = lambda _line: None,
    ) -> None:
        """Prepare; `start` creates the cluster."""
        self._temporary = state_dir is None
        state_dir = state_dir or Path(tempfile.mkdtemp(prefix="bindery-controlplane-"))
        super().__init__(tools, state_dir, state_dir / "admin.kubeconfig")
        self._kind = kind
        self._report = report
        self.cluster_name = f"bindery-{secrets.token_hex(3)}"

    @property
    def is_shared(self) -> bool:
        """False: the cluster is made and removed as a whole."""
        return False

    def start(self) -> None:
        """Create the cluster and wait until it is ready.

        Raises:
            ControlPlaneError: kind failed; the text is its output.
        """
        self._report(f"creating the kind cluster {self.cluster_name}")
        try:
            create = [*self._command("create"), "--wait=120s"]
            self.run(create, timeout_s=_KIND_TIMEOUT_SECONDS)
        except BaseException:
            self.stop()
            raise

    def detach(self) -> Detached:
        """Leave the cluster running; return kind's command to delete it."""
        return Detached((), tuple(self._command("delete")))

    def stop(self) -> None:
        """Delete the cluster."""
        self.run(self._command("delete"), timeout_s=_KIND_TIMEOUT_SECONDS)
        if self._temporary:
            shutil.rmtree(self.state_dir, ignore_errors=True)

    def _command(self, verb: str) -> list[str]:
        # With --kubeconfig, kind leaves the user's own file alone.
        command = [str(self._kind), verb, "cluster", f"--name={self.cluster_name}"]
        return [*command, f"--kubeconfig={self.admin_kubeconfig}"]
