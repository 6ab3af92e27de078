"""Who binds pods in the races: Bindery, kube-scheduler and the bare client.

Started by `races` when everything is in place. A contender says when it is ready to bind, or, the
bare client, when it began; from then on the clock runs.
"""

import asyncio
import json
import ssl
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from benchmarks.cluster import Cluster
from benchmarks.workload import Wire
from bindery.api.configuration import BindRequestConfiguration
from bindery.api.names import SCHEDULER_NAME
from devcluster import kubeconfig, settings
from devcluster.components import Component, Components
from devcluster.local import LocalControlPlane
from devcluster.ports import free_port
from devcluster.processes import Command, Process

_POLL_S: Final = 0.02
_READY_S: Final = 60.0
_ANSWER_S: Final = 10.0


class Contender(ABC):
    """One way to bind pods. `prepare`, `start` and `stop` are called once a race, in this order."""

    scheduler_name: str = SCHEDULER_NAME
    """Which pods it takes."""

    @abstractmethod
    async def prepare(self, cluster: Cluster) -> None:
        """Start what waits for somebody else's decisions."""

    @abstractmethod
    async def start(self, cluster: Cluster) -> float:
        """Start what decides; return when it was ready or began, by `time.monotonic`."""

    @abstractmethod
    def processes(self) -> Mapping[str, Process]:
        """Return its processes, by name, while they run."""

    @abstractmethod
    def stop(self) -> None:
        """Stop them."""


class Bindery(Contender):
    """Scheduler and binder as users run them, each under its own ServiceAccount."""

    def __init__(
        self, *, max_pods: int = 500, max_statements: int = 50, profiles: Path | None = None
    ) -> None:
        """Make it with its configuration.

        Args:
            max_pods: the most pods of a Statement in a BindRequest.
            max_statements: the most Statements in a BindRequest.
            profiles: where to write profiles if it is to run under cProfile.
        """
        self._requests = BindRequestConfiguration(max_pods=max_pods, max_statements=max_statements)
        self._profiles = profiles
        self._started: dict[str, Component] = {}

    async def prepare(self, cluster: Cluster) -> None:
        """Start the binder."""
        binder = self._component(cluster, "binder")
        await until_answered(f"http://127.0.0.1:{binder.health_port}/readyz", binder.process)

    async def start(self, cluster: Cluster) -> float:
        """Start the scheduler."""
        scheduler = self._component(cluster, "scheduler")
        url = f"http://127.0.0.1:{scheduler.health_port}/readyz"
        return await until_answered(url, scheduler.process)

    def processes(self) -> Mapping[str, Process]:
        """Return both."""
        return {name: component.process for name, component in self._started.items()}

    def stop(self) -> None:
        """Stop the scheduler, then the binder."""
        for component in reversed(self._started.values()):
            component.stop()
        self._started.clear()

    def _component(self, cluster: Cluster, kind: str) -> Component:
        installation = cluster.installation
        if self._profiles is not None:
            component = profiled(cluster, kind, self._profiles)
        elif kind == "binder":
            component = Components(installation).start_binder()
        else:
            configuration = installation.scheduler_configuration.model_copy(
                update={"bind_request": self._requests}
            )
            component = Components(installation).start_scheduler(configuration)
        self._started[kind] = component
        return component


class _OneProcess(Contender):
    """A contender that is one process."""

    name: str

    def __init__(self) -> None:
        self._process: Process | None = None

    async def prepare(self, cluster: Cluster) -> None:
        """Do nothing: nobody else is needed."""

    def processes(self) -> Mapping[str, Process]:
        """Return it."""
        return {} if self._process is None else {self.name: self._process}

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.stop()

    def _run(self, cluster: Cluster, arguments: Sequence[str]) -> Process:
        log = cluster.plane.state_dir / "logs" / f"{self.name}-{time.monotonic_ns()}.log"
        command = Command(self.name, arguments, log)
        self._process = cluster.plane.start_process(command, tethered=True)
        return self._process


class KubeScheduler(_OneProcess):
    """Kubernetes' own scheduler: default profile, client limits lifted, no leader election."""

    name = "kube-scheduler"
    scheduler_name = "default-scheduler"

    def __init__(self, percentage_of_nodes_to_score: int = 0) -> None:
        """Make it; a percentage of 0 leaves the choice to kube-scheduler."""
        super().__init__()
        self._percentage = percentage_of_nodes_to_score

    async def start(self, cluster: Cluster) -> float:
        """Start it."""
        plane, port = cluster.plane, free_port()
        file = plane.state_dir / "kube-scheduler.yaml"
        account = await asyncio.to_thread(_kube_scheduler_account, plane)
        file.write_text(settings.kube_scheduler(account, self._percentage), encoding="utf-8")
        arguments = [
            str(plane.binaries.kube_scheduler),
            f"--config={file}",
            # Its readiness is what starts the clock.
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={plane.state_dir / 'kube-scheduler'}",
        ]
        return await until_answered(
            f"https://127.0.0.1:{port}/readyz", self._run(cluster, arguments)
        )


