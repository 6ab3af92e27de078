"""Finds the first available control plane, in the documented order.

Called by the demo, the tests' fixtures and the benchmarks. In order: the kubeconfig named by
BINDERY_KUBECONFIG; kind, when it is installed and a container engine answers; the binaries in
KUBEBUILDER_ASSETS; the binaries built from `controlplane/`. The user's current context is never
used.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devcluster import build
from devcluster.build import Report
from devcluster.errors import ControlPlaneError
from devcluster.given import GivenControlPlane, KindControlPlane
from devcluster.local import LocalControlPlane, ServerBinaries
from devcluster.plane import ControlPlane, Tools
from devcluster.settings import DEFAULT_FEATURES, Features

KUBECONFIG_VARIABLE: Final = "BINDERY_KUBECONFIG"
ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
_ENGINES: Final = ("docker", "podman", "nerdctl")
ENGINE_TIMEOUT_SECONDS: Final = 5.0
"""Seconds that a container engine may take to answer."""


@dataclass(frozen=True)
class Options:
    """Options for the control plane."""

    state_dir: Path | None = None
    """Directory of the control plane's files; default: a temporary directory, removed at the end.
    """
    tethered: bool = True
    """Whether the control plane ends with this process."""
    features: Features = DEFAULT_FEATURES
    """Features beyond Kubernetes' defaults; only for a control plane started here."""
    is_next: bool = False
    """Whether to run the next Kubernetes, from `controlplane/next/`; only for a control plane
    started here.
    """
    node_grace_s: int | None = None
    """Seconds for which nodes stay Ready without heartbeats; default: Kubernetes' own. Only for a
    control plane started here."""


def find(
    options: Options, report: Report, environment: Mapping[str, str] = os.environ
) -> ControlPlane:
    """Return the first available control plane, not yet started.

    Raises:
        ControlPlaneError: the requested control plane cannot be used, or none is available.
    """
    kubeconfig = environment.get(KUBECONFIG_VARIABLE)
    if kubeconfig:
        path = Path(kubeconfig)
        if not path.is_file():
            raise ControlPlaneError(f"{KUBECONFIG_VARIABLE}={kubeconfig}: no such file")
        report(f"using the cluster of {path}")
        return GivenControlPlane(path, _tools(report), state_dir=options.state_dir)
    kind = shutil.which("kind")
    if kind and _engine_answers():
        return KindControlPlane(
            Path(kind), _tools(report), state_dir=options.state_dir, report=report
        )
    return local(options, report, environment)


def local(
    options: Options, report: Report, environment: Mapping[str, str] = os.environ
) -> LocalControlPlane:
    """Return a control plane to start here, with binaries of KUBEBUILDER_ASSETS if they are there.

    Raises:
        ControlPlaneError: a binary is missing and cannot be built.
    """
    paths = build.binaries(build.NEXT, report, build.NEXT_MODULE) if options.is_next else {}
    paths = {**_assets(environment), **paths}
    missing = [name for name in build.PACKAGES if name not in paths]
    paths |= build.binaries(missing, report) if missing else {}
    return LocalControlPlane(
        ServerBinaries(
            etcd=paths["etcd"],
            kube_apiserver=paths["kube-apiserver"],
            kube_controller_manager=paths["kube-controller-manager"],
            kube_scheduler=paths["kube-scheduler"],
        ),
        Tools(kubectl=paths["kubectl"], helm=paths["helm"]),
        state_dir=options.state_dir,
        tethered=options.tethered,
        report=report,
        features=options.features,
        node_grace_s=options.node_grace_s,
    )


def _assets(environment: Mapping[str, str]) -> dict[str, Path]:
    """Return the binaries in KUBEBUILDER_ASSETS, by name.

    setup-envtest provides etcd, kube-apiserver and kubectl; the other binaries are built.
    """
    directory = environment.get(ASSETS_VARIABLE)
    if not directory:
        return {}
    if not Path(directory).is_dir():
        raise ControlPlaneError(f"{ASSETS_VARIABLE}={directory}: no such directory")
    found = {name: Path(directory, name).resolve() for name in build.PACKAGES}
    return {name: path for name, path in found.items() if os.access(path, os.X_OK)}


def _tools(report: Report) -> Tools:
    """Return kubectl and helm from the PATH, built where they are missing."""
    paths: dict[str, Path] = {}
    for name in ("kubectl", "helm"):
        path = shutil.which(name)
        if path:
            paths[name] = Path(path)
    missing = [name for name in ("kubectl", "helm") if name not in paths]
    paths |= build.binaries(missing, report) if missing else {}
    return Tools(kubectl=paths["kubectl"], helm=paths["helm"])


def _engine_answers() -> bool:
    """Return whether a container engine is installed and its service answers."""
    for engine in _ENGINES:
        program = shutil.which(engine)
        if program is None:
            continue
        try:
            subprocess.run(  # noqa: S603  found on the PATH
                [program, "info"],
                capture_output=True,
                timeout=ENGINE_TIMEOUT_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return True
    return False
