"""The interface of every control plane.

Implemented by `local`, and by `given` for existing clusters. `install` and `components` know only
this interface.
"""

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from devcluster.errors import ControlPlaneError, UnsupportedError
from devcluster.processes import Command, Detached, Process

T = TypeVar("T")


@dataclass(frozen=True)
class Tools:
    """The client programs."""

    kubectl: Path
    helm: Path


class ControlPlane(ABC):
    """An API server and its administrator's kubeconfig; a context manager starts and stops it."""

    def __init__(self, tools: Tools, state_dir: Path, admin_kubeconfig: Path) -> None:
        """Store the paths; nothing runs yet."""
        self.kubectl_path = tools.kubectl
        self.helm_path = tools.helm
        self.state_dir = state_dir
        self.admin_kubeconfig = admin_kubeconfig

    @property
    @abstractmethod
    def is_shared(self) -> bool:
        """Whether the cluster existed before `start` and remains after `stop`."""

    @property
    def processes(self) -> tuple[Process, ...]:
        """The processes started by `start`, in start order."""
        return ()

    def inside(self, function: Callable[[], T]) -> T:
        """Call `function` where the API server can be reached, and return its result.

        The function's sockets and processes are made in the network of the control plane: by
        default the network of this process.
        """
        return function()

    def start_process(self, command: Command, *, tethered: bool) -> Process:
        """Start a process in the network of the control plane."""
        return Process(command, tethered=tethered)

    @abstractmethod
    def start(self) -> None:
        """Make the API server ready."""

    @abstractmethod
    def stop(self) -> None:
        """Stop everything started by `start`; may be called again."""

    @abstractmethod
    def detach(self) -> Detached:
        """Leave all processes running; return how to stop them.

        Raises:
            ControlPlaneError: the control plane was not made to outlive this process.
        """

    def stop_api_server(self) -> None:
        """Stop the API server only."""
        raise UnsupportedError("the API server of this cluster is not ours to stop")

    def kill_api_server(self) -> None:
        """Kill the API server, as in a crash."""
        raise UnsupportedError("the API server of this cluster is not ours to kill")

    def start_api_server(self) -> None:
        """Start the stopped API server with the same address and data."""
        raise UnsupportedError("the API server of this cluster is not ours to start")

    def restart_api_server(self) -> None:
        """Stop and start the API server; returns when it is ready again."""
        self.stop_api_server()
        self.start_api_server()

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60.0) -> str:
        """Run kubectl as the administrator and return its output.

        Raises:
            ControlPlaneError: kubectl failed; the text is its error output.
        """
        command = [str(self.kubectl_path), f"--kubeconfig={self.admin_kubeconfig}", *arguments]
        return self.run(command, stdin=stdin, timeout_s=timeout_s)

    def run(self, command: list[str], *, stdin: str | None = None, timeout_s: float = 60.0) -> str:
        """Run a client program to its end and return its output.

        Raises:
            ControlPlaneError: the program failed; the text is its error output.
        """
        # Discovery is cached beside the control plane, not in the user's home.
        environment = {**os.environ, "KUBECACHEDIR": str(self.state_dir / "kubectl-cache")}
        try:
            result = self.inside(
                lambda: subprocess.run(  # noqa: S603  the callers build the commands
                    command,
                    input=stdin if stdin is not None else "",
                    capture_output=True,
                    text=True,
                    timeout=timeout_s,
                    check=False,
                    env=environment,
                )
            )
        except subprocess.TimeoutExpired as error:
            raise ControlPlaneError(
                f"{command[0]} did not exit within {timeout_s:.0f} s"
            ) from error
        if result.returncode != 0:
            text = result.stderr.strip() or result.stdout.strip()
            raise ControlPlaneError(f"{Path(command[0]).name}: {text}")
        return result.stdout

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        """Stop."""
        self.stop()