def _kube_scheduler_account(plane: LocalControlPlane) -> Path:
    """Return a kubeconfig for kube-scheduler under the roles that Kubernetes makes for it.

    As Bindery's processes run under theirs: authorizing an administrator costs the API server less.
    """
    name, roles = "kube-scheduler", ("system:kube-scheduler", "system:volume-scheduler")
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}
    group = "rbac.authorization.k8s.io"
    items: list[dict[str, object]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(subject)},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": _metadata(subject),
            "subjects": [subject],
            "roleRef": {
                "apiGroup": group,
                "kind": "Role",
                "name": "extension-apiserver-authentication-reader",
            },
        },
    ]
    items += [
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"benchmark-{role.replace(':', '-')}"},
            "subjects": [subject],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        }
        for role in roles
    ]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    plane.kubectl("apply", "--server-side", "--filename=-", stdin=listed)
    token = plane.kubectl("create", "token", name, "--namespace=kube-system", "--duration=24h")
    server = kubeconfig.Server.read(plane.admin_kubeconfig)
    path = plane.state_dir / "kubeconfigs" / f"{name}.kubeconfig"
    return kubeconfig.write(path, server, name, token.strip())


def _metadata(subject: dict[str, str]) -> dict[str, str]:
    """Return the metadata of what is called, and stands, as `subject` does."""
    return {"name": subject["name"], "namespace": subject["namespace"]}


@dataclass(frozen=True)
class BareWrites:
    """What the bare client writes."""

    max_pods: int = 500
    """The most pods of a Statement."""
    pods_per_request: int = 0
    """A request gets Statements until it has so many pods; 0: one Statement a request."""
    with_requests: bool = True
    """Whether it writes BindRequests; if not, it only binds pods."""
    by_session: bool = False
    """Whether an aiohttp session sends them, as in most Python clients, and not our connections."""
    at_once: int = 16
    """Requests that are carried out at a time."""
    requests: Sequence[Wire] | None = None
    """BindRequests to write in place of those that it plans."""

    def arguments(self, directory: Path) -> list[str]:
        """Return the options of the program; `directory` is for a file that they name."""
        options = [f"--max-pods={self.max_pods}", f"--at-once={self.at_once}"]
        options.append(f"--pods-per-request={self.pods_per_request}")
        if not self.with_requests:
            options.append("--bindings-alone")
        if self.by_session:
            options.append("--by-session")
        if self.requests is not None:
            file = directory / "bindrequests.json"
            file.write_text(json.dumps(self.requests), encoding="utf-8")
            options.append(f"--requests={file}")
        return options


class BareClient(_OneProcess):
    """The writes of scheduler and binder alone, made by one process that decides nothing."""

    name = "bare-client"

    def __init__(self, writes: BareWrites = BareWrites()) -> None:
        """Make it; `writes`: how many objects it writes, and which."""
        super().__init__()
        self._writes = writes

    async def start(self, cluster: Cluster) -> float:
        """Start it and learn when its first write began."""
        arguments = [sys.executable, "-m", "benchmarks.bareclient"]
        arguments += [f"--kubeconfig={cluster.plane.admin_kubeconfig}"]
        arguments += self._writes.arguments(cluster.plane.state_dir)
        process = self._run(cluster, arguments)
        log = process.command.log
        await asyncio.to_thread(
            process.wait_until, lambda: "\n" in log.read_text(), "its first write", _READY_S
        )
        return float(json.loads(log.read_text().splitlines()[0])["started_s"])


def profiled(cluster: Cluster, kind: str, directory: Path) -> Component:
    """Start a component as `Components` does, with the default configuration, under cProfile."""
    installation, port = cluster.installation, free_port()
    directory.mkdir(parents=True, exist_ok=True)
    arguments = [sys.executable, "-m", "benchmarks.profile", str(directory / f"{kind}.prof")]
    arguments += [kind, "run", f"--kubeconfig={installation.kubeconfigs[kind]}"]
    arguments += [f"--health-port={port}"]
    log = cluster.plane.state_dir / "logs" / f"{kind}-profiled.log"
    return Component(cluster.plane, Command(kind, arguments, log), port, tethered=True)


async def until_answered(url: str, process: Process) -> float:
    """Return when the request was sent that was first answered with 200, by `time.monotonic`.

    A process that is ready but busy answers late; counted from the sending, that is its own time.

    Raises:
        TimeoutError, ProcessError: it is not ready in time, or ended.
    """
    # The certificate is one that kube-scheduler has just signed for itself.
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    async with asyncio.timeout(_READY_S), aiohttp.ClientSession(timeout=timeout) as session:
        while True:
            sent_s = time.monotonic()
            try:
                async with session.get(url, ssl=trusting) as answer:
                    if answer.status == 200:
                        return sent_s
            except aiohttp.ClientError:
                pass
            if not process.is_running:
                raise process.error("ended before it was ready")
            await asyncio.sleep(_POLL_S)
