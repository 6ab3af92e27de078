"""Runs a control plane: etcd, kube-apiserver and kube-controller-manager on loopback.

Made by `find`, or directly by failure tests, which stop and start the API server. `install` is
called when it is ready. RBAC is on, the administrator is a token in the group system:masters, and
kube-apiserver signs its own certificate. Invariant: all started processes are stopped in reverse
order, however the owner ends.
"""

import atexit
import secrets
import shutil
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devcluster import kubeconfig, settings
from devcluster.build import Report
from devcluster.errors import ControlPlaneError, ProcessError
from devcluster.plane import ControlPlane, Tools
from devcluster.ports import free_port
from devcluster.processes import Command, Detached, Process
from devcluster.settings import DEFAULT_FEATURES, Features

_PORT_ATTEMPTS: Final = 3
_READY_SECONDS: Final = 60.0
_GRACE_S: Final = 1.0
"""Seconds that a process may take to end. The data is deleted afterwards, so nothing has to be
finished, and kube-apiserver would wait ten seconds and more for watches to end."""


@dataclass(frozen=True)
class ServerBinaries:
    """The programs that make a control plane."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path


class LocalControlPlane(ControlPlane):
    """Runs the binaries; its files are in `state_dir`, logs in `state_dir/logs`."""

    def __init__(
        self,
        binaries: ServerBinaries,
        tools: Tools,
        *,
        state_dir: Path | None = None,
        tethered: bool = True,
        report: Report = lambda _line: None,
        features: Features = DEFAULT_FEATURES,
        node_grace_s: int | None = None,
    ) -> None:
        """Prepare; nothing runs before `start`.

        Without `state_dir`, a temporary directory is used, and removed by `stop`. Processes that
        are not `tethered` outlive this process. `node_grace_s`: seconds for which nodes stay Ready
        without heartbeats; None: Kubernetes' default.
        """
        self._temporary = state_dir is None
        state_dir = state_dir or Path(tempfile.mkdtemp(prefix="bindery-controlplane-"))
        super().__init__(tools, state_dir, state_dir / "admin.kubeconfig")
        self.binaries = binaries
        self._tethered = tethered
        self._report = report
        self._features = features
        self._node_grace_s = node_grace_s
        self._token = secrets.token_urlsafe(32)
        self._etcd_port = 0
        self._api_port = 0
        self._running: dict[str, Process] = {}

    @property
    def is_shared(self) -> bool:
        """False: the control plane is made and removed as a whole."""
        return False

    def start(self) -> None:
        """Start everything and wait until it is ready.

        Raises:
            ControlPlaneError: a process did not become ready; all started processes are stopped.
        """
        atexit.register(self.stop)
        try:
            self._report("starting etcd")
            self._start_on_free_port(self._start_etcd)
            self._report("starting kube-apiserver")
            self._start_on_free_port(self._start_first_api_server)
            self._report("starting kube-controller-manager")
            self._start_controller_manager()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything and remove the data; logs stay in a `state_dir` that was given."""
        for process in reversed(list(self._running.values())):
            process.stop(_GRACE_S)
        self._running.clear()
        shutil.rmtree(self.state_dir / "etcd", ignore_errors=True)
        if self._temporary:
            shutil.rmtree(self.state_dir, ignore_errors=True)
        atexit.unregister(self.stop)

    def detach(self) -> Detached:
        """Leave the processes running; return how to stop them."""
        if self._tethered:
            raise ControlPlaneError("a tethered control plane dies with its parent")
        atexit.unregister(self.stop)
        return Detached(tuple(process.record(_GRACE_S) for process in reversed(self.processes)))

    def stop_api_server(self) -> None:
        """Stop kube-apiserver; clients see refused connections."""
        # kube-apiserver would wait ten seconds and more for watches to end by themselves.
        self._running.pop("kube-apiserver").stop(timeout_s=2.0)

    def kill_api_server(self) -> None:
        """Kill kube-apiserver, as in a crash."""
        self._running.pop("kube-apiserver").kill()

    def start_api_server(self) -> None:
        """Start kube-apiserver on the same port and data, and wait until it is ready."""
        self._start_api_server()

    def process(self, name: str) -> Process:
        """Return the running process `name`, such as kube-apiserver."""
        return self._running[name]

    @property
    def processes(self) -> tuple[Process, ...]:
        """The running processes, in start order."""
        return tuple(self._running.values())

    def _start(self, name: str, program: Path, arguments: list[str]) -> Process:
        log = self.state_dir / "logs" / f"{name}.log"
        command = Command(name, [str(program), *arguments], log)
        process = self.start_process(command, tethered=self._tethered)
        self._running[name] = process
        return process

    def _answers(self, url: str, token: str = "", authority: Path | None = None) -> bool:
        return self.inside(lambda: _answers(url, token, authority))

    def _choose_api_port(self) -> int:
        return free_port()

    def _tokens(self) -> list[str]:
        """Return the lines of the API server's token file."""
        return [f'{self._token},admin,admin,"system:masters"']

    def _api_server_arguments(self) -> list[str]:
        return settings.api_server_arguments(
            self.state_dir / "certificates",
            self.state_dir / "tokens.csv",
            etcd_port=self._etcd_port,
            port=self._api_port,
            features=self._features,
        )

    def _controller_manager_arguments(self) -> list[str]:
        return settings.controller_manager_arguments(
            self.admin_kubeconfig,
            self.state_dir / "certificates",
            self._features,
            self._node_grace_s,
        )

    def _start_on_free_port(self, start: Callable[[], None]) -> None:
        """Call `start` again while another process takes the chosen port first."""
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            try:
                start()
            except ProcessError as error:
                if "address already in use" not in str(error) or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                return

    def _start_etcd(self) -> None:
        self._etcd_port, peer_port = free_port(), free_port()
        arguments = settings.etcd_arguments(self.state_dir / "etcd", self._etcd_port, peer_port)
        process = self._start("etcd", self.binaries.etcd, arguments)
        url = f"http://127.0.0.1:{self._etcd_port}/readyz"
        process.wait_until(lambda: self._answers(url), "ready", _READY_SECONDS)

    def _start_first_api_server(self) -> None:
        self._api_port = self._choose_api_port()
        self._start_api_server()

    def _start_api_server(self) -> None:
        certificates = self.state_dir / "certificates"
        tokens = self.state_dir / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text("".join(f"{line}\n" for line in self._tokens()), encoding="utf-8")
        arguments = self._api_server_arguments()
        process = self._start("kube-apiserver", self.binaries.kube_apiserver, arguments)
        authority = certificates / "apiserver.crt"
        process.wait_until(authority.exists, "its certificate", _READY_SECONDS)
        url = f"https://127.0.0.1:{self._api_port}"
        ready = f"{url}/readyz"
        process.wait_until(
            lambda: self._answers(ready, self._token, authority), "ready", _READY_SECONDS
        )
        server = kubeconfig.Server(url, authority.read_bytes())
        kubeconfig.write(self.admin_kubeconfig, server, "admin", self._token)

    def _start_controller_manager(self) -> None:
        arguments = self._controller_manager_arguments()
        process = self._start(
            "kube-controller-manager", self.binaries.kube_controller_manager, arguments
        )
        # The API server refuses pods before the namespace has its default ServiceAccount.
        url = (
            f"https://127.0.0.1:{self._api_port}/api/v1/namespaces/default/serviceaccounts/default"
        )
        authority = self.state_dir / "certificates" / "apiserver.crt"
        process.wait_until(
            lambda: self._answers(url, self._token, authority), "at work", _READY_SECONDS
        )


def _answers(url: str, token: str = "", authority: Path | None = None) -> bool:
    """Return whether a GET of the loopback `url` succeeds."""
    request = urllib.request.Request(url)  # noqa: S310  our own loopback address
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        context = ssl.create_default_context(cafile=str(authority)) if authority else None
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError, ssl.SSLError):
        return False
