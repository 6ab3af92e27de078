"""Bindery's own processes on this machine, each under its ServiceAccount.

Used by the demo, the end-to-end tests and the benchmarks. Components are started by the same
commands as in a cluster. Invariant: each component has its own kubeconfig, never the
administrator's.
"""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from bindery.api.configuration import (
    BinderConfiguration,
    GrouperConfiguration,
    SchedulerConfiguration,
)
from devcluster import checkout, nodeaccount
from devcluster.install import Installation
from devcluster.plane import ControlPlane
from devcluster.ports import free_port
from devcluster.processes import Command, Process, Record

_READY_SECONDS: Final = 120.0


class Component:
    """One process of Bindery; it can be killed and started again with the same arguments."""

    def __init__(
        self, control_plane: ControlPlane, command: Command, health_port: int, *, tethered: bool
    ) -> None:
        """Start the component beside `control_plane`; `wait_ready` waits until it is ready."""
        self.name = command.name
        self.health_port = health_port
        self._control_plane = control_plane
        self._command = command
        self._tethered = tethered
        self.process = self._started()

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self._command.log

    def wait_ready(self, timeout_s: float = _READY_SECONDS) -> Self:
        """Wait until the component reports ready.

        Raises:
            ProcessError: the component ended, or is not ready after `timeout_s`.
        """
        self.process.wait_until(lambda: self._fetch("readyz") is not None, "ready", timeout_s)
        return self

    def metrics(self) -> str:
        """Return the component's metrics in Prometheus' text form; "" when it does not answer."""
        return self._fetch("metrics") or ""

    def kill(self) -> None:
        """Kill the component, as in a crash."""
        self.process.kill()

    def stop(self) -> None:
        """Ask the component to end, and wait for the end."""
        self.process.stop()

    def restart(self) -> Self:
        """Start the component again, whether it runs or not, and wait until it is ready."""
        self.process.stop()
        self.process = self._started()
        return self.wait_ready()

    def _started(self) -> Process:
        return self._control_plane.start_process(self._command, tethered=self._tethered)

    def _fetch(self, page: str) -> str | None:
        return self._control_plane.inside(lambda: self._fetch_here(page))

    def _fetch_here(self, page: str) -> str | None:
        url = f"http://127.0.0.1:{self.health_port}/{page}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=5) as answer:
                return str(answer.read().decode())
        except (OSError, urllib.error.URLError):
            return None


class Components:
    """Starts components of one installation; the context manager stops them all."""

    def __init__(self, installation: Installation, *, tethered: bool = True) -> None:
        """Start nothing yet. Components that are not `tethered` outlive this process."""
        self.installation = installation
        self._control_plane = installation.control_plane
        self._tethered = tethered
        self._directory = self._control_plane.state_dir
        self.started: list[Component] = []

    def start_scheduler(
        self, configuration: SchedulerConfiguration | None = None, *, name: str = "scheduler"
    ) -> Component:
        """Start a scheduler; the default configuration is the chart's."""
        installed = self.installation.scheduler_configuration
        model = configuration or installed
        if model.leader_election.enabled and model.node_pool != installed.node_pool:
            self.installation.grant_lease(model.node_pool)
        file = self._write(name, json.dumps(model.to_wire(), indent=2))
        return self._start(name, "scheduler", ["run", f"--config={file}"])

    def start_binder(
        self, configuration: BinderConfiguration | None = None, *, name: str = "binder"
    ) -> Component:
        """Start a binder; the default configuration is the chart's."""
        model = configuration or self.installation.binder_configuration
        file = self._write(name, json.dumps(model.to_wire(), indent=2))
        return self._start(name, "binder", ["run", f"--config={file}"])

    def start_grouper(
        self, configuration: GrouperConfiguration | None = None, *, name: str = "grouper"
    ) -> Component:
        """Start a grouper; the default configuration is the chart's."""
        model = configuration or self.installation.grouper_configuration
        file = self._write(name, json.dumps(model.to_wire(), indent=2))
        return self._start(name, "grouper", ["run", f"--config={file}"])

    def start_dashboard(self, *, name: str = "dashboard") -> tuple[Component, int]:
        """Start the dashboard, of an installation that has one; return it and the pages' port."""
        port = free_port()
        return self._start(name, "dashboard", ["run", f"--port={port}"]), port

    def start_webhook(
        self, configuration: BinderConfiguration | None = None, *, name: str = "webhook"
    ) -> Component:
        """Start a webhook, of an installation that has one; the configuration is the binder's."""
        model = configuration or self.installation.binder_configuration
        file = self._write(name, json.dumps(model.to_wire(), indent=2))
        return self._start(name, "webhook", ["run", f"--config={file}"])

    def start_fakes(self, arguments: Sequence[str]) -> Component:
        """Start `python -m fakes` of the checkout, which simulates hardware, as administrator."""
        port = free_port()
        command = [sys.executable, "-m", "fakes", *arguments, f"--health-port={port}"]
        command.append(f"--kubeconfig={self._control_plane.admin_kubeconfig}")
        log = self._directory / "logs" / "fakes.log"
        environment = {"PYTHONPATH": str(checkout.ROOT)}
        made = Command("fakes", command, log, environment)
        return self._start_command(made, port)

    def start_hollow_nodes(
        self, count: int, arguments: Sequence[str] = (), *, name: str = "nodeagent"
    ) -> Component:
        """Start one process that runs `count` hollow nodes; `arguments` are further options."""
        return self._start(name, "nodeagent", ["run", f"--hollow={count}", *arguments])

    def start_beside(self, node: str, kubelet: Path, configuration: Path) -> Component:
        """Start the agent beside the kubelet of `node`, with a token that is bound to this node.

        `kubelet`: its root directory, as this machine reaches it; `configuration`: its file.
        """
        plane, port = self._control_plane, free_port()
        command = [sys.executable, "-m", "bindery.cli.main", "nodeagent", "beside"]
        command += [f"--node-name={node}", f"--kubelet-dir={kubelet}"]
        command += [f"--kubelet-config={configuration}", f"--health-port={port}"]
        command += [f"--kubeconfig={nodeaccount.node_kubeconfig(plane, node)}"]
        log = self._directory / "logs" / f"beside-{node}.log"
        return self._start_command(Command(f"beside-{node}", command, log), port)

    def stop(self) -> None:
        """Stop all components, the last started first."""
        for component in reversed(self.started):
            component.stop()
        self.started.clear()

    def detach(self) -> tuple[Record, ...]:
        """Leave all components running; return the records to stop them, the last started first."""
        records = tuple(component.process.record() for component in reversed(self.started))
        self.started.clear()
        return records

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Stop all."""
        self.stop()

    def _write(self, name: str, text: str) -> Path:
        path = self._directory / "configuration" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def _start(self, name: str, kind: str, arguments: Sequence[str]) -> Component:
        port = free_port()
        command = [sys.executable, "-m", "bindery.cli.main", kind, *arguments]
        command += [f"--kubeconfig={self.installation.kubeconfigs[kind]}"]
        command += [f"--health-port={port}"]
        log = self._directory / "logs" / f"{name}.log"
        return self._start_command(Command(name, command, log), port)

    def _start_command(self, command: Command, port: int) -> Component:
        component = Component(self._control_plane, command, port, tethered=self._tethered)
        self.started.append(component)
        return component
