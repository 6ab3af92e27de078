"""A control plane with Bindery running: used by the demo.

Called by `make demo`. A stack ends with its creator unless it is detached. A detached stack has a
file with its process ids, from which `take_down` stops it later. Invariant: if a part does not
start, the whole stack is stopped.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec

from devcluster import checkout, find
from devcluster.build import Report
from devcluster.components import Components
from devcluster.errors import ControlPlaneError
from devcluster.install import install
from devcluster.plane import ControlPlane
from devcluster.ports import free_port
from devcluster.processes import Detached, is_recorded_running, stop_recorded

_RECORD: Final = "detached.json"
_TAKE_DOWN_SECONDS: Final = 300.0
_DEVICE_NODES: Final = 2
"""Number of nodes with HAMi's protocol, and of nodes with devices for claims."""
_GPUS: Final = 8
_SHARES_PER_CARD: Final = 10
"""Number of times that HAMi's device plugin offers each card."""


@dataclass(frozen=True)
class Plan:
    """The components to start."""

    hollow_nodes: int
    options: find.Options
    namespace: str
    """Namespace of the submitted objects; deleted at the end if the cluster itself stays."""


class Stack:
    """A control plane, the chart's resources, and Bindery's processes with hollow nodes."""

    def __init__(self, plan: Plan, report: Report) -> None:
        """Find the control plane; nothing runs before `start`."""
        self.control_plane: ControlPlane = find.find(plan.options, report)
        self._plan = plan
        self._report = report
        self._components: Components | None = None
        self.health_ports: dict[str, int] = {}
        """The ports of the probes and metrics of Bindery's processes, by name."""
        self.page = ""
        """The address of the dashboard."""

    @property
    def has_devices(self) -> bool:
        """Whether the stack has devices, volumes and the webhook.

        An existing cluster has none of them: its API server cannot call this machine, and no fake
        hardware runs on its nodes.
        """
        return not self.control_plane.is_shared

    def start(self) -> None:
        """Start everything and wait until it is ready.

        Raises:
            ControlPlaneError: a part did not start; the others are stopped again.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Check that all processes that were started still run.

        Raises:
            ProcessError: a process has ended; the text has its name and the end of its log.
        """
        components = self._components.started if self._components is not None else ()
        for process in (*self.control_plane.processes, *(each.process for each in components)):
            process.check()

    def stop(self) -> None:
        """Stop everything."""
        if self.control_plane.is_shared and self._components is not None:
            self._report(f"deleting the namespace {self._plan.namespace}")
            # Before the nodes are deleted, so that the pods end normally.
            self.control_plane.kubectl(*self._delete_namespace(), timeout_s=_TAKE_DOWN_SECONDS)
        if self._components is not None:
            self._components.stop()
        self.control_plane.stop()

    def detach(self) -> None:
        """Leave everything running; `take_down` with the same state directory stops it."""
        components = self._components.detach() if self._components is not None else ()
        rest = self.control_plane.detach()
        command = rest.command
        if self.control_plane.is_shared:
            program = str(self.control_plane.kubectl_path)
            kubeconfig = f"--kubeconfig={self.control_plane.admin_kubeconfig}"
            command = (program, kubeconfig, *self._delete_namespace())
        record(self.control_plane.state_dir, Detached((*components, *rest.processes), command))

    def _delete_namespace(self) -> tuple[str, ...]:
        return ("delete", "namespace", self._plan.namespace, "--ignore-not-found")

    def _start(self) -> None:
        self.control_plane.start()
        self._report("applying the chart's resources")
        values = with_webhook(free_port()) if self.has_devices else {}
        with_page = {"dashboard": {"enabled": True}}
        installation = install(self.control_plane, {**values, **with_page, **_with_rows()})
        components = Components(installation, tethered=self._plan.options.tethered)
        self._components = components
        nodes = self._plan.hollow_nodes
        self._report(f"starting Bindery's components and {nodes} hollow nodes")
        components.start_hollow_nodes(nodes, ["--remove-on-exit"])
        if self.has_devices:
            self._report("starting the webhook, and nodes with devices that fakes/ plays")
            components.start_webhook()
            _start_device_nodes(components)
        components.start_binder()
        components.start_grouper()
        components.start_scheduler()
        _, port = components.start_dashboard()
        self.page = f"http://127.0.0.1:{port}/"
        for component in components.started:
            component.wait_ready()
            self.health_ports[component.name] = component.health_port

    def __enter__(self) -> Self:
        """Start everything."""
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        """Stop everything."""
        self.stop()


def with_webhook(port: int) -> dict[str, object]:
    """Return the chart's values with which the API server calls a webhook on this machine."""
    webhook = {"port": port, "dnsNames": ["127.0.0.1"]}
    return {
        "webhook": {"enabled": True, "url": f"https://127.0.0.1:{port}"},
        "binder": {"configuration": {"webhook": webhook}},
    }


def _with_rows() -> dict[str, object]:
    """Return the chart's values with which the grouper knows the kind of `examples/stages`."""
    rows = checkout.ROOT / "examples" / "stages" / "rows.yaml"
    kinds = [{"group": "example.com", "resources": ["pipelines"]}]
    return {"grouper": {"configuration": {"rowFiles": [str(rows)]}, "kinds": kinds}}


def _start_device_nodes(components: Components) -> None:
    shares = _GPUS * _SHARES_PER_CARD
    for prefix, gpus in (("hami-", shares), ("claimed-", 0)):
        options = [f"--name-prefix={prefix}", f"--gpus={gpus}", "--remove-on-exit"]
        agent = components.start_hollow_nodes(_DEVICE_NODES, options, name=f"{prefix}nodeagent")
        agent.wait_ready()  # the fakes write onto the nodes
    counts = [f"--hami={_DEVICE_NODES}", f"--claimed={_DEVICE_NODES}"]
    components.start_fakes(counts)


@dataclass(frozen=True)
class Left:
    """The processes of a detached stack."""

    running: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


def record(state_dir: Path, detached: Detached) -> None:
    """Write the record of the processes that stay, for `take_down` with the same directory."""
    (state_dir / _RECORD).write_bytes(msgspec.json.encode(detached))


def left_up(state_dir: Path) -> Left:
    """Return the names of the processes of the detached stack in `state_dir`."""
    found = _read(state_dir)
    if found is None:
        return Left()
    running = [each.name for each in found.processes if is_recorded_running(each)]
    ended = [each.name for each in found.processes if each.name not in running]
    return Left(tuple(running), tuple(ended))


def take_down(state_dir: Path, report: Report) -> bool:
    """Stop the detached stack of `state_dir`; return whether there was one.

    Raises:
        ControlPlaneError: a part could not be stopped.
    """
    found = _read(state_dir)
    if found is None:
        return False
    for process in found.processes:
        report(f"stopping {process.name}")
        if not stop_recorded(process):
            report(f"{process.name} had ended before")
    if found.command:
        report(" ".join(found.command))
        try:
            subprocess.run(found.command, check=True, timeout=_TAKE_DOWN_SECONDS)  # noqa: S603
        except (OSError, subprocess.SubprocessError) as error:
            raise ControlPlaneError(f"could not take the cluster down: {error}") from error
    shutil.rmtree(state_dir, ignore_errors=True)
    return True


def _read(state_dir: Path) -> Detached | None:
    try:
        return msgspec.json.decode((state_dir / _RECORD).read_bytes(), type=Detached)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ControlPlaneError(f"{state_dir / _RECORD} cannot be read: {error}") from error
