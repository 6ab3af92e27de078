"""Two real nodes with Bindery beside them: used by the demo on real nodes.

Bindery's components run on this machine; a reservation pod of a shared GPU runs on a node, from
Bindery's own image. The GPUs are simulated (`fakes/gpuplugin.py`); everything else on the nodes is
real.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from bindery.api.configuration import BinderConfiguration
from devcluster import checkout
from devcluster.build import Report
from devcluster.components import Components
from devcluster.errors import ControlPlaneError
from devcluster.image.build import build as build_image
from devcluster.install import install
from devcluster.plane import ControlPlane
from devcluster.ports import free_port
from devcluster.processes import Command, Process
from devcluster.realnode import machine
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from devcluster.stack import with_webhook

IMAGE: Final = "bindery.dev/bindery:1"
"""Name of Bindery's image in the nodes."""
NODES: Final = 2
GPUS: Final = 8
"""GPUs of each node."""
_PLUGINS: Final = "var/lib/kubelet/device-plugins"


def services(node: str) -> dict[str, str]:
    """Return the scripts that run Kubernetes' example device plugin and test driver on a node."""
    claims = f"""
mkdir -p /var/lib/kubelet/plugins/test-driver.cdi.k8s.io
exec dra-test-driver --kubeconfig=/var/lib/kubelet/kubeconfig \\
    kubelet-plugin --node-name={node} --num-devices=2
"""
    return {"devices": "exec sample-device-plugin", "claims": claims}


class RealStack:
    """A control plane, two real nodes with devices, the chart's resources, Bindery's processes."""

    def __init__(self, state_dir: Path, report: Report) -> None:
        """Build what is missing; nothing runs before `start`.

        Raises:
            ControlPlaneError: this machine cannot run real nodes; the text has each reason.
        """
        if reasons := list(machine.lacks()):
            raise ControlPlaneError("\n".join(("no real nodes here:", *reasons)))
        self._report = report
        self._archive = build_image(IMAGE, state_dir / "image", report).archive
        self._cluster = RealCluster(state_dir, report)
        self._started: list[Process] = []
        self._all = ExitStack()

    @property
    def control_plane(self) -> ControlPlane:
        """The control plane of the nodes."""
        return self._cluster.control_plane

    @property
    def nodes(self) -> dict[str, RealNode]:
        """The nodes, by name."""
        return self._cluster.nodes

    def check(self) -> None:
        """Check that all processes that were started still run.

        Raises:
            ProcessError: a process has ended; the text has its name and the end of its log.
        """
        nodes = (node.process for node in self.nodes.values())
        for process in (*self.control_plane.processes, *nodes, *self._started):
            process.check()

    def start(self) -> None:
        """Start everything and wait until it is ready.

        Raises:
            ControlPlaneError: a part did not start; the others are stopped again.
        """
        with ExitStack() as made:
            made.enter_context(self._cluster)
            with ThreadPoolExecutor(NODES + 1) as threads:
                nodes = [threads.submit(self._add_node, number) for number in range(1, NODES + 1)]
                components = self._components()
                made.enter_context(components)
                self._start_components(components)
                for node in nodes:
                    self._started.append(node.result())
            self._all = made.pop_all()

    def stop(self) -> None:
        """Stop everything."""
        for process in self._started:
            process.stop()
        self._started.clear()
        self._all.close()

    def _add_node(self, number: int) -> Process:
        """Start a node with its images; return the process of its GPU plugin."""
        plan = self._cluster.plan(number, services=services(f"node-{number}"))
        node = self._cluster.add_node(plan)
        node.load(self._archive)
        log = self.control_plane.state_dir / "logs" / f"gpus-{node.name}.log"
        command = [sys.executable, "-m", "fakes.gpuplugin", f"--directory={node.root / _PLUGINS}"]
        command += [f"--node={node.name}", f"--count={GPUS}"]
        environment = {"PYTHONPATH": str(checkout.ROOT)}
        return Process(Command(f"gpus-{node.name}", command, log, environment), tethered=True)

    def _components(self) -> Components:
        self._report("applying the chart's resources")
        return Components(install(self.control_plane, with_webhook(free_port())))

    def _start_components(self, components: Components) -> None:
        self._report("starting the scheduler, the binder, the grouper and the webhook")
        components.start_webhook()
        components.start_binder(_with_image(components.installation.binder_configuration))
        components.start_grouper()
        components.start_scheduler()
        for component in components.started:
            component.wait_ready()
        self._started += [component.process for component in components.started]

    def __enter__(self) -> Self:
        """Start everything."""
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        """Stop everything."""
        self.stop()


def _with_image(configuration: BinderConfiguration) -> BinderConfiguration:
    """Return the configuration with the image of reservation pods, as the chart sets it."""
    plugins = [
        each.model_copy(update={"arguments": {**each.arguments, "image": IMAGE}})
        if each.name == "gpusharing"
        else each
        for each in configuration.plugins
    ]
    return configuration.model_copy(update={"plugins": tuple(plugins)})
